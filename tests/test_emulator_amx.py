"""The instructions that the emulator executes itself, against results computed by hand from the manual's formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.emulated import emulated_guards
from tests.emulator import snippets, vdpphps
from tests.emulator.floats import fused
from tests.emulator.image import load
from tests.emulator.process import Emulator
from tests.guarded import Fault, Flush

Emulators = Callable[[str], Emulator]


def f32(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


def bf16(values: Any) -> NDArray[np.uint16]:
    """Elements of bfloat16; the values must be exact in it."""
    wide = np.asarray(values, np.float32)
    bits = wide.view(np.uint32)
    assert not np.any(bits & 0xFFFF)
    return (bits >> 16).astype(np.uint16)


def configuration(shapes: dict[int, tuple[int, int]], start_row: int = 0) -> NDArray[np.uint8]:
    """What LDTILECFG reads: (rows, bytes in a row) by tile."""
    config = np.zeros(64, np.uint8)
    config[:2] = 1, start_row
    for tile, (rows, colsb) in shapes.items():
        config[16 + 2 * tile : 18 + 2 * tile] = np.array([colsb], "<u2").view(np.uint8)
        config[48 + tile] = rows
    return config


class Runner:
    """Runs snippets on a model; arrays are passed in the order that they are given."""

    def __init__(self, emulator: Emulator, folder: Path) -> None:
        self.emulator, self.folder, self.count = emulator, folder, 0

    def __call__(self, body: str, *inputs: NDArray[Any], out: tuple[tuple[int], Any] | None = None) -> NDArray[Any]:
        self.count += 1
        function = snippets.function(self.emulator, self.folder, f"snippet{self.count}", body)
        with emulated_guards(Flush.END, self.emulator) as arrays:
            given = [arrays.copy(f"input {index}", values) for index, values in enumerate(inputs)]
            if out:
                given.append(arrays.array("out", *out))
            arrays.call("snippet", function, *(array.ctypes.data for array in given))
            return given[-1].copy()


@pytest.fixture
def run(emulators: Emulators, tmp_path: Path) -> Runner:
    return Runner(emulators("diamond-rapids"), tmp_path)


# ---- configuration ----


def test_configuration_is_stored_as_loaded(run: Runner) -> None:
    config = configuration({0: (16, 64), 3: (1, 4), 7: (5, 12)}, start_row=2)
    assert np.array_equal(run("ldtilecfg (%rdi)\nsttilecfg (%rsi)\ntilerelease", config, out=((64,), np.uint8)), config)


@pytest.mark.parametrize("before", ["", "ldtilecfg (%rdi)\ntilerelease", "ldtilecfg (%rdi)\nldtilecfg (%rsi)"])
def test_no_configuration_is_stored_as_zeros(run: Runner, before: str) -> None:
    none = np.zeros(64, np.uint8)
    none[48] = 1  # palette 0: the rest is not looked at
    stored = run(f"{before}\nsttilecfg (%rdx)", configuration({0: (16, 64)}), none, out=((64,), np.uint8))
    assert not stored.any()


@pytest.mark.parametrize(
    ("byte", "value", "reason"),
    [
        (0, 2, "there is no palette 2"),
        (2, 1, "reserved bytes are not 0"),
        (15, 1, "reserved bytes are not 0"),
        (32, 1, "reserved bytes are not 0"),
        (47, 128, "reserved bytes are not 0"),
        (63, 1, "reserved bytes are not 0"),
        (16, 65, "tile 0 of 16 rows by 65 bytes is larger"),
        (17, 1, "tile 0 of 16 rows by 320 bytes is larger"),
        (48, 17, "tile 0 of 17 rows by 64 bytes is larger"),
        (48, 0, "tile 0 has 0 rows of 64 bytes"),
        (18, 4, "tile 1 has 0 rows of 4 bytes"),
    ],
)
def test_wrong_configuration(run: Runner, byte: int, value: int, reason: str) -> None:
    config = configuration({0: (16, 64)})
    config[byte] = value
    with pytest.raises(Fault, match=rf"protection exception \(LDTILECFG: {reason}.*\), by `ldtilecfg \(%rdi\)` at"):
        run("ldtilecfg (%rdi)", config)


# ---- loads and stores ----


@pytest.mark.parametrize("load", ["tileloadd", "tileloaddt1"])
def test_rows_lie_a_stride_apart(run: Runner, load: str) -> None:
    """3 rows of 8 bytes, 20 bytes apart, displaced by 4; stored 12 bytes apart, the rest left as it was."""
    source = np.arange(52, dtype=np.uint8)
    body = f"""
        ldtilecfg (%rdi)
        movl $5, %eax
        {load} 4(%rsi,%rax,4), %tmm6
        movl $12, %eax
        tilestored %tmm6, (%rdx,%rax)
        tilerelease"""
    stored = run(body, configuration({6: (3, 8)}), source, out=((32,), np.uint8))
    expected = np.full(32, 0xFF, np.uint8)
    for row in range(3):
        expected[12 * row : 12 * row + 8] = source[4 + 20 * row : 12 + 20 * row]
    assert np.array_equal(stored, expected)


def test_negative_stride_and_none(run: Runner) -> None:
    body = """
        ldtilecfg (%rdi)
        movq $-4, %rax
        tileloadd 8(%rsi,%rax,1), %tmm0
        tileloadd 8(%rsi), %tmm1
        movl $4, %eax
        tilestored %tmm0, (%rdx,%rax)
        tilestored %tmm1, 12(%rdx,%rax)
        tilerelease"""
    stored = run(body, configuration({0: (3, 4), 1: (3, 4)}), np.array([1, 2, 3], np.int32), out=((6,), np.int32))
    assert stored.tolist() == [3, 2, 1, 3, 3, 3]


def test_start_row(run: Runner) -> None:
    """A load that starts at row 1 leaves row 0 as it is, and the next one starts at 0."""
    body = """
        ldtilecfg (%rdi)
        movl $4, %eax
        tileloadd (%rsi,%rax), %tmm0
        tilestored %tmm0, (%rdx,%rax)
        tileloadd (%rsi,%rax), %tmm0
        tilestored %tmm0, 8(%rdx,%rax)
        tilerelease"""
    stored = run(body, configuration({0: (2, 4)}, start_row=1), np.array([5, 6], np.int32), out=((4,), np.int32))
    assert stored.tolist() == [0, 6, 5, 6]


def test_zero(run: Runner) -> None:
    body = """
        ldtilecfg (%rdi)
        movl $4, %eax
        tileloadd (%rsi,%rax), %tmm1
        tilezero %tmm1
        tilestored %tmm1, (%rdx,%rax)
        tilerelease"""
    assert not run(body, configuration({1: (2, 4)}), np.array([5, 6], np.int32), out=((2,), np.int32)).any()


@pytest.mark.parametrize(
    ("body", "verb"), [("tileloadd (%rsi,%rax), %tmm0", "reading"), ("tilestored %tmm0, (%rsi,%rax)", "writing")]
)
def test_row_beyond_an_array(run: Runner, body: str, verb: str) -> None:
    array = np.zeros(16 * 64 - 4, np.uint8)
    message = rf"^snippet on diamond-rapids: {verb} at .*, 0 bytes behind the end of input 1, by `{body[:9]}"
    with pytest.raises(Fault, match=message):
        run(f"ldtilecfg (%rdi)\nmovl $64, %eax\n{body}", configuration({0: (16, 64)}), array)


def test_processor_state_is_kept(run: Runner) -> None:
    """Flags, mask registers and vectors are the same behind an emulated instruction."""
    body = """
        ldtilecfg (%rdi)
        movl $0x1234, %eax
        kmovd %eax, %k5
        vpbroadcastd %eax, %zmm31
        cmpl $0x1234, %eax
        tilezero %tmm0
        sete (%rsi)
        kmovd %k5, 4(%rsi)
        vmovd %xmm31, 8(%rsi)
        tilerelease"""
    stored = run(body, configuration({0: (1, 4)}), out=((3,), np.uint32))
    assert (stored[0] & 0xFF, stored[1], stored[2]) == (1, 0x1234, 0x1234)


# ---- products ----

PRODUCT = """
    ldtilecfg (%rdi)
    movl ${c_stride}, %eax
    movl ${a_stride}, %r10d
    movl ${b_stride}, %r11d
    tileloadd (%rcx,%rax), %tmm0
    tileloadd (%rsi,%r10), %tmm1
    tileloadd (%rdx,%r11), %tmm2
    {instruction} %tmm2, %tmm1, %tmm0
    tilestored %tmm0, (%rcx,%rax)
    tilerelease"""


def product(run: Runner, instruction: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
    """c + a b for a [m][k groups], b [k][n groups], c [m][n], where a group is 4 bytes."""
    strides = {"a_stride": a.nbytes // len(a), "b_stride": b.nbytes // len(b), "c_stride": c.nbytes // len(c)}
    config = configuration({n: (len(tile), tile.nbytes // len(tile)) for n, tile in enumerate((c, a, b))})
    return run(PRODUCT.format(instruction=instruction, **strides), config, a, b, c)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("tdpbssd", 2 + 6 + 16384 + 127),
        ("tdpbsud", -254 + 6 - 16384 + 127),
        ("tdpbusd", -510 + 6 - 16384 + 127),
        ("tdpbuud", 64770 + 6 + 16384 + 127),
    ],
)
def test_signs_of_bytes(run: Runner, instruction: str, expected: int) -> None:
    """-1 or 255 by -2 or 254, 2 by 3, -128 or 128 by the same, 127 by 1."""
    a = np.array([[0xFF, 2, 0x80, 127]], np.uint8)
    b = np.array([[0xFE, 3, 0x80, 1]], np.uint8)
    assert product(run, instruction, a, b, np.array([[1000]], np.int32)).tolist() == [[1000 + expected]]


def test_integers_wrap(run: Runner) -> None:
    ones = np.array([[1, 0, 0, 0]], np.uint8)
    c = np.array([[2**31 - 1]], np.int32)
    assert product(run, "tdpbssd", ones, ones, c).tolist() == [[-(2**31)]]


def test_layout_of_bytes(run: Runner) -> None:
    """m = 2, k = 2, n = 3: row k of the second source holds, for each n, the 4 bytes that belong to it."""
    a = np.array([[1, 0, 0, 0, 0, 0, 2, 0], [0, 1, 0, 0, 0, 0, 0, 3]], np.int8)
    groups = np.arange(4, dtype=np.int8)
    b = np.array([[10 + groups, 20 + groups, 30 + groups], [40 + groups, 50 + groups, 60 + groups]]).reshape(2, 12)
    c = np.array([[0, 0, 1000], [0, 2000, 0]], np.int32)
    expected = [
        [10 + 2 * 42, 20 + 2 * 52, 1000 + 30 + 2 * 62],
        [11 + 3 * 43, 2000 + 21 + 3 * 53, 31 + 3 * 63],
    ]
    assert product(run, "tdpbssd", a, b, c).tolist() == expected


def halves(instruction: str, values: Any) -> NDArray[np.uint16]:
    return bf16(values) if instruction == "tdpbf16ps" else np.asarray(values, np.float16).view(np.uint16)


FLOATS = pytest.mark.parametrize("instruction", ["tdpbf16ps", "tdpfp16ps"])


@FLOATS
def test_layout_of_pairs(run: Runner, instruction: str) -> None:
    """m = 1, k = 2, n = 2."""
    a = halves(instruction, [[1, 2, 3, 4]])
    b = halves(instruction, [[1, 10, 2, 20], [3, 30, 4, 40]])
    c = np.array([[100, 200]], np.float32)
    expected = [[100 + 1 + 2 * 10 + 3 * 3 + 4 * 30, 200 + 2 + 2 * 20 + 3 * 4 + 4 * 40]]
    assert product(run, instruction, a, b, c).tolist() == expected


@FLOATS
def test_order_and_rounding_of_sums(run: Runner, instruction: str) -> None:
    """Even products: 2^24 + 1, a tie that goes to the even 2^24. Odd ones: 1 + 1. Both: 2^24 + 2. With c = 1: 2^24 + 3,
    a tie that goes to 2^24 + 4. One chain of sums would stay at 2^24."""
    a, b = halves(instruction, [[4096, 1, 1, 1]]), halves(instruction, [[4096, 1], [1, 1]])
    assert product(run, instruction, a, b, np.array([[1]], np.float32)).tolist() == [[2.0**24 + 4]]


@FLOATS
def test_product_is_not_rounded(run: Runner, instruction: str) -> None:
    """1024 + (1 + 2^-7)^2 = 1025 + 2^-6 + 2^-14 ends in a tie, to even 1025 + 2^-6; 1024 minus that is
    exact, since the last place is 2^-14 below 1024."""
    a, b = halves(instruction, [[1024, 0, 1 + 2**-7, 0]]), halves(instruction, [[1, 0], [1 + 2**-7, 0]])
    assert product(run, instruction, a, b, np.zeros((1, 1), np.float32)).tolist() == [[1025 + 2.0**-6]]
    b = halves(instruction, [[1, 0], [-1 - 2**-7, 0]])
    assert product(run, instruction, a, b, np.zeros((1, 1), np.float32)).tolist() == [[1023 - 2.0**-6 - 2.0**-14]]


def rounded(exact: Fraction) -> float:
    """To 24 bits, ties to even; flushed to zero below the least normal number."""
    if exact == 0:
        return 0.0
    exponent = math.frexp(exact.numerator / exact.denominator)[1] - 1
    last_place = Fraction(2) ** (exponent - 23)
    result = round(exact / last_place) * last_place
    return float(result) if abs(result) >= Fraction(2) ** -126 else 0.0


def test_fused_rounds_once(rng: np.random.Generator) -> None:
    """Against exact fractions, for products of 16 and 22 bits, near ties and near the least normal number."""
    for bits in (8, 11):
        significands = rng.integers(2 ** (bits - 1), 2**bits, (2, 4000)) * rng.choice([-1, 1], (2, 4000))
        exponents = rng.integers(-70, -50, (2, 4000))
        a, b = np.ldexp(significands, exponents).astype(np.float32)
        reach = rng.integers(-30, 31, 4000) + exponents.sum(0) + 2 * bits
        c = np.ldexp(rng.choice([1, 2**22 + 1, 2**23 - 1, 2**24 - 1, 3], 4000), reach - 23).astype(np.float32)
        c[np.abs(c) < 2.0**-126] = 0
        exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
        assert fused(a, b, c).tolist() == [rounded(value) for value in exact]


@FLOATS
def test_single_precision_denormals_are_zero(run: Runner, instruction: str) -> None:
    zero, one = halves(instruction, [[0, 0]]), halves(instruction, [[1, 0]])
    # The largest denormal; the least normal number stays.
    for c, expected in ((0x007FFFFF, 0), (0x00800000, 0x00800000)):
        result = product(run, instruction, zero, one, np.array([[f32(c)]]))
        assert result.view(np.uint32).tolist() == [[expected]]


def test_bf16_denormals_are_zero(run: Runner) -> None:
    """2^-133 by 2^100 would be 2^-33."""
    a, b = np.array([[1, 0]], np.uint16), bf16([[2.0**100, 0]])
    assert product(run, "tdpbf16ps", a, b, np.zeros((1, 1), np.float32)).tolist() == [[0]]


def test_bf16_results_are_flushed(run: Runner) -> None:
    """2^-70 by 2^-57 = 2^-127 is flushed before it is added to the rest; 2^-126 is not."""
    zero = np.zeros((1, 1), np.float32)
    a, b = bf16([[2.0**-70, 0, 2.0**-70, 0]]), bf16([[2.0**-57, 0], [2.0**-57, 0]])
    assert product(run, "tdpbf16ps", a, b, zero).tolist() == [[0]]
    a, b = bf16([[2.0**-70, 0]]), bf16([[2.0**-56, 0]])
    assert product(run, "tdpbf16ps", a, b, zero).tolist() == [[2.0**-126]]


def test_bf16_just_below_the_least_normal(run: Runner) -> None:
    """Rounded to 24 bits, 2^-126 - 2^-151 is 2^-126, and 2^-126 - 2^-150 is itself, a denormal: flushed."""
    zero = np.zeros((1, 1), np.float32)
    a = bf16([[2.0**-126, 0, -(2.0**-76), 0]])
    for exponent, expected in ((-75, 2.0**-126), (-74, 0.0)):
        b = bf16([[1, 0], [2.0**exponent, 0]])
        assert product(run, "tdpbf16ps", a, b, zero).tolist() == [[expected]]


def test_fp16_denormals_count(run: Runner) -> None:
    """2^-24 by 2^-24, the product of the two least denormals, is a normal number in single precision."""
    least = np.array([[1, 0]], np.uint16)
    assert product(run, "tdpfp16ps", least, least, np.zeros((1, 1), np.float32)).tolist() == [[2.0**-48]]


@FLOATS
def test_infinity_and_nan(run: Runner, instruction: str) -> None:
    infinite, zero = halves(instruction, [[np.inf, 0]]), halves(instruction, [[0, 0]])
    c = np.zeros((1, 1), np.float32)
    assert product(run, instruction, infinite, halves(instruction, [[-1, 0]]), c).tolist() == [[-np.inf]]
    assert product(run, instruction, infinite, zero, c).view(np.uint32).tolist() == [[0xFFC00000]]
    largest = np.array([[np.finfo(np.float32).max]], np.float32)
    big = halves(instruction, [[32768, 0]])
    # 2^128 - 2^104 + 2^30 rounds back to the largest number.
    assert np.array_equal(product(run, instruction, big, big, largest), largest)


def test_bf16_overflow(run: Runner) -> None:
    big = bf16([[2.0**64, 0]])
    assert product(run, "tdpbf16ps", big, big, np.zeros((1, 1), np.float32)).tolist() == [[np.inf]]


@pytest.mark.parametrize(
    ("body", "shapes", "reason"),
    [
        ("tdpbssd %tmm2, %tmm1, %tmm0", {0: (1, 4), 1: (1, 4)}, "tmm2 is not configured"),
        ("tdpbssd %tmm2, %tmm1, %tmm0", {0: (2, 4), 1: (1, 4), 2: (1, 4)}, "shapes do not fit"),
        ("tdpbssd %tmm2, %tmm1, %tmm0", {0: (1, 8), 1: (1, 4), 2: (1, 4)}, "shapes do not fit"),
        ("tdpbssd %tmm2, %tmm1, %tmm0", {0: (1, 4), 1: (1, 8), 2: (1, 4)}, "shapes do not fit"),
        ("tdpbssd %tmm2, %tmm1, %tmm0", {0: (1, 4), 1: (1, 6), 2: (1, 4)}, "no multiple of 4"),
        ("tilezero %tmm7", {0: (1, 4)}, "tmm7 is not configured"),
        ("tileloadd (%rdi,%rax), %tmm0", {0: (1, 6)}, "no multiple of 4"),
        ("tilestored %tmm0, (%rdi,%rax)", {1: (1, 4)}, "tmm0 is not configured"),
    ],
)
def test_invalid_use_of_tiles(run: Runner, body: str, shapes: dict[int, tuple[int, int]], reason: str) -> None:
    with pytest.raises(Fault, match=rf"invalid opcode \(.*{reason}.*\), by `{body.split()[0]} "):
        run(f"ldtilecfg (%rdi)\n{body}", configuration(shapes))


def test_same_tile_twice(run: Runner) -> None:
    """tdpbssd %tmm1, %tmm1, %tmm0, which the assembler refuses."""
    with pytest.raises(Fault, match=r"\(two of the tiles are the same\), by `tdpbssd %tmm1,%tmm1,%tmm0`"):
        run("ldtilecfg (%rdi)\n.byte 0xc4, 0xe2, 0x73, 0x5e, 0xc1", configuration({0: (1, 4), 1: (1, 4)}))


def test_start_row_beyond_the_tile(run: Runner) -> None:
    with pytest.raises(Fault, match=r"invalid opcode \(start_row 1 is beyond the 1 rows of tmm0\)"):
        run("ldtilecfg (%rdi)\ntileloadd (%rdi,%rax), %tmm0", configuration({0: (1, 4)}, start_row=1))


# ---- VDPPHPS ----


def machine_code(folder: Path, instruction: str) -> bytes:
    """What the assembler makes of an instruction."""
    image = load(snippets.build(folder, "code", f"{instruction}\ncode_end:"), 0)
    segment = next(segment for segment in image.segments if segment.executable)
    start, end = (image.symbols[name] - segment.address for name in ("code", "code_end"))
    return segment.data[start:end]


def vdpphps_text(folder: Path, operands: str) -> str:
    """VDPPHPS for the assembler, which does not know it."""
    code = vdpphps.encode(machine_code(folder, f"vdpbf16ps {operands}"))
    return f".byte {', '.join(map(hex, code))}"


@pytest.mark.parametrize(
    ("operands", "code"),
    [  # from the tests of GNU binutils 2.44, which knows it: gas/testsuite/gas/i386/x86-64-avx10_2-256-media.d
        ("%ymm28, %ymm29, %ymm30", "62 02 14 20 52 f4"),
        ("%xmm28, %xmm29, %xmm30", "62 02 14 00 52 f4"),
        ("0x10000000(%rbp,%r14,8), %ymm29, %ymm30{%k7}", "62 22 14 27 52 b4 f5 00 00 00 10"),
        ("(%r9){1to8}, %ymm29, %ymm30", "62 42 14 30 52 31"),
    ],
)
def test_encoding(tmp_path: Path, operands: str, code: str) -> None:
    assert vdpphps.encode(machine_code(tmp_path, f"vdpbf16ps {operands}")) == bytes.fromhex(code)


def test_encoding_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a VDPBF16PS"):
        vdpphps.encode(machine_code(tmp_path, "vpdpbusd %zmm0, %zmm1, %zmm2"))


def pairs(lanes: int, even: float, odd: float) -> NDArray[np.float16]:
    return np.tile(np.array([even, odd], np.float16), lanes)


def dot(run: Runner, operands: str, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
    """Runs VDPPHPS on zmm1 = a, b at rsi, and in zmm2 where it is that long, and zmm3 = c, with lanes 0 and 2 in k1."""
    body = "movl $5, %eax\nkmovw %eax, %k1\nvmovups (%rdi), %zmm1\nvmovups (%rdx), %zmm3\n"
    if b.nbytes == 64:
        body += "vmovups (%rsi), %zmm2\n"
    return run(f"{body}{vdpphps_text(run.folder, operands)}\nvmovups %zmm3, (%rdx)\nvzeroupper", a, b, c)


def test_dot_product(run: Runner) -> None:
    a = np.arange(32, dtype=np.float16)
    b = np.arange(100, 132, dtype=np.float16)
    c = np.arange(1000, 1016, dtype=np.float32)
    expected = [1000 + i + 2 * i * (100 + 2 * i) + (2 * i + 1) * (101 + 2 * i) for i in range(16)]
    assert dot(run, "%zmm2, %zmm1, %zmm3", a, b, c).tolist() == expected
    assert dot(run, "(%rsi), %zmm1, %zmm3", a, b, c).tolist() == expected
    for name, lanes in (("xmm", 4), ("ymm", 8)):
        # Lanes beyond the vector become 0.
        result = dot(run, f"%{name}2, %{name}1, %{name}3", a, b, c)
        assert result.tolist() == expected[:lanes] + [0] * (16 - lanes)


def test_dot_product_masks(run: Runner) -> None:
    a, b = pairs(16, 2, 0), pairs(16, 3, 0)
    c = np.arange(16, dtype=np.float32)
    merged = [6 + i if i in (0, 2) else i for i in range(16)]
    zeroed = [6 + i if i in (0, 2) else 0 for i in range(16)]
    assert dot(run, "%zmm2, %zmm1, %zmm3{%k1}", a, b, c).tolist() == merged
    assert dot(run, "%zmm2, %zmm1, %zmm3{%k1}{z}", a, b, c).tolist() == zeroed
    # Lanes 0 and 2 only are read: the array ends behind the third.
    assert dot(run, "(%rsi), %zmm1, %zmm3{%k1}", a, pairs(3, 3, 0), c).tolist() == merged
    with pytest.raises(Fault, match=r"0 bytes behind the end of input 1, by `vdpphps \(%rsi\),%zmm1,%zmm3`"):
        dot(run, "(%rsi), %zmm1, %zmm3", a, pairs(3, 3, 0), c)


def test_dot_product_broadcast(run: Runner) -> None:
    a, c = np.arange(32, dtype=np.float16), np.zeros(16, np.float32)
    expected = [3 * 2 * i + 5 * (2 * i + 1) for i in range(16)]
    assert dot(run, "(%rsi){1to16}, %zmm1, %zmm3", a, pairs(1, 3, 5), c).tolist() == expected


def test_dot_product_order(run: Runner) -> None:
    """2^24 + 1, the odd product, is a tie that goes back to 2^24; the even product makes it 2^24 + 2."""
    c = np.full(16, 2.0**24, np.float32)
    assert dot(run, "%zmm2, %zmm1, %zmm3", pairs(16, 2, 1), pairs(16, 1, 1), c).tolist() == [2.0**24 + 2] * 16


def test_dot_product_denormals(run: Runner) -> None:
    """Half-precision denormals count, single-precision ones do not."""
    least = np.tile(np.array([1, 1], np.uint16), 16)
    c = np.full(16, f32(0x007FFFFF))
    assert dot(run, "%zmm2, %zmm1, %zmm3", least, least, c).tolist() == [2.0**-47] * 16
    zero = pairs(16, 0, 0)
    assert dot(run, "%zmm2, %zmm1, %zmm3", zero, zero, c).view(np.uint32).tolist() == [0] * 16
