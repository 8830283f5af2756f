"""The transforms of Winograd's convolution and the product that goes with them, between guard pages."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_float, c_int32, c_int64, c_void_p
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gen import contract
from gen.winograd.matrices import Matrix, algorithm_of
from tests import sdgen_native as native
from tests.exact import chain_bound, error_measure, first_difference
from tests.guarded import Flush, Guards, guards
from tests.test_kernels import Tail, gemm_cases, kernels_of

# Roundings that a summand goes through in one dimension: its constant's and each step's, five at most.
ROUNDINGS = 2 * 6

PANEL = 16  # tiles or output channels side by side


class WinogradInput(Structure):
    _fields_ = [
        ("x", c_void_p * 4),
        ("row_stride", c_int64),
        ("channel_stride", c_int64),
        ("channels", c_int64),
        ("dst", c_void_p),
        ("tap_stride", c_int64),
        ("dst_channel_stride", c_int64),
        ("masked", c_int64),
        ("load_mask", ((c_int32 * 4) * 4) * 8),
        ("row_mask", ((c_int32 * 4) * 4) * 6),
    ]


class WinogradOutput(Structure):
    _fields_ = [
        ("src", c_void_p),
        ("tap_stride", c_int64),
        ("src_channel_stride", c_int64),
        ("channels", c_int64),
        ("y", c_void_p * 4),
        ("row_stride", c_int64),
        ("channel_stride", c_int64),
        ("bias", c_void_p),
        ("rows", c_int32 * 4),
        ("columns", c_int32 * 4),
        ("scale", c_float),
    ]


def float64(matrix: Matrix) -> NDArray[np.float64]:
    return np.array([[float(x) for x in row] for row in matrix])


def both_ways(matrix: NDArray[np.float64], x: NDArray[Any]) -> NDArray[np.float64]:
    """M x M^T over the first two dimensions."""
    result: NDArray[np.float64] = np.einsum("ai,bj,ij...->ab...", matrix, matrix, x.astype(np.float64))
    return result


def check_close(what: str, result: NDArray[Any], matrix: NDArray[np.float64], x: NDArray[Any]) -> None:
    error = error_measure(result, both_ways(matrix, x), both_ways(np.abs(matrix), np.abs(x)))
    assert error <= chain_bound(ROUNDINGS), f"{what}: error {error}"


@pytest.mark.parametrize(
    ("structure", "struct"),
    [(WinogradInput, contract.WINOGRAD_INPUT), (WinogradOutput, contract.WINOGRAD_OUTPUT)],
)
def test_structures_are_the_contracts(structure: type[Structure], struct: contract.Struct) -> None:
    offsets = {name: getattr(structure, name).offset for name, *_ in structure._fields_}
    assert offsets == {name: struct.offset(name) for _, name, _ in struct.fields}


# ---- input ----


def load_places(m: int, t: int) -> dict[int, int]:
    """Where each load of a row is, in pixels."""
    if t == 3:
        return {load: load for load in range(3)}
    more = {2: {}, 3: {4 + tile: 3 * tile + 4 for tile in range(4)}, 4: {4: 16}}
    return {load: m * load for load in range(4)} | more[m]


def check_input(
    kernel: native.Kernel, arrays: Guards, rng: np.random.Generator, channels: int, gap: int, masked: bool
) -> None:
    """Each quad is an image of its own, of which some rows at the top and bottom and some neighbours to the left and
    right do not exist."""
    m, quads, algorithm = kernel.rows, kernel.columns // 4, algorithm_of(kernel.operation, kernel.rows)
    t, step = algorithm.t, m if algorithm.t > 3 else 1
    places = load_places(m, algorithm.t)
    width = max(places.values()) + 4
    argument = WinogradInput(channels=channels, masked=int(masked))
    argument.row_stride = 4 * (width + gap)
    argument.channel_stride = argument.row_stride * (t + gap)
    d = np.zeros((t, t, channels, 4 * quads), np.float32)
    for quad in range(quads):
        (top, bottom), (left, right) = (0, t), (0, width)
        if masked:
            top, left = (int(x) for x in rng.integers(0, (t + 1, width + 1)))
            bottom, right = int(rng.integers(top, t + 1)), int(rng.integers(left, width + 1))
        for row in range(t):
            argument.row_mask[row][quad][:] = [-int(top <= row < bottom)] * 4
        for load, lane in product(places, range(4)):
            argument.load_mask[load][quad][lane] = -int(left <= places[load] + lane < right)
        image = np.zeros((channels, t, width), np.float32)
        shape = (channels, bottom - top, right - left)
        argument.x[quad] = 8  # nobody's memory
        if all(shape):
            source = arrays.strided(f"x[{quad}]", shape, (argument.channel_stride, argument.row_stride, 4))
            source[...] = image[:, top:bottom, left:right] = rng.standard_normal(shape, np.float32)
            argument.x[quad] = source.ctypes.data - top * argument.row_stride - 4 * left
        for tile in range(4):
            d[..., 4 * quad + tile] = image[:, :, step * tile : step * tile + t].transpose(1, 2, 0)
    argument.dst_channel_stride = 4 * (kernel.columns + PANEL * gap)
    argument.tap_stride = argument.dst_channel_stride * (channels + gap)
    strides = (t * argument.tap_stride, argument.tap_stride, argument.dst_channel_stride, 4)
    dst = arrays.strided("dst", (t, t, channels, 4 * quads), strides)
    argument.dst = dst.ctypes.data
    structure = arrays.copy("input", np.frombuffer(bytes(argument), np.uint8))
    what = f"{kernel.name} channels={channels} gap={gap} masked={masked} {arrays.flush}"
    arrays.call(what, kernel.function, structure.ctypes.data)
    check_close(what, dst, float64(algorithm.bt), d)


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", [*kernels_of("winograd_input"), *kernels_of("winograd_input_up")])
def test_input(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    for channels, gap, masked in product((0, 1, 2, 3, 7, 20), (0, 1, 5), (0, 1, 1, 1, 1, 1, 1)):
        with guards(flush) as arrays:
            check_input(kernel, arrays, rng, channels, gap, bool(masked))


# ---- weights ----


def check_weights(kernel: native.Kernel, arrays: Guards, rng: np.random.Generator, channels: int, gap: int) -> None:
    algorithm = algorithm_of(kernel.operation, kernel.rows)
    t = algorithm.t
    src = arrays.copy("src", rng.standard_normal((channels, 3, 3, PANEL), np.float32))
    tap_stride = 4 * PANEL * (channels + gap)
    dst = arrays.strided("dst", (t, t, channels, PANEL), (t * tap_stride, tap_stride, 4 * PANEL, 4))
    what = f"{kernel.name} channels={channels} gap={gap} {arrays.flush}"
    arrays.call(what, kernel.function, channels, src.ctypes.data, dst.ctypes.data, tap_stride)
    check_close(what, dst, float64(algorithm.g), src.transpose(1, 2, 0, 3))


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", [*kernels_of("winograd_weights"), *kernels_of("winograd_weights_up")])
def test_weights(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    for channels, gap in product((0, 1, 2, 3, 17, 64), (0, 1, 5)):
        with guards(flush) as arrays:
            check_weights(kernel, arrays, rng, channels, gap)


# ---- output ----


def check_output(
    kernel: native.Kernel, arrays: Guards, rng: np.random.Generator, channels: int, gap: int, full: bool, bias: bool
) -> None:
    m, quads, algorithm = kernel.rows, kernel.columns // 4, algorithm_of(kernel.operation, kernel.rows)
    t = algorithm.t
    argument = WinogradOutput(channels=channels, scale=1.0 if full else -0.375)
    argument.src_channel_stride = 4 * (PANEL + gap)
    argument.tap_stride = argument.src_channel_stride * (channels + gap)
    strides = (t * argument.tap_stride, argument.tap_stride, argument.src_channel_stride, 4)
    src = arrays.strided("src", (t, t, channels, 4 * quads), strides)
    src[...] = rng.standard_normal(src.shape, np.float32)
    argument.src = src.ctypes.data
    terms = np.zeros(channels, np.float32)
    if bias:
        terms = arrays.copy("bias", rng.standard_normal(channels, np.float32))
        argument.bias = terms.ctypes.data
    argument.row_stride = 4 * (4 * m + gap)
    argument.channel_stride = argument.row_stride * (m + gap)
    images = []
    for quad in range(quads):
        rows, columns = (m, 4 * m) if full else (int(rng.integers(0, most + 1)) for most in (m, 4 * m))
        argument.rows[quad], argument.columns[quad] = rows, columns
        strides3 = (argument.channel_stride, argument.row_stride, 4)
        images.append(arrays.strided(f"y[{quad}]", (channels, rows, columns), strides3))
        argument.y[quad] = images[-1].ctypes.data if images[-1].size else 8
    structure = arrays.copy("output", np.frombuffer(bytes(argument), np.uint8))
    what = f"{kernel.name} channels={channels} gap={gap} {list(argument.rows)} {list(argument.columns)} {arrays.flush}"
    arrays.call(what, kernel.function, structure.ctypes.data)
    at = float64(algorithm.at)
    exact = both_ways(at, src) * argument.scale + terms[:, None].astype(np.float64)
    magnitude = both_ways(np.abs(at), np.abs(src)) * abs(argument.scale) + np.abs(terms[:, None])
    for quad, image in enumerate(images):

        def side_by_side(tiles: NDArray[np.float64], quad: int = quad, shape: Any = image.shape) -> NDArray[np.float64]:
            row: NDArray[np.float64] = tiles[..., 4 * quad : 4 * quad + 4].transpose(2, 0, 3, 1)
            return row.reshape(channels, m, 4 * m)[:, : shape[1], : shape[2]]

        error = error_measure(image, side_by_side(exact), side_by_side(magnitude))
        assert error <= chain_bound(ROUNDINGS + 1), f"{what}: quad {quad}, error {error}"


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", [*kernels_of("winograd_output"), *kernels_of("winograd_output_up")])
def test_output(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    cases = product((0, 1, 2, 3, 16), (0, 1, 5), (True, *[False] * 8), (False, True))
    for channels, gap, full, bias in cases:
        with guards(flush) as arrays:
            check_output(kernel, arrays, rng, channels, gap, full, bias)


# ---- gemm16 ----


def check_gemm16(
    kernel: native.Kernel, arrays: Guards, rng: np.random.Generator, columns: int, k: int, tail: Tail
) -> None:
    """The same bits as the product whose panel of A has no more rows than it uses."""
    rows, width = kernel.rows, kernel.columns
    a = arrays.strided("a", (k, rows), (4 * PANEL, 4))
    a[...] = rng.standard_normal((k, rows), np.float32)
    b = arrays.copy("b", rng.standard_normal((k, width), np.float32))
    row_bias = arrays.copy("row_bias", rng.standard_normal(rows, np.float32)) if tail.row_bias else None
    column_bias = arrays.copy("column_bias", rng.standard_normal(columns, np.float32)) if tail.column_bias else None
    c = arrays.array("c", (rows, columns))
    if tail.accumulate:
        c[...] = rng.standard_normal((rows, columns), np.float32)
    epilogue = native.Epilogue(
        None if row_bias is None else row_bias.ctypes.data,
        None if column_bias is None else column_bias.ctypes.data,
        *(columns, int(tail.accumulate), tail.scale),
    )
    structure = arrays.copy("epilogue", np.frombuffer(bytes(epilogue), np.uint8))
    packed, expected = np.ascontiguousarray(a), c.copy()
    native.test_gemm(rows, width, k, packed.ctypes.data, b.ctypes.data, expected.ctypes.data, 4 * columns, epilogue)
    what = f"{kernel.name} columns={columns} k={k} {tail} {arrays.flush}"
    addresses = (a.ctypes.data, b.ctypes.data, c.ctypes.data)
    arrays.call(what, kernel.function, k, *addresses, 4 * columns, structure.ctypes.data)
    assert not first_difference(c, expected), f"{what}: {first_difference(c, expected)}"


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", kernels_of("gemm16"))
def test_gemm16(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    for columns, k, tail in gemm_cases(kernel.columns):
        if k < 20 or k % 64 < 2:
            with guards(flush) as arrays:
                check_gemm16(kernel, arrays, rng, columns, k, tail)


# ---- all of them together ----


def run(kernel: native.Kernel, *arguments: int) -> None:
    Guards(Flush.END).call(kernel.name, kernel.function, *arguments)


def find(operation: str, level: native.Level, m: int) -> native.Kernel:
    return next(k for k in native.kernels() if (k.operation, k.level, k.rows) == (operation, level, m))


@pytest.mark.parametrize("kernel", [*kernels_of("winograd_input"), *kernels_of("winograd_input_up")])
def test_convolution(kernel: native.Kernel, rng: np.random.Generator) -> None:
    """The transforms fit together: with small integers and products in float64, the convolution is all but exact."""
    m, lanes, channels = kernel.rows, kernel.columns, 5
    t = algorithm_of(kernel.operation, m).t
    x = rng.integers(-3, 4, (lanes // 4, channels, t, 5 * m + 4)).astype(np.float32)
    g = rng.integers(-3, 4, (channels, 3, 3, PANEL)).astype(np.float32)
    v, u = np.zeros((t, t, channels, PANEL), np.float32), np.zeros((t, t, channels, PANEL), np.float32)
    argument = WinogradInput(row_stride=x.strides[2], channel_stride=x.strides[1], channels=channels)
    argument.tap_stride, argument.dst_channel_stride = v.strides[1:3]
    argument.x[: len(x)] = [image.ctypes.data for image in x]
    argument.dst = v.ctypes.data
    run(kernel, ctypes.addressof(argument))
    weights, output_transform = (
        find(kernel.operation.replace("input", name), kernel.level, m) for name in ("weights", "output")
    )
    run(weights, channels, g.ctypes.data, u.ctypes.data, u.strides[1])
    taps = np.einsum("abco,abcl->abol", u.astype(np.float64), v.astype(np.float64)).astype(np.float32)
    y = np.full((lanes // 4, PANEL, m, 4 * m), np.nan, np.float32)
    output = WinogradOutput(
        src=taps.ctypes.data, tap_stride=taps.strides[1], src_channel_stride=taps.strides[2], channels=PANEL, scale=1.0
    )
    output.row_stride, output.channel_stride = y.strides[2], y.strides[1]
    output.y[: len(y)] = [image.ctypes.data for image in y]
    output.rows[:], output.columns[:] = [m] * 4, [4 * m] * 4
    run(output_transform, ctypes.addressof(output))
    if t == 3:
        # of the doubled image, the pixel before the first output's and those that follow
        x = x.repeat(2, axis=2).repeat(2, axis=3)[:, :, 1:, 1:]
    patches = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, :m, : 4 * m]
    exact = np.einsum("qcyxij,cijo->qoyx", patches.astype(np.float64), g.astype(np.float64))
    assert np.max(np.abs(y - exact)) < 1e-4
