"""Every kernel that was built, called through the trampoline with its arrays between guard pages."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import bits, chain_bound, error_measure, first_difference
from tests.guarded import Flush, Guards, guards
from tests.operations import CHANCE_ERROR


def kernels_of(operation: str, types: tuple[str, ...] = ("f32", "f16", "bf16", "s8", "u8s8", "")) -> list[object]:
    """The rows of an operation as test parameters; those that this processor cannot run are skipped, not left out."""
    parameters: list[object] = []
    for kernel in native.kernels():
        if kernel.operation == operation and kernel.type in types:
            reason = kernel.lacks()
            marks = pytest.mark.skipif(bool(reason), reason=reason)
            parameters.append(pytest.param(kernel, id=kernel.name, marks=marks))
    return parameters


def test_every_operation_has_a_form_in_c() -> None:
    in_c = {(k.operation, k.type) for k in native.kernels() if k.level == native.Level.C}
    assert {(k.operation, k.type) for k in native.kernels()} - {("probe", k.type) for k in native.kernels()} <= in_c


def test_names_are_unique() -> None:
    names = [kernel.name for kernel in native.kernels()]
    assert len(names) == len(set(names))
    assert not native.sdgen_kernel_row(len(names))


# ---- gemm ----


@dataclass(frozen=True)
class Tail:
    """What a tile of sums becomes."""

    accumulate: bool
    scale: float
    row_bias: bool
    column_bias: bool


TAILS = [Tail(*tail) for tail in product((False, True), (1.0, -0.375), (False, True), (False, True))]


def check_gemm(
    kernel: native.Kernel, arrays: Guards, rng: np.random.Generator, columns: int, k: int, gap: int, tail: Tail
) -> None:
    rows, width = kernel.rows, kernel.columns
    what = f"{kernel.name} columns={columns} k={k} gap={gap} {tail} {arrays.flush}"

    a = arrays.copy("a", rng.standard_normal((k, rows), np.float32))
    b = arrays.copy("b", rng.standard_normal((k, width), np.float32))
    row_bias = arrays.copy("row_bias", rng.standard_normal(rows, np.float32)) if tail.row_bias else None
    column_bias = arrays.copy("column_bias", rng.standard_normal(columns, np.float32)) if tail.column_bias else None
    c_stride = 4 * (columns + gap)
    c = arrays.strided("c", (rows, columns), (c_stride, 4))
    if tail.accumulate:
        c[...] = rng.standard_normal((rows, columns), np.float32)
    before = c.copy()
    epilogue = arrays.array("epilogue", (ctypes.sizeof(native.Epilogue),), np.uint8)
    values = native.Epilogue(
        None if row_bias is None else row_bias.ctypes.data,
        None if column_bias is None else column_bias.ctypes.data,
        *(columns, int(tail.accumulate), tail.scale),
    )
    epilogue[:] = np.frombuffer(bytes(values), np.uint8)

    chain = before.copy()
    native.test_gemm(rows, width, k, a.ctypes.data, b.ctypes.data, chain.ctypes.data, 4 * columns, values)
    arguments = (k, a.ctypes.data, b.ctypes.data, c.ctypes.data, c_stride, epilogue.ctypes.data)
    arrays.call(what, kernel.function, *arguments)
    assert not first_difference(c, chain), f"{what}: not one chain of sums: {first_difference(c, chain)}"

    a64, b64 = a.astype(np.float64), b.astype(np.float64)[:, :columns]
    exact, magnitude = a64.T @ b64, np.abs(a64.T) @ np.abs(b64)
    if tail.accumulate:
        exact, magnitude = exact + before, magnitude + np.abs(before)
    exact, magnitude = exact * tail.scale, magnitude * abs(tail.scale)
    if row_bias is not None:
        exact, magnitude = exact + row_bias[:, None], magnitude + np.abs(row_bias[:, None])
    if column_bias is not None:
        exact, magnitude = exact + column_bias, magnitude + np.abs(column_bias)
    # k roundings in the chain, then one each for the sum with C, the scale and the biases.
    error = error_measure(c, exact, magnitude)
    assert error <= min(chain_bound(k + 4), CHANCE_ERROR), f"{what}: error {error}"


def gemm_cases(width: int) -> Iterator[tuple[int, int, Tail]]:
    """Columns, k and tail: each k with each number of columns and some tail, each tail with each number of columns."""
    for columns in range(1, width + 1):
        for k in range(41):
            yield columns, k, TAILS[(columns * 5 + k) % len(TAILS)]
        for tail in TAILS:
            yield columns, 11, tail
        for k in (63, 64, 65, 101, 127, 257, 400):
            yield columns, k, TAILS[(columns + k) % len(TAILS)]


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", kernels_of("gemm"))
def test_gemm(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    for columns, k, tail in gemm_cases(kernel.columns):
        with guards(flush) as arrays:
            check_gemm(kernel, arrays, rng, columns, k, (0, 1, 3, 17, 64)[(columns + k) % 5], tail)


@pytest.mark.parametrize("kernel", kernels_of("gemm"))
def test_gemm_keeps_denormals(kernel: native.Kernel) -> None:
    """Nothing is flushed to zero: 2^-140 times 1, and 2^-70 times 2^-70."""
    for left, right in ((2.0**-140, 1.0), (2.0**-70, 2.0**-70)):
        a = np.full((1, kernel.rows), left, np.float32)
        b = np.full((1, kernel.columns), right, np.float32)
        with guards(Flush.END) as arrays:
            c = arrays.array("c", (kernel.rows, kernel.columns))
            epilogue = native.Epilogue(None, None, kernel.columns, 0, 1.0)
            addresses = (a.ctypes.data, b.ctypes.data, c.ctypes.data)
            arrays.call(kernel.name, kernel.function, 1, *addresses, 4 * kernel.columns, ctypes.addressof(epilogue))
            assert np.all(c == np.float32(2.0**-140))


# ---- pack ----

SOURCE_BITS: dict[str, Any] = {"f32": np.dtype("u4"), "f16": np.dtype("u2"), "bf16": np.dtype("u2")}


def widened(kernel_type: str, source: NDArray[Any]) -> NDArray[Any]:
    """The bits of the float32 that is the same number as each source element."""
    wide = source.astype(np.uint32)
    if kernel_type == "f32":
        return wide
    if kernel_type == "bf16":
        return wide << 16
    sign, exponent, fraction = wide >> 15 << 31, wide >> 10 & 31, wide & 1023
    normal = (exponent + 112) << 23 | fraction << 13
    special = np.uint32(255) << 23 | fraction << 13
    denormal = bits((fraction * 2.0**-24).astype(np.float32))
    return sign | np.where(exponent == 0, denormal, np.where(exponent == 31, special, normal))


def quieted(values: NDArray[Any]) -> NDArray[Any]:
    """With every NaN made quiet: the processor's conversion from f16 does that, a conversion by shifts does not."""
    nan = (values & 0x7FFFFFFF) > 0x7F800000
    return values | np.where(nan, np.uint32(1 << 22), np.uint32(0))


def check_pack(kernel: native.Kernel, arrays: Guards, source: NDArray[Any], stride: int) -> None:
    rows, k = source.shape
    what = f"{kernel.name} rows={rows} k={k} stride={stride} {arrays.flush}"
    src = arrays.strided("src", (rows, k), (stride, source.itemsize), source.dtype)
    src[...] = source
    dst = arrays.array("dst", (k, kernel.columns))
    arrays.call(what, kernel.function, k, rows, src.ctypes.data, stride, dst.ctypes.data)
    expected = np.zeros((k, kernel.columns), np.uint32)
    expected[:, :rows] = widened(kernel.type, source).T
    assert np.array_equal(quieted(bits(dst)), quieted(expected)), what


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", kernels_of("pack"))
def test_pack(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    dtype = SOURCE_BITS[kernel.type]
    for rows in range(1, kernel.columns + 1):
        for k in (*range(41), 63, 65, 100, 257):
            tight = k * dtype.itemsize
            strides = (tight, tight + 1, tight + dtype.itemsize, -tight, -tight - 3, tight + 68, 0)
            for stride in strides[(rows + k) % 2 :: 2]:
                # Any bit pattern is an element: denormals, infinities and NaNs come up.
                source = rng.integers(0, 2 ** (8 * dtype.itemsize), (rows, k), dtype)
                if stride == 0:
                    source[...] = source[:1]
                with guards(flush) as arrays:
                    check_pack(kernel, arrays, source, stride)


@pytest.mark.parametrize("kernel", kernels_of("pack", ("f16", "bf16")))
def test_pack_of_every_element(kernel: native.Kernel) -> None:
    """Each of the values that 16 bits can have."""
    with guards(Flush.END) as arrays:
        source = np.arange(65536, dtype=np.uint16)
        check_pack(kernel, arrays, source.reshape(1, -1), 0)


# ---- pack_patches ----


def check_pack_patches(
    kernel: native.Kernel,
    arrays: Guards,
    rng: np.random.Generator,
    channels: int,
    gap: int,
    dst_gap: int,
    thorough: bool,
) -> None:
    """Each lane is taken from the first segment of its group, from the second, or is 0. In images the lanes of a
    segment are side by side; a kernel that is right for any lanes is simpler to be sure of (thorough)."""
    groups = kernel.columns // 8
    if thorough:
        choice = rng.integers(0, 3, (groups, 8))
    else:
        starts = np.sort(rng.integers(0, 9, (groups, 4)), axis=1)
        number = np.arange(8)
        first = (starts[:, :1] <= number) & (number < starts[:, 1:2])
        second = (starts[:, 2:3] <= number) & (number < starts[:, 3:])
        choice = np.where(first, 0, np.where(second, 1, 2))

    patches = native.Patches()
    expected = np.zeros((channels, kernel.columns), np.float32)
    channel_stride = 4 * (8 + gap)
    for group, side in product(range(groups), range(2)):
        lanes = np.flatnonzero(choice[group] == side)
        index = 2 * group + side
        if not lanes.size or not channels:
            patches.segment[index] = 8  # nobody's memory, and nothing may be read there
            continue
        first_lane, span = int(lanes[0]), int(lanes[-1] - lanes[0] + 1)
        source = arrays.strided(f"segment {index}", (channels, span), (channel_stride, 4))
        source[...] = rng.standard_normal((channels, span), np.float32)
        patches.segment[index] = source.ctypes.data - 4 * first_lane
        for lane in lanes:
            patches.mask[index][lane] = -1
            expected[:, 8 * group + lane] = source[:, lane - first_lane]
    dst_stride = 4 * (kernel.columns + dst_gap)
    dst = arrays.strided("dst", (channels, kernel.columns), (dst_stride, 4))
    what = f"{kernel.name} channels={channels} gap={gap} lanes={choice.tolist()} {arrays.flush}"
    structure = arrays.copy("patches", np.frombuffer(bytes(patches), np.uint8))
    addresses = (structure.ctypes.data, channel_stride, dst.ctypes.data, dst_stride)
    arrays.call(what, kernel.function, channels, *addresses)
    assert not first_difference(dst, expected), f"{what}: {first_difference(dst, expected)}"


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", kernels_of("pack_patches"))
def test_pack_patches(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    for channels in (*range(20), 33, 64, 130):
        for gap, dst_gap in ((0, 0), (3, 0), (61, 5)):
            for thorough in (False, False, True):
                with guards(flush) as arrays:
                    check_pack_patches(kernel, arrays, rng, channels, gap, dst_gap, thorough)


# ---- probe ----


@pytest.mark.parametrize("rounds", [1, 2, 1000])
@pytest.mark.parametrize("kernel", kernels_of("probe"))
def test_probe(kernel: native.Kernel, rounds: int) -> None:
    if kernel.features & native.TILES and not native.sdgen_request_tiles():
        pytest.skip("the system does not let this process use AMX's tiles")
    Guards(Flush.END).call(kernel.name, kernel.function, rounds)
