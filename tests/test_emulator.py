"""The emulator itself: what it must find is found; what a model has works on it, and what it lacks does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.emulated import EmulatedGuards, emulated_guards
from tests.emulator import models, process, snippets
from tests.emulator.image import ImageError, load
from tests.emulator.machine import BARRIER
from tests.emulator.process import Emulator, EmulatorError
from tests.emulator.toolchain import BuildError, freestanding
from tests.guarded import Broken, Fault, Flush

Emulators = Callable[[str], Emulator]

NATIVE = Path(__file__).parent / "native"


@pytest.fixture(scope="session")
def bad_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels that the native trampoline is tested with, as an image."""
    out = tmp_path_factory.mktemp("bad_kernels") / "bad_kernels.so"
    return freestanding(out, [NATIVE / "bad_kernels.S"], f"-I{NATIVE}")


@pytest.fixture
def haswell(emulators: Emulators) -> Emulator:
    return emulators("haswell")


# ---- memory ----


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize(
    ("body", "verb", "instruction"),
    [
        ("vmovss (%rdi), %xmm0", "reading", r"vmovss \(%rdi\),%xmm0"),
        ("vmovss %xmm0, (%rdi)", "writing", r"vmovss %xmm0,\(%rdi\)"),
        ("nop; addl $1, (%rdi)", "writing", r"addl \$1,\(%rdi\)"),
    ],
)
def test_one_element_beyond_an_array(
    haswell: Emulator, tmp_path: Path, flush: Flush, body: str, verb: str, instruction: str
) -> None:
    function = snippets.function(haswell, tmp_path, "touch", body)
    with emulated_guards(flush, haswell) as arrays:
        array = arrays.array("array", (7,))
        for element in range(7):
            arrays.call("inside", function, array.ctypes.data + 4 * element)
        beyond = array.ctypes.data + (-4 if flush is Flush.START else array.nbytes)
        side = "4 bytes before array" if flush is Flush.START else "0 bytes behind the end of array"
        offset = "0x1" if body.startswith("nop") else "0x0"
        message = rf"^beyond on haswell: {verb} at {beyond:#x}, {side}, by `{instruction}` at touch\+{offset}$"
        with pytest.raises(Fault, match=message):
            arrays.call("beyond", function, beyond)


def test_access_across_the_end(haswell: Emulator, tmp_path: Path) -> None:
    function = snippets.function(haswell, tmp_path, "across", "vmovups (%rdi), %ymm1\nvzeroupper")
    with emulated_guards(Flush.END, haswell) as arrays:
        array = arrays.array("array", (9,))
        arrays.call("inside", function, array.ctypes.data + 4)
        with pytest.raises(Fault, match=r"reading at .*, 0 bytes behind the end of array, by `vmovups"):
            arrays.call("across", function, array.ctypes.data + 8)


def test_lanes_masked_out_are_not_read(haswell: Emulator, tmp_path: Path) -> None:
    body = "vmovups (%rdi), %ymm0\nvmaskmovps (%rsi), %ymm0, %ymm1\nvmovups %ymm1, (%rdx)\nvzeroupper"
    function = snippets.function(haswell, tmp_path, "masked", body)
    with emulated_guards(Flush.END, haswell) as arrays:
        mask = arrays.copy("mask", np.array([-1, -1, -1, 0, 0, 0, 0, 0], np.int32))
        array = arrays.copy("array", np.array([1, 2, 3], np.float32))
        out = arrays.array("out", (8,))
        arrays.call("masked", function, mask.ctypes.data, array.ctypes.data, out.ctypes.data)
        assert out.tolist() == [1, 2, 3, 0, 0, 0, 0, 0]


def test_write_beside_an_array(haswell: Emulator, tmp_path: Path) -> None:
    function = snippets.function(haswell, tmp_path, "beside", "movl $0, -4(%rdi)")
    with emulated_guards(Flush.END, haswell) as arrays:
        array = arrays.array("array", (7,))
        with pytest.raises(Fault, match=r"wrote at .*, 4 bytes before array"):
            arrays.call("beside", function, array.ctypes.data)


def test_memory_of_one_call_is_gone_in_the_next(haswell: Emulator, tmp_path: Path) -> None:
    function = snippets.function(haswell, tmp_path, "again", "movl (%rdi), %eax")
    with emulated_guards(Flush.END, haswell) as arrays:
        address = arrays.array("array", (7,)).ctypes.data
        arrays.call("there", function, address)
    with pytest.raises(Fault, match=r"reading at 0x"):
        EmulatedGuards(Flush.END, haswell).call("gone", function, address)


def test_code_cannot_be_written(haswell: Emulator, tmp_path: Path) -> None:
    function = snippets.function(haswell, tmp_path, "self_modifying", "movb $0, self_modifying(%rip)")
    with pytest.raises(Fault, match=r"writing at .* at self_modifying\+0x0"):
        EmulatedGuards(Flush.END, haswell).call("code", function)


def test_data_cannot_be_executed(haswell: Emulator, tmp_path: Path) -> None:
    function = snippets.function(haswell, tmp_path, "jump", "jmp *%rdi")
    with emulated_guards(Flush.END, haswell) as arrays:
        array = arrays.copy("array", np.full(16, 0xC3, np.uint8))
        with pytest.raises(Fault, match=r"executing at .*, in array"):
            arrays.call("data", function, array.ctypes.data)


def test_missing_function_is_named(haswell: Emulator, tmp_path: Path) -> None:
    function = snippets.function(haswell, tmp_path, "caller", "call nowhere@plt")
    with pytest.raises(Fault, match=r"executing at .* at nowhere\+0x0"):
        EmulatedGuards(Flush.END, haswell).call("import", function)


# ---- registers and stack ----


@pytest.mark.parametrize(
    "name",
    ["rbx", "rbp", "r12", "r13", "r14", "r15", "rsp", "stack_above", "direction", "mxcsr", "x87", "upper_ymm"],
)
def test_bad_kernel_is_found(haswell: Emulator, bad_kernels: Path, name: str) -> None:
    image = snippets.place(haswell, bad_kernels)
    arrays = EmulatedGuards(Flush.END, haswell)
    with pytest.raises(Broken, match=rf"^some kernel on haswell: not restored or not kept: {name}$"):
        arrays.call("some kernel", image.symbols[f"sdgen_test_bad_{name}"])
    arrays.call("good", image.symbols["sdgen_test_good"])


def test_upper_zmm_is_found(emulators: Emulators, tmp_path: Path) -> None:
    skylake = emulators("skylake-x")
    # All of zmm16 to zmm31 may be used without vzeroupper; lanes 8 to 15 of zmm0 may not.
    good = snippets.function(skylake, tmp_path, "good", "vpternlogd $255, %zmm31, %zmm31, %zmm31")
    bad = snippets.function(skylake, tmp_path, "bad", "vinserti32x4 $3, %xmm0, %zmm0, %zmm0")
    arrays = EmulatedGuards(Flush.END, skylake)
    arrays.call("good", good)
    with pytest.raises(Broken, match="upper_ymm"):
        arrays.call("bad", bad)


def test_tiles_left_configured_are_found(emulators: Emulators, tmp_path: Path) -> None:
    emulator = emulators("sapphire-rapids")
    bad = snippets.function(emulator, tmp_path, "bad", "ldtilecfg (%rdi)")
    good = snippets.function(emulator, tmp_path, "good", "ldtilecfg (%rdi)\ntilerelease")
    with emulated_guards(Flush.END, emulator) as arrays:
        config = arrays.copy("config", np.zeros(64, np.uint8))
        config[0], config[16], config[48] = 1, 64, 16
        arrays.call("good", good, config.ctypes.data)
        with pytest.raises(Broken, match="tiles"):
            arrays.call("bad", bad, config.ctypes.data)


# ---- threads ----


def barrier_body(before: str, behind: str) -> str:
    """Calls the barrier, with the stack aligned, between two parts; the number of the thread is in esi."""
    return f"""
        pushq %rbx
        movq %rdi, %rbx
        {before}
        movabsq ${BARRIER:#x}, %rax
        call *%rax
        {behind}
        popq %rbx"""


@pytest.mark.parametrize("slow", [-1, 0, 2])
@pytest.mark.parametrize("threads", [2, 4])
def test_threads_wait_for_each_other(haswell: Emulator, tmp_path: Path, threads: int, slow: int) -> None:
    """Each counts up before the barrier, and keeps behind it what the count is."""
    body = barrier_body("leaq 4(%rdi,%rsi,4), %r12\nlock incl (%rdi)", "movl (%rbx), %eax\nmovl %eax, (%r12)")
    function = snippets.function(haswell, tmp_path, "threads", f"pushq %r12\n{body}\npopq %r12")
    with emulated_guards(Flush.END, haswell) as arrays:
        counts = arrays.copy("counts", np.zeros(1 + threads, np.int32))
        arrays.team("threads", function, [(counts.ctypes.data, thread) for thread in range(threads)], slow)
        assert counts.tolist() == [threads] * (1 + threads)


def test_threads_take_turns(haswell: Emulator, tmp_path: Path) -> None:
    """Each appends its number twice, with a call between."""
    append = "movl $1, %eax\nlock xaddl %eax, (%rdi)\nmovl %esi, 4(%rdi,%rax,4)"
    function = snippets.function(haswell, tmp_path, "turns", f"{append}\ncall 1f\n{append}\n1:")
    with emulated_guards(Flush.END, haswell) as arrays:
        order = arrays.copy("order", np.zeros(7, np.int32))
        arrays.team("turns", function, [(order.ctypes.data, thread) for thread in range(2)])
        assert sorted(order[1:3].tolist()) == [0, 1]
    with emulated_guards(Flush.END, haswell) as arrays:
        order = arrays.copy("order", np.zeros(7, np.int32))
        arrays.team("turns", function, [(order.ctypes.data, thread) for thread in range(2)], slow=1)
        assert order.tolist() == [4, 0, 0, 1, 1, 0, 0]


def test_waiting_for_nobody_is_found(haswell: Emulator, tmp_path: Path) -> None:
    body = barrier_body("testl %esi, %esi\njnz 2f", "2:")
    function = snippets.function(haswell, tmp_path, "uneven", body)
    with pytest.raises(Broken, match="barrier"):
        EmulatedGuards(Flush.END, haswell).team("uneven", function, [(0, 0), (0, 1)])


# ---- models ----

# One instruction of each extension that a level is made of, on registers that hold NaN (all ones).
EXTENSIONS = {
    "FMA": "vfmadd231ps %ymm0, %ymm1, %ymm2",
    "F16C": "vcvtph2ps %xmm0, %ymm1",
    "AVX512F": "vfmadd231ps %zmm16, %zmm17, %zmm18",
    "AVX512VL": "vpternlogd $255, %ymm16, %ymm16, %ymm16",
    "AVX512BW": "kmovq %rax, %k1",
    "AVX512_VNNI": "vpdpbusd %zmm0, %zmm1, %zmm2",
    "AVX_VNNI": "{vex} vpdpbusd %ymm0, %ymm1, %ymm2",
    "AVX512_BF16": "vdpbf16ps %zmm0, %zmm1, %zmm2",
    "AVX512_FP16": "vfmadd231ph %zmm0, %zmm1, %zmm2",
    "AMX_TILE": "tilerelease",
    "AMX_FP16": ".byte 0xc4, 0xe2, 0x73, 0x5c, 0xd0",  # tdpfp16ps %tmm1, %tmm0, %tmm2
    "AVX10_2": ".byte 0x62, 0xf2, 0x74, 0x48, 0x52, 0xd0",  # vdpphps %zmm0, %zmm1, %zmm2
}
_AVX2 = {"FMA", "F16C"}
_AVX512 = _AVX2 | {"AVX512F", "AVX512VL", "AVX512BW"}
_SAPPHIRE_RAPIDS = _AVX512 | {"AVX512_VNNI", "AVX_VNNI", "AVX512_BF16", "AVX512_FP16", "AMX_TILE"}
HAS = {
    "haswell": _AVX2,
    "arrow-lake": _AVX2 | {"AVX_VNNI"},
    "skylake-x": _AVX512,
    "icelake": _AVX512 | {"AVX512_VNNI"},
    "sapphire-rapids": _SAPPHIRE_RAPIDS,
    "granite-rapids": _SAPPHIRE_RAPIDS | {"AMX_FP16"},
    "diamond-rapids": _SAPPHIRE_RAPIDS | {"AMX_FP16", "AVX10_2"},
}


def test_every_model_is_tested() -> None:
    assert HAS.keys() == models.MODELS.keys()


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("model", HAS)
def test_model_has_what_it_should(emulators: Emulators, tmp_path: Path, model: str, extension: str) -> None:
    emulator = emulators(model)
    function = snippets.function(emulator, tmp_path, "function", f"{EXTENSIONS[extension]}\nvzeroupper")
    arrays = EmulatedGuards(Flush.END, emulator)
    if extension in HAS[model] and extension != "AMX_FP16":
        arrays.call(extension, function)
    else:
        # An AMX instruction without tiles is invalid too, but tells why.
        reason = r" \(tiles are not configured\)" if extension in HAS[model] else ""
        with pytest.raises(Fault, match=rf"^{extension} on {model}: invalid opcode{reason}, by `.+` at function\+0x0$"):
            arrays.call(extension, function)


def test_evex_on_haswell(haswell: Emulator, tmp_path: Path) -> None:
    function = snippets.function(haswell, tmp_path, "gemm", "xorl %eax, %eax\nvaddps %zmm1, %zmm2, %zmm30")
    with pytest.raises(Fault, match=r"^gemm on haswell: invalid opcode, by `vaddps %zmm1,%zmm2,%zmm30` at gemm\+0x2$"):
        EmulatedGuards(Flush.END, haswell).call("gemm", function)


def test_vnni_computes(emulators: Emulators, tmp_path: Path) -> None:
    """8 lanes of 4 products of an unsigned and a signed byte, by the VEX form and the EVEX form."""
    for model, prefix in (("arrow-lake", "{vex} "), ("icelake", "{evex} ")):
        body = f"vmovdqu (%rdi), %ymm0\nvpxor %xmm2, %xmm2, %xmm2\n{prefix}vpdpbusd (%rsi), %ymm0, %ymm2\n"
        body += "vmovdqu %ymm2, (%rdx)\nvzeroupper"
        function = snippets.function(emulators(model), tmp_path, model.replace("-", "_"), body)
        with emulated_guards(Flush.END, emulators(model)) as arrays:
            left = arrays.copy("left", np.arange(224, 256, dtype=np.uint8))
            right = arrays.copy("right", np.arange(-16, 16, dtype=np.int8))
            out = arrays.array("out", (8,), np.int32)
            arrays.call(model, function, left.ctypes.data, right.ctypes.data, out.ctypes.data)
            products = left.astype(np.int32) * right.astype(np.int32)
            assert out.tolist() == products.reshape(8, 4).sum(1).tolist()


# ---- errors of use ----


def test_unknown_model() -> None:
    with pytest.raises(EmulatorError, match=r"no model '386'; there are haswell, skylake-x"):
        Emulator("386")


def test_bochs_not_installed(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.emulator import models; models._PACKAGE = 'no_such_package'\n"
        "try: models.load('haswell')\n"
        "except models.MissingError as error: print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=NATIVE.parent.parent, capture_output=True, text=True, check=True
    )
    assert "no_such_package-python is not installed; requirements.txt names it" in result.stdout


def test_process_that_is_gone() -> None:
    with Emulator("haswell") as emulator:
        emulator._process.kill()
        with pytest.raises(EmulatorError, match=r"emulator of haswell: its process"):
            emulator.call(0)


def test_code_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Emulator("haswell") as emulator:
        function = snippets.function(emulator, tmp_path, "endless", "jmp endless")
        monkeypatch.setattr(process, "_SECONDS", 1)
        with pytest.raises(EmulatorError, match=r"no answer in 1 s; does the code called ever end\?"):
            emulator.call(function)


def test_truncated_object(tmp_path: Path) -> None:
    library = snippets.build(tmp_path, "whole", "nop")
    subprocess.run(["cc", "-c", "-o", tmp_path / "whole.o", tmp_path / "whole.S"], check=True)
    truncated = tmp_path / "truncated.o"
    truncated.write_bytes((tmp_path / "whole.o").read_bytes()[:200])
    with pytest.raises(BuildError, match=r"truncated\.o: cannot be built or linked"):
        freestanding(tmp_path / "out.so", [truncated])

    assert load(library, 0).symbols["whole"]
    data = library.read_bytes()
    for size in (0, 10, 63, 64, 200, len(data) // 2, len(data) - 1):
        truncated.write_bytes(data[:size])
        with pytest.raises(ImageError, match=r"truncated\.o: (not a complete ELF file|.*truncated)"):
            load(truncated, 0)
    truncated.write_bytes(b"\0" * 4 + data[4:])
    with pytest.raises(ImageError, match="not a complete ELF file"):
        load(truncated, 0)


def test_object_that_is_not_linked(tmp_path: Path) -> None:
    snippets.build(tmp_path, "whole", "nop")
    subprocess.run(["cc", "-c", "-o", tmp_path / "whole.o", tmp_path / "whole.S"], check=True)
    with pytest.raises(ImageError, match=r"whole\.o: not a shared library for x86-64"):
        load(tmp_path / "whole.o", 0)
