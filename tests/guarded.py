"""Arrays between pages that may not be touched.

All memory around and inside an array starts as 0xff, which is NaN in every floating-point type: what reads an element
that it should not, or leaves one unwritten, shows in its result, and what writes beside an array is found by check().
An array lies flush against the page before or the page behind it; a test that tries both finds every access beyond it.
"""

from __future__ import annotations

import ctypes
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import Structure
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests import sdgen_native as native

PAGE = 4096
FILL = 0xFF


class Flush(Enum):
    START = "start"
    END = "end"


class Fault(AssertionError):
    """A kernel or an operation touched memory that it should not."""


class Broken(AssertionError):
    """A kernel did not leave registers, stack or control state as the ABI asks."""


# Mappings that are not in use, by size: mapping anew costs more than filling.
_free: defaultdict[int, list[int]] = defaultdict(list)


@dataclass
class _Block:
    name: str
    region: int  # first byte that may be touched
    region_size: int
    start: int
    size: int
    view: NDArray[Any]


def bytes_at(address: int, size: int) -> NDArray[np.uint8]:
    """Memory of this process as an array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class Guards:
    """The arrays of one call."""

    def __init__(self, flush: Flush) -> None:
        self.flush = flush
        self.blocks: list[_Block] = []

    def strided(
        self, name: str, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any = np.float32, shift: int = 0
    ) -> NDArray[Any]:
        """An array of NaN with these strides in bytes, in exactly the memory that it spans. shift moves it away from
        the page that it would be flush with."""
        dtype = np.dtype(dtype)
        reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
        size = sum(abs(r) for r in reach) + dtype.itemsize if all(shape) else 0
        region_size = max(-(-(size + shift) // PAGE), 1) * PAGE
        free = _free[region_size]
        region = free.pop() if free else native.test_map(region_size)
        assert region, f"no memory for {name}"
        offset = shift if self.flush is Flush.START else region_size - size - shift
        memory = bytes_at(region, region_size)
        memory[:] = FILL
        first = offset - sum(r for r in reach if r < 0)
        view: NDArray[Any] = np.ndarray(shape, dtype, memory, first if size else 0, strides)
        self.blocks.append(_Block(name, region, region_size, region + offset, size, view))
        return view

    def array(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32, shift: int = 0) -> NDArray[Any]:
        """An array of NaN without gaps."""
        dtype = np.dtype(dtype)
        strides = tuple(dtype.itemsize * int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        return self.strided(name, shape, strides, dtype, shift)

    def copy(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """An array without gaps that holds the values."""
        array = self.array(name, values.shape, values.dtype)
        array[...] = values
        return array

    def place(self, address: int) -> str:
        """Where an address lies, seen from the nearest array."""

        def distance(block: _Block) -> int:
            return max(block.start - address, address - (block.start + block.size - 1), 0)

        if not self.blocks:
            return f"{address:#x}"
        block = min(self.blocks, key=distance)
        if address < block.start:
            return f"{address:#x}, {block.start - address} bytes before {block.name}"
        if address >= block.start + block.size:
            return f"{address:#x}, {address - block.start - block.size} bytes behind the end of {block.name}"
        return f"{address:#x}, in {block.name}"

    def check(self, what: str) -> None:
        """Everything around and between the elements of the arrays is as it was."""
        for block in self.blocks:
            values = block.view.copy()
            block.view.view(np.dtype((np.void, block.view.itemsize)))[...] = bytes([FILL] * block.view.itemsize)
            memory = bytes_at(block.region, block.region_size)
            written = np.flatnonzero(memory != FILL)
            block.view[...] = values
            if written.size:
                raise Fault(
                    f"{what}: wrote at {self.place(block.region + int(written[0]))}, between or beside its elements"
                )

    def verify(self, what: str, report: native.Report) -> None:
        """Raises what the report of a call tells."""
        if report.signal:
            access = "writing" if report.wrote else "reading"
            name = signal.Signals(report.signal).name
            where = f"{access} at {self.place(report.address)}" if name != "SIGILL" else f"at {report.address:#x}"
            raise Fault(f"{what}: {name} {where}")
        broken = [name for bit, name in enumerate(native.BROKEN) if report.broken >> bit & 1]
        if broken:
            raise Broken(f"{what}: not restored or not kept: {', '.join(broken)}")

    def call(self, what: str, function: int, *arguments: int) -> None:
        """Calls a kernel through the trampoline, and checks all that takes no knowledge of what it computes."""
        report = native.Report()
        values = [argument & (2**64 - 1) for argument in arguments]
        native.test_call(function, (ctypes.c_uint64 * 6)(*values), ctypes.byref(report))
        self.verify(what, report)
        self.check(what)

    def operate(
        self, what: str, function: int, plan: Structure, op: Structure, work: NDArray[Any], threads: int, slow: int
    ) -> None:
        """Runs an operation on a team of threads, the thread `slow` more slowly than the others."""
        report = native.Report()
        memory = (work.ctypes.data, work.nbytes)
        pointers = (ctypes.byref(plan), ctypes.addressof(op))
        native.test_team_run(function, *pointers, threads, slow, *memory, ctypes.byref(report))
        self.verify(what, report)
        self.check(what)


@contextmanager
def guards(flush: Flush) -> Iterator[Guards]:
    """Arrays that are gone when the block ends."""
    arrays = Guards(flush)
    try:
        yield arrays
    finally:
        release(arrays)


def release(arrays: Guards) -> None:
    """Gives the memory of a call's arrays back."""
    for block in arrays.blocks:
        _free[block.region_size].append(block.region)
