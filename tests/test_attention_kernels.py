"""The kernels of attention: scores and their exponentials, packing of rows, unpacking. Between guard pages."""

from __future__ import annotations

import ctypes
import re
from ctypes import Structure
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gen import contract
from gen.dsl.exponential import COEFFICIENTS, LEAST
from tests import sdgen_native as native
from tests.exact import bits, chain_bound, error_measure, first_difference
from tests.guarded import Flush, Guards, guards
from tests.test_kernels import SOURCE_BITS, kernels_of, quieted, widened

UNITS = 2  # in the last place, by which 2^x may be wrong
SMALLEST = 2.0**-126  # the smallest number that is no denormal
NOWHERE = 8  # nobody's memory


@pytest.mark.parametrize(("structure", "struct"), [(native.Scores, contract.SCORES), (native.Unpack, contract.UNPACK)])
def test_structures_are_the_contracts(structure: type[Structure], struct: contract.Struct) -> None:
    offsets = {name: getattr(structure, name).offset for name, *_ in structure._fields_}
    assert offsets == {name: struct.offset(name) for _, name, _ in struct.fields}


# ---- the polynomial ----


def units_off(result: NDArray[np.float32], exact: NDArray[np.float64]) -> float:
    """The largest error in units in the last place of the exact result."""
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(result.astype(np.float64) - exact) / unit))


def test_coefficients_are_those_of_the_portable_form() -> None:
    header = (native.REPOSITORY / "runtime/portable/exponential.h").read_text()
    found = re.findall(r"#define SDGEN_EXPONENTIAL_(\w+) (\S+)f$", header, re.MULTILINE)
    expected = {f"C{5 - place}": value for place, value in enumerate(COEFFICIENTS)} | {"LEAST": LEAST}
    assert {name: (float.fromhex if "x" in value else float)(value) for name, value in found} == expected


def test_polynomial() -> None:
    """Of single-precision coefficients, exact at 0, and within two units where it is evaluated with fused steps."""
    assert all(float(np.float32(value)) == value for value in COEFFICIENTS)
    assert COEFFICIENTS[-1] == 1
    r = np.linspace(-0.5, 0.5, 2**21 + 1).astype(np.float32)
    power = np.full_like(r, COEFFICIENTS[0])
    for value in COEFFICIENTS[1:]:
        # The product is exact in float64.
        power = (power.astype(np.float64) * r + value).astype(np.float32)
    assert units_off(power, np.exp2(r.astype(np.float64))) < UNITS


# ---- scores ----


@dataclass(frozen=True)
class Case:
    """What scores are asked for."""

    depth: int
    tiles: int = 1
    load: bool = False
    raw: bool = False
    bias: bool = False
    gap: int = 0  # numbers between tiles of keys
    chunk: int = 1000

    @property
    def roundings(self) -> int:
        """Of a summand, at most: those of its chain, and those of the sum of the chains."""
        return min(self.chunk, self.depth) + -(-self.depth // self.chunk)


def structure_in(arrays: Guards, values: Structure) -> int:
    """The address of a structure that lies between guard pages."""
    address: int = arrays.copy(type(values).__name__, np.frombuffer(bytes(values), np.uint8)).ctypes.data
    return address


def check_scores(kernel: native.Kernel, arrays: Guards, rng: np.random.Generator, case: Case) -> None:
    rows, width = kernel.rows, kernel.columns
    what = f"{kernel.name} {case} {arrays.flush}"
    shape = (case.tiles, rows, width)
    k_stride = 4 * (case.depth * rows + case.gap)
    k = arrays.strided("k", (case.tiles, case.depth, rows), (k_stride, 4 * rows, 4))
    k[...] = rng.standard_normal(k.shape, np.float32)
    q = arrays.copy("q", rng.standard_normal((case.depth, width), np.float32))
    p = arrays.array("p", shape)
    if case.load:
        p[...] = 4 * rng.standard_normal(shape, np.float32)
    k64, q64, before = k.astype(np.float64), q.astype(np.float64), np.nan_to_num(p.astype(np.float64))
    s = before + np.einsum("tci,cj->tij", k64, q64)
    magnitude = np.abs(before) + np.einsum("tci,cj->tij", np.abs(k64), np.abs(q64))

    scores = native.Scores(k_stride=k_stride, depth=case.depth, chunk=case.chunk, tiles=case.tiles)
    scores.load, scores.raw, scores.scale, scores.bias_scale = case.load, case.raw, 0.5, -1.5
    scores.k, scores.q, scores.p = (array.ctypes.data for array in (k, q, p))
    if case.raw:
        # Nothing of what makes exponentials is looked at.
        scores.bias = scores.shift = scores.sum = scores.maximum = NOWHERE
        arrays.call(what, kernel.function, structure_in(arrays, scores))
        error = error_measure(p, s, magnitude)
        assert error <= chain_bound(case.roundings), f"{what}: error {error}"
        return

    # From far below -126 to some way above 0.
    shift = arrays.copy("shift", rng.uniform(-10, 60, width).astype(np.float32))
    total = arrays.copy("sum", rng.uniform(0, 10, width).astype(np.float32))
    maximum = arrays.copy("maximum", rng.uniform(-200, 10, width).astype(np.float32))
    sum_before, maximum_before = total.astype(np.float64), maximum.astype(np.float64)
    terms = np.zeros(shape)
    if case.bias:
        bias = arrays.copy("bias", rng.uniform(-20, 100, shape).astype(np.float32))
        scores.bias, terms = bias.ctypes.data, bias.astype(np.float64) * -1.5
    scores.shift, scores.sum, scores.maximum = (array.ctypes.data for array in (shift, total, maximum))
    arrays.call(what, kernel.function, structure_in(arrays, scores))

    # A product passes the roundings of the chain, then, as the bias and the shift do, one of x; those of theirs before.
    x = s * 0.5 + terms - shift
    off = chain_bound(case.roundings + 2) * (magnitude * 0.5 + np.abs(terms) + np.abs(shift))
    relative = UNITS * 2.0**-23
    result = p.astype(np.float64)
    close = (result >= np.exp2(x - off) * (1 - relative)) & (result <= np.exp2(x + off) * (1 + relative))
    right = np.where(x + off < LEAST, result == 0, close | ((x - off < LEAST) & (result == 0)))
    wrong = np.argwhere(~right)
    assert not len(wrong), f"{what}: 2^{x[tuple(wrong[0])]} = {p[tuple(wrong[0])]} at {wrong[0]}"
    assert not np.any((p != 0) & (np.abs(p) < SMALLEST)), f"{what}: denormal"
    error = error_measure(total, sum_before + result.sum((0, 1)), sum_before + result.sum((0, 1)))
    assert error <= chain_bound(case.tiles * rows), f"{what}: error of the sum {error}"
    difference = np.abs(maximum - np.maximum(maximum_before, x.max((0, 1))))
    assert np.all(difference <= off.max((0, 1))), f"{what}: maximum off by {difference.max()}"


DEPTHS = (0, 1, 3, 4, 5, 8, 40, 41, 64)


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", kernels_of("scores"))
def test_scores(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    choices = product((False, True), repeat=3)
    for depth, tiles, (load, raw, bias) in product(DEPTHS, (1, 2, 5), choices):
        with guards(flush) as arrays:
            case = Case(
                depth, tiles, load, raw, bias, gap=(0, 3)[depth % 2], chunk=(1, 4, 7, 20, 1000)[(depth + tiles) % 5]
            )
            check_scores(kernel, arrays, rng, case)


def exponentials(
    kernel: native.Kernel, x: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """2^x of tiles [tiles][rows][width], with the panel's sum (from 0) and maximum (from -infinity)."""
    p = np.array(x, np.float32, order="C")
    total, shift = np.zeros((2, kernel.columns), np.float32)
    maximum = np.full(kernel.columns, -np.inf, np.float32)
    scores = native.Scores(p=p.ctypes.data, tiles=len(p), load=1, scale=1, bias_scale=1)
    scores.k = scores.q = NOWHERE
    scores.shift, scores.sum, scores.maximum = (array.ctypes.data for array in (shift, total, maximum))
    Guards(Flush.END).call(kernel.name, kernel.function, ctypes.addressof(scores))
    return p, total, maximum


def in_tiles(kernel: native.Kernel, x: NDArray[Any]) -> NDArray[np.float32]:
    """As many tiles as hold x, filled up with zeros."""
    size = kernel.rows * kernel.columns
    tiles = np.zeros((-(-len(x) // size), kernel.rows, kernel.columns), np.float32)
    tiles.reshape(-1)[: len(x)] = x
    return tiles


@pytest.mark.parametrize("kernel", kernels_of("scores"))
def test_exponential(kernel: native.Kernel, rng: np.random.Generator) -> None:
    """Densely, and around what is rounded to an integer and halfway between two."""
    halves = np.arange(2 * LEAST, 2 * 127 + 1).astype(np.float32) / 2
    around = [halves]
    for direction in (-np.inf, np.inf):
        near = halves
        for _ in range(8):
            near = np.nextafter(near, np.float32(direction))
            around.append(near)
    dense = np.linspace(LEAST, 127, 2**22).astype(np.float32)
    small = rng.standard_normal(2**16).astype(np.float32) * np.float32(2.0) ** rng.integers(-30, 2, 2**16)
    x = np.concatenate([dense, small, *around]).astype(np.float32)
    x = in_tiles(kernel, x[(x >= LEAST) & (x <= 127)])
    p, *_ = exponentials(kernel, x)
    error = units_off(p, np.exp2(x.astype(np.float64)))
    assert error <= UNITS, f"{kernel.name}: {error} units in the last place"

    whole = in_tiles(kernel, np.arange(LEAST, 128))
    assert np.array_equal(exponentials(kernel, whole)[0], np.exp2(whole.astype(np.float64)))


@pytest.mark.parametrize("kernel", kernels_of("scores"))
def test_exponential_of_what_is_far_below(kernel: native.Kernel) -> None:
    """0, not a denormal, from the first number below -126 on; the sum does not notice."""
    below = np.nextafter(np.float32(LEAST), np.float32(-np.inf))
    x = in_tiles(kernel, np.array([below, -126.5, -127, -149, -150, -1000, -1e9, -3e38, -np.inf] * 99))
    p, total, maximum = exponentials(kernel, x)
    assert np.array_equal(bits(p), bits(np.where(x == 0, np.float32(1), np.float32(0))))
    assert np.array_equal(total, (x == 0).sum((0, 1)))
    assert np.array_equal(maximum, x.max((0, 1)))


@pytest.mark.parametrize("kernel", kernels_of("scores"))
def test_exponential_of_nan(kernel: native.Kernel, rng: np.random.Generator) -> None:
    """It stays one, whatever its bits, also in the sum of its query; the maximum is that of the others."""
    x = rng.uniform(-130, 10, (3, kernel.rows, kernel.columns)).astype(np.float32)
    nan = rng.random(x.shape) < 0.1
    payloads = rng.integers(1, 1 << 22, x.shape, np.uint32) | rng.integers(0, 2, x.shape, np.uint32) << 31
    noisy = np.where(nan, bits(x) & 0 | payloads | 0x7FC00000, bits(x)).astype(np.uint32).view(np.float32)
    p, total, maximum = exponentials(kernel, noisy)
    clean, clean_total, _ = exponentials(kernel, x)
    assert np.array_equal(np.isnan(p), nan)
    assert np.array_equal(p[~nan], clean[~nan])
    touched = nan.any((0, 1))
    assert np.array_equal(np.isnan(total), touched)
    assert np.array_equal(total[~touched], clean_total[~touched])
    assert np.array_equal(maximum, np.where(nan, -np.inf, x).max((0, 1)))


@pytest.mark.parametrize("kernel", kernels_of("scores"))
def test_bias_of_minus_infinity(kernel: native.Kernel, rng: np.random.Generator) -> None:
    """The same bits as with a bias that is merely far below."""
    shape = (2, kernel.rows, kernel.columns)
    bias = rng.standard_normal(shape, np.float32)
    masked = rng.random(shape) < 0.5
    start = rng.standard_normal(shape, np.float32)
    results = []
    for least in (-np.inf, -1e30):
        with guards(Flush.END) as arrays:
            p = arrays.copy("p", start)
            biases = arrays.copy("bias", np.where(masked, np.float32(least), bias))
            shift = arrays.copy("shift", np.ones(kernel.columns, np.float32))
            total = arrays.copy("sum", np.zeros(kernel.columns, np.float32))
            maximum = arrays.copy("maximum", np.full(kernel.columns, -np.inf, np.float32))
            scores = native.Scores(tiles=2, load=1, scale=1, bias_scale=0.5, k=NOWHERE, q=NOWHERE)
            scores.p, scores.bias = p.ctypes.data, biases.ctypes.data
            scores.shift, scores.sum, scores.maximum = (array.ctypes.data for array in (shift, total, maximum))
            arrays.call(kernel.name, kernel.function, structure_in(arrays, scores))
            assert np.array_equal(bits(p) == 0, masked)
            results.append((p.copy(), total.copy(), np.where(masked.all((0, 1)), 0, maximum)))
    for left, right in zip(*results, strict=True):
        assert not first_difference(left, right)


# ---- pack_rows ----


def check_pack_rows(kernel: native.Kernel, arrays: Guards, source: NDArray[Any], stride: int) -> None:
    k, columns = source.shape
    what = f"{kernel.name} columns={columns} k={k} stride={stride} {arrays.flush}"
    src = arrays.strided("src", (k, columns), (stride, source.itemsize), source.dtype)
    src[...] = source
    dst = arrays.array("dst", (k, kernel.columns))
    arrays.call(what, kernel.function, k, columns, src.ctypes.data, stride, dst.ctypes.data)
    expected = np.zeros((k, kernel.columns), np.uint32)
    expected[:, :columns] = widened(kernel.type, source)
    assert np.array_equal(quieted(bits(dst)), quieted(expected)), what


def row_strides(tight: int, size: int) -> tuple[int, ...]:
    """Strides of rows side by side, apart, the wrong way round, of no whole elements, and of the same row."""
    return tight, tight + size, tight + 61, -tight, -tight - 3, 0


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", kernels_of("pack_rows"))
def test_pack_rows(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    dtype = SOURCE_BITS[kernel.type]
    for columns, k in product(range(1, kernel.columns + 1), (*range(10), 40, 41, 67)):
        for stride in row_strides(columns * dtype.itemsize, dtype.itemsize):
            # Any bit pattern is an element: denormals, infinities and NaNs come up.
            source = rng.integers(0, 2 ** (8 * dtype.itemsize), (k, columns), dtype)
            if stride == 0:
                source[...] = source[:1]
            with guards(flush) as arrays:
                check_pack_rows(kernel, arrays, source, stride)


@pytest.mark.parametrize("kernel", kernels_of("pack_rows", ("f16", "bf16")))
def test_pack_rows_of_every_element(kernel: native.Kernel) -> None:
    """Each of the values that 16 bits can have, in rows that are full and in rows that are not."""
    for columns in (16, 15, 8):
        source = np.resize(np.arange(65536, dtype=np.uint16), (-(-65536 // columns), columns))
        with guards(Flush.END) as arrays:
            check_pack_rows(kernel, arrays, source, 2 * columns)


# ---- unpack ----


def check_unpack(kernel: native.Kernel, arrays: Guards, rng: np.random.Generator, k: int, rows: int, gap: int) -> None:
    width = kernel.columns
    src_stride, dst_stride = 4 * (width + gap), 4 * (k + gap)
    src = arrays.strided("src", (k, width), (src_stride, 4))
    src[...] = rng.standard_normal(src.shape, np.float32)
    factor = arrays.copy("factor", rng.standard_normal(width, np.float32))
    dst = arrays.strided("dst", (rows, k), (dst_stride, 4))
    unpack = native.Unpack(src_stride=src_stride, dst_stride=dst_stride, k=k, rows=rows)
    unpack.src, unpack.factor, unpack.dst = (array.ctypes.data for array in (src, factor, dst))
    what = f"{kernel.name} k={k} rows={rows} gap={gap} {arrays.flush}"
    arrays.call(what, kernel.function, structure_in(arrays, unpack))
    difference = first_difference(dst, (src * factor).T[:rows])
    assert not difference, f"{what}: {difference}"


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", kernels_of("unpack"))
def test_unpack(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    for k, rows, gap in product((*range(26), 40, 64, 80, 160), range(1, kernel.columns + 1), (0, 1, 8, 56)):
        with guards(flush) as arrays:
            check_unpack(kernel, arrays, rng, k, rows, gap)
