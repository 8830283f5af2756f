"""Every kernel of products of few rows, called through the trampoline with its arrays between guard pages."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import Structure, c_float, c_int64, c_void_p
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gen import contract, isa
from tests import sdgen_native as native
from tests.exact import UNIT, bits, chain_bound, error_measure, first_difference
from tests.guarded import Flush, Guards, guards
from tests.operations import CHANCE_ERROR
from tests.sdgen_native import Level
from tests.test_kernels import SOURCE_BITS, kernels_of, widened


class DotOutput(Structure):
    _fields_ = [("c", c_void_p), ("c_stride", c_int64), ("column_bias", c_void_p), ("scale", c_float)]


@dataclass(frozen=True)
class Case:
    """A call: the elements between the rows of x, w and c beyond their length, the scale, whether there is a bias."""

    k: int
    gaps: tuple[int, int, int] = (0, 0, 0)
    scale: float = 1.0
    bias: bool = False


def rounded(kernel: native.Kernel, values: NDArray[Any]) -> NDArray[Any]:
    """The bits of the values in the type of w."""
    if kernel.type == "f16":
        return bits(values.astype(np.float16))
    wide = bits(values.astype(np.float32))
    return wide if kernel.type == "f32" else (wide >> 16).astype(np.uint16)


def read(kernel: native.Kernel, w: NDArray[Any]) -> NDArray[np.float32]:
    """Elements of w in single precision."""
    return widened(kernel.type, w).astype(np.uint32).view(np.float32)


def spread(arrays: Guards, name: str, values: NDArray[Any], gap: int) -> NDArray[Any]:
    """The values as rows with a gap of so many elements between them; below 0: rows that go backwards."""
    rows, k = values.shape
    stride = values.itemsize * (k + gap if gap >= 0 else gap - k)
    array = arrays.strided(name, (rows, k), (stride, values.itemsize), values.dtype)
    array[...] = values
    return array


def call(
    kernel: native.Kernel, arrays: Guards, case: Case, x: NDArray[Any], w: NDArray[Any], bias: NDArray[Any] | None
) -> NDArray[Any]:
    """C of these rows of x and of w, which are bits of w's type."""
    x_gap, w_gap, c_gap = case.gaps
    x, w = spread(arrays, "x", x, x_gap), spread(arrays, "w", w, w_gap)
    bias = None if bias is None else arrays.copy("column_bias", bias)
    c = arrays.strided("c", (kernel.rows, kernel.columns), (4 * (kernel.columns + c_gap), 4))
    addresses = (c.ctypes.data, c.strides[0], None if bias is None else bias.ctypes.data)
    output = arrays.copy("output", np.frombuffer(bytes(DotOutput(*addresses, case.scale)), np.uint8))
    strides = (x.strides[0], w.strides[0])
    arguments = (case.k, x.ctypes.data, strides[0], w.ctypes.data, strides[1], output.ctypes.data)
    arrays.call(f"{kernel.name} {case} {arrays.flush}", kernel.function, *arguments)
    return c


def lanes_of(kernel: native.Kernel) -> int:
    """Lanes of a vector; of the C form, whose order of sums is its own, one."""
    return 1 if kernel.level == Level.C else isa.LEVELS[native.level_name(kernel.level)].lanes


def chains_of(kernel: native.Kernel) -> int:
    """Sums of vectors that each element of C has."""
    if kernel.level == Level.C:
        return 1
    most = isa.LEVELS[native.level_name(kernel.level)].vector_registers // 2
    return next((n for n in (4, 2) if kernel.rows * kernel.columns * n <= most), 1)


def in_order(kernel: native.Kernel, x: NDArray[Any], w: NDArray[Any]) -> NDArray[np.float32]:
    """The sums in the order that the kernel's banner tells: vectors in turn to chains, what is left to the first."""
    k, lanes, chains = x.shape[1], lanes_of(kernel), chains_of(kernel)
    parts = [(vector % chains, lanes * vector, lanes) for vector in range(k // lanes)]
    place = k // lanes * lanes
    for count in (4, 2, 1) if lanes == 8 else (k - place,):
        if k - place >= count > 0:
            parts.append((0, place, count))
            place += count
    chain_sums = []
    for chain in range(chains):
        mine = [(start, count) for owner, start, count in parts if owner == chain]
        sums = np.zeros((kernel.rows, kernel.columns, lanes), np.float32)
        for lane, (i, j) in product(range(lanes), np.ndindex(kernel.rows, kernel.columns)):
            places = np.array([start + lane for start, count in mine if lane < count], np.intp)
            a, b = (np.ascontiguousarray(values[places]) for values in (x[i], w[j]))
            where = sums[i, j, lane : lane + 1]
            epilogue = native.Epilogue(None, None, 1, 0, 1.0)
            native.test_gemm(1, 1, len(places), a.ctypes.data, b.ctypes.data, where.ctypes.data, 4, epilogue)
        chain_sums.append(sums)
    while len(chain_sums) > 1:
        chain_sums = [first + second for first, second in zip(chain_sums[::2], chain_sums[1::2], strict=True)]
    total = chain_sums[0]
    if lanes == 16:
        total = total[..., :8] + total[..., 8:]
    for _ in range(3):
        total = total[..., ::2] + total[..., 1::2]
    return np.ascontiguousarray(total[..., 0])


def check_dot(
    kernel: native.Kernel, arrays: Guards, rng: np.random.Generator, case: Case, exactly: bool = False
) -> None:
    """Random rows, compared with float64; `exactly`: with the order of the sums as well."""
    what = f"{kernel.name} {case} {arrays.flush}"
    x = rng.standard_normal((kernel.rows, case.k), np.float32)
    w = rounded(kernel, rng.standard_normal((kernel.columns, case.k), np.float32))
    bias = rng.standard_normal(kernel.columns, np.float32) if case.bias else None
    c = call(kernel, arrays, case, x, w, bias)

    x64, w64 = x.astype(np.float64), read(kernel, w).astype(np.float64)
    exact, magnitude = x64 @ w64.T * case.scale, np.abs(x64) @ np.abs(w64).T * abs(case.scale)
    if bias is not None:
        exact, magnitude = exact + bias, magnitude + np.abs(bias)
    # The longest chain: a lane's vectors, three parts; two sums of chains, four of lanes, then the scale and the bias.
    error = error_measure(c, exact, magnitude)
    assert error <= min(chain_bound(case.k // lanes_of(kernel) + 11), CHANCE_ERROR), f"{what}: error {error}"

    if exactly and kernel.level != Level.C:
        expected = in_order(kernel, x, read(kernel, w)) * np.float32(case.scale)
        if bias is not None:
            expected = expected + bias
        assert not first_difference(c, expected), f"{what}: another order: {first_difference(c, expected)}"


GAPS = ((0, 0, 0), (1, 3, 1), (-1, 0, 5), (0, -1, 0), (17, 31, 64), (-3, -2, 3))
LENGTHS = (*range(70), 95, 96, 97, 127, 129, 159, 200, 257, 320, 1000)


def dot_cases() -> Iterator[Case]:
    """Each length with and without a bias and a scale, with some gaps."""
    for k in LENGTHS:
        for n, (scale, bias) in enumerate(product((1.0, -0.375), (False, True))):
            yield Case(k, GAPS[(k + n) % len(GAPS)], scale, bias)


every_kernel = pytest.mark.parametrize("kernel", kernels_of("dot"))


@pytest.mark.parametrize("flush", Flush)
@every_kernel
def test_dot(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    for case in dot_cases():
        with guards(flush) as arrays:
            check_dot(kernel, arrays, rng, case)


@every_kernel
def test_order_of_sums(kernel: native.Kernel, rng: np.random.Generator) -> None:
    """As the banner tells it, bit for bit."""
    for k in (0, 1, 7, 8, 15, 16, 23, 31, 40, 64, 77, 127, 150):
        with guards(Flush.END) as arrays:
            check_dot(kernel, arrays, rng, Case(k, scale=-0.375, bias=True), exactly=True)


@every_kernel
def test_many_short_chains(kernel: native.Kernel, rng: np.random.Generator) -> None:
    """As exact as so many sums are expected to be.

    Products of one sign: each of s sums has k / s summands and grows evenly, so that its relative error has a standard
    deviation near UNIT sqrt(k / s) / 3, that of all together one that is smaller by sqrt(s): UNIT sqrt(k) / 3 s."""
    sums = lanes_of(kernel) * chains_of(kernel)
    for k in (4096, 16384):
        signs = rng.choice((-1, 1), (kernel.rows, k))
        ones = np.ones((kernel.rows, k))
        for sign, most in ((signs, 2 * UNIT), (ones, (4 * k**0.5 / 3 / sums + 2) * UNIT)):
            x = (sign * rng.random((kernel.rows, k))).astype(np.float32)
            w = rounded(kernel, rng.random((kernel.columns, k), np.float32))
            with guards(Flush.END) as arrays:
                c = call(kernel, arrays, Case(k), x, w, None)
                x64, w64 = x.astype(np.float64), read(kernel, w).astype(np.float64)
                assert error_measure(c, x64 @ w64.T, np.abs(x64) @ w64.T) <= most


@every_kernel
def test_every_place_of_a_tile_is_summed_alike(kernel: native.Kernel, rng: np.random.Generator) -> None:
    for k in (3, 40, 77, 333):
        x = np.repeat(rng.standard_normal((1, k), np.float32), kernel.rows, axis=0)
        w = np.repeat(rounded(kernel, rng.standard_normal((1, k), np.float32)), kernel.columns, axis=0)
        with guards(Flush.END) as arrays:
            c = call(kernel, arrays, Case(k), x, w, None)
            assert len(set(bits(c).ravel().tolist())) == 1


@every_kernel
def test_every_element_of_a_row_counts_once(kernel: native.Kernel) -> None:
    """An infinity stays one: no element is taken twice, and none is multiplied by what is not its own."""
    for k in (*range(1, 40), 64, 100):
        for place in {0, k // 2, max(k - 9, 0), max(k - 2, 0), k - 1}:
            x, w = np.ones((kernel.rows, k), np.float32), np.ones((kernel.columns, k))
            w[:, place] = np.inf
            with guards(Flush.END) as arrays:
                assert np.all(call(kernel, arrays, Case(k), x, rounded(kernel, w), None) == np.inf)
            w[:, place] = 2
            with guards(Flush.END) as arrays:
                assert np.all(call(kernel, arrays, Case(k), x, rounded(kernel, w), None) == k + 1)


@every_kernel
def test_dot_keeps_denormals(kernel: native.Kernel) -> None:
    """Nothing is flushed to zero: 2^-126 times 2^-14, 2^-116 times 2^-24, which is denormal in half precision."""
    for left, right in ((2.0**-126, 2.0**-14), (2.0**-116, 2.0**-24), (2.0**-140, 1.0)):
        for k in (1, 2, 4, 16):
            x = np.full((kernel.rows, k), left, np.float32)
            w = rounded(kernel, np.full((kernel.columns, k), right))
            with guards(Flush.END) as arrays:
                assert np.all(call(kernel, arrays, Case(k), x, w, None) == np.float32(k * 2.0**-140))


@pytest.mark.parametrize("kernel", kernels_of("dot", ("f16", "bf16")))
def test_dot_of_every_exponent(kernel: native.Kernel) -> None:
    """Zeros, denormals, infinities and NaNs as well: each alone in its row, times 1."""
    mantissa = 10 if kernel.type == "f16" else 7
    every = np.array(
        [high << mantissa | low for high in range(1 << 16 - mantissa) for low in (0, 1, 5, (1 << mantissa) - 1)],
        SOURCE_BITS[kernel.type],
    )
    for w in every.reshape(-1, kernel.columns, 1):
        expected = np.tile(read(kernel, w).T, (kernel.rows, 1))
        with guards(Flush.END) as arrays:
            c = call(kernel, arrays, Case(1), np.ones((kernel.rows, 1), np.float32), w, None)
            assert np.array_equal(c, expected, equal_nan=True)


def test_output_structure_is_the_contracts() -> None:
    for _, name, _ in contract.DOT_OUTPUT.fields:
        assert getattr(DotOutput, name).offset == contract.DOT_OUTPUT.offset(name)
