"""The tools of the kernel tests, tested with kernels that must fail."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests import sdgen_native as native
from tests.guarded import Broken, Fault, Flush, Guards, guards

REGISTERS_AND_STACK = [name for name in native.BROKEN if name not in ("barrier", "queue")]


def kernel(name: str) -> int:
    return native.function_address(f"sdgen_test_{name}")


@pytest.mark.parametrize("name", native.STRUCTURES)
def test_structures_have_the_size_of_c(name: str) -> None:
    assert ctypes.sizeof(native.STRUCTURES[name]) == native.test_sizeof(name.encode())


@pytest.mark.parametrize("name", REGISTERS_AND_STACK)
def test_bad_kernel_is_found(name: str) -> None:
    report = native.Report()
    native.test_call(kernel(f"bad_{name}"), (ctypes.c_uint64 * 6)(), ctypes.byref(report))
    assert report.signal == 0
    assert report.broken == 1 << native.BROKEN.index(name)


def test_bad_kernel_fails_by_name() -> None:
    with pytest.raises(Broken, match=r"some kernel: .*r13"):
        Guards(Flush.END).call("some kernel", kernel("bad_r13"))


def test_good_kernel_passes() -> None:
    Guards(Flush.END).call("good", kernel("good"))


def test_illegal_instruction_is_a_failure() -> None:
    with pytest.raises(Fault, match=r"illegal: SIGILL at 0x"):
        Guards(Flush.END).call("illegal", kernel("illegal"))


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("access", ["load", "store"])
def test_one_element_beyond_is_a_fault(flush: Flush, access: str) -> None:
    with guards(flush) as arrays:
        array = arrays.array("array", (7,))
        beyond = array.ctypes.data + (-4 if flush is Flush.START else array.nbytes)
        side = "4 bytes before array" if flush is Flush.START else "0 bytes behind the end of array"
        verb = {"load": "reading", "store": "writing"}[access]
        with pytest.raises(Fault, match=rf"{access}: SIGSEGV {verb} at {beyond:#x}, {side}"):
            arrays.call(access, kernel(access), beyond)
        for element in range(array.size):
            arrays.call(access, kernel(access), array.ctypes.data + 4 * element)


@pytest.mark.parametrize("flush", Flush)
def test_write_beside_an_array_is_found(flush: Flush) -> None:
    with guards(flush) as arrays:
        array = arrays.array("array", (7,))
        beside = array.ctypes.data + (array.nbytes if flush is Flush.START else -4)
        with pytest.raises(Fault, match=r"store: wrote at .* array"):
            arrays.call("store", kernel("store"), beside)


def test_write_between_elements_is_found() -> None:
    with guards(Flush.END) as arrays:
        array = arrays.strided("array", (3, 5), (24, 4))
        array[...] = np.arange(15).reshape(3, 5)
        arrays.check("nothing")
        with pytest.raises(Fault, match=r"in array, between or beside its elements"):
            arrays.call("store", kernel("store"), array.ctypes.data + 20)
        assert np.array_equal(array, np.arange(15).reshape(3, 5))


def test_negative_strides_span_exactly_their_memory() -> None:
    with guards(Flush.END) as arrays:
        array = arrays.strided("array", (3, 5), (-28, 4))
        last = array.ctypes.data + 20  # behind the first row, which lies last
        with pytest.raises(Fault, match=r"0 bytes behind the end of array"):
            arrays.call("load", kernel("load"), last)
    with guards(Flush.START) as arrays:
        array = arrays.strided("array", (3, 5), (-28, 4))
        arrays.call("load", kernel("load"), array.ctypes.data - 56)
        with pytest.raises(Fault, match=r"4 bytes before array"):
            arrays.call("load", kernel("load"), array.ctypes.data - 60)


# ---- teams of threads ----


def run_team(operation: str, op: int, threads: int, slow: int, work: int = 0, work_size: int = 0) -> native.Report:
    report, plan = native.Report(), native.Plan()
    native.test_team_run(
        native.function_address(f"sdgen_test_{operation}"),
        *(ctypes.byref(plan), op, threads, slow, work, work_size, ctypes.byref(report)),
    )
    return report


@pytest.mark.parametrize("slow", [-1, 0, 1])
@pytest.mark.parametrize("threads", [2, 4])
def test_waiting_for_nobody_is_found(threads: int, slow: int) -> None:
    report = run_team("uneven_barriers", 0, threads, slow)
    with pytest.raises(Broken, match=r"operation: .*barrier"):
        Guards(Flush.END).verify("operation", report)


@pytest.mark.parametrize("slow", [-1, 0])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_fault_of_one_thread_ends_all(threads: int, slow: int) -> None:
    with guards(Flush.END) as arrays:
        array = arrays.array("array", (7,))
        report = run_team("one_thread_faults", array.ctypes.data + array.nbytes, threads, slow)
        with pytest.raises(Fault, match=r"operation: SIGSEGV writing at .*, 0 bytes behind the end of array"):
            arrays.verify("operation", report)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_good_operation_passes(threads: int) -> None:
    with guards(Flush.END) as arrays:
        work = arrays.array("work", (threads,), np.uint8)
        arrays.verify("operation", run_team("good_operation", 0, threads, threads - 1, work.ctypes.data, threads))
        arrays.check("operation")
        assert np.all(work == 2)
