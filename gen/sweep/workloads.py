"""What kernels are checked and timed with: everything in the first-level cache.

The error is |result - exact| as a part of the sum of the magnitudes of what was added up, the largest of all outputs,
the exact one being of double precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.native import Call, NativeKernel
from gen.native.arrays import element

Array = NDArray[Any]
Random = np.random.Generator

_UNIT = 2.0**-24  # of rounding to single precision
_TINY = 2.0**-149
_PAGE = 4096


@dataclass(frozen=True)
class Checked:
    """A result, how far it may be from the exact one, and how far it is."""

    error: float
    limit: float


@dataclass(frozen=True)
class Timed:
    """A call, and the floating-point operations that it makes, or else the bytes that it reads and writes."""

    call: Call
    amount: float


@dataclass(frozen=True)
class Workload:
    """What the kernels of an operation are checked and timed with.

    `unit` is FLOP, of which the loop of multiply-adds makes the peak, or B, of which copies in the cache do. `most` are
    the largest values of the parameters.
    """

    unit: str
    parameters: Mapping[str, int]
    check: Callable[[NativeKernel, Random, Mapping[str, int]], Iterator[Checked]]
    time: Callable[[NativeKernel, Random, Mapping[str, int]], Timed]
    most: Mapping[str, int] = field(default_factory=dict)


def aligned(values: Array, shift: int = 0) -> Array:
    """A copy that begins so many bytes after the beginning of a page, whatever the allocator does."""
    memory = np.empty(values.nbytes + 2 * _PAGE, np.uint8)
    start = -memory.ctypes.data % _PAGE + shift
    copy: Array = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def _normal(rng: Random, *shape: int) -> Array:
    return aligned(rng.standard_normal(shape, np.float32))


def _output(*shape: int) -> Array:
    return aligned(np.zeros(shape, np.float32), _PAGE // 2)


def _measure(result: Array, exact: Array, magnitude: Array) -> float:
    """The largest error; infinite where a result is no number."""
    error = np.maximum(np.abs(result.astype(np.float64) - exact) - _TINY, 0)
    quotient = np.divide(error, magnitude, out=np.where(error > 0, np.inf, 0.0), where=magnitude > 0)
    return float(np.max(np.where(np.isfinite(result), quotient, np.inf), initial=0))


def _chain(roundings: int) -> float:
    """The most that so many roundings may add up to."""
    return roundings * _UNIT / (1 - roundings * _UNIT)


# ---- gemm and gemm16 ----


def _panel(kernel: NativeKernel, rng: Random, k: int) -> Array:
    rows = kernel.spec.tile[0]
    return _normal(rng, k, 16)[:, :rows] if kernel.spec.operation == "gemm16" else _normal(rng, k, rows)


def _check_gemm(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Iterator[Checked]:
    rows, width = kernel.spec.tile
    for k, columns, accumulate in ((parameters["k"], width, False), (37, width, True), (41, width - 3, False)):
        a, b, c = _panel(kernel, rng, k), _normal(rng, k, width), _normal(rng, rows, columns)
        before = c.astype(np.float64) * accumulate
        bias = _normal(rng, rows)
        left, right = a.astype(np.float64).T, b.astype(np.float64)[:, :columns]
        exact, magnitude = before + left @ right, np.abs(before) + np.abs(left) @ np.abs(right)
        exact, magnitude = exact * 0.5 + bias[:, None], magnitude * 0.5 + np.abs(bias[:, None])
        kernel(a, b, c, columns=columns, accumulate=accumulate, scale=0.5, row_bias=bias)
        yield Checked(_measure(c, exact, magnitude), _chain(k + 3))


def _time_gemm(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Timed:
    (rows, width), k = kernel.spec.tile, parameters["k"]
    call = kernel.bind(_panel(kernel, rng, k), _normal(rng, k, width), _output(rows, width), accumulate=True)
    return Timed(call, 2.0 * rows * width * k)


# ---- dot ----


def _weights(kernel: NativeKernel, rng: Random, columns: int, k: int) -> tuple[Array, Array]:
    """Weights of the kernel's type, and as they are in double precision."""
    values, type_ = _normal(rng, columns, k), kernel.spec.types[0]
    if type_ != "bf16":
        weights = aligned(values.astype(element(type_)))
        return weights, weights.astype(np.float64)
    words = values.view(np.uint32) >> 16
    return aligned(words.astype(np.uint16)), (words << 16).view(np.float32).astype(np.float64)


def _check_dot(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Iterator[Checked]:
    rows, columns = kernel.spec.tile
    for k in (parameters["k"], 37, 3):
        x, bias = _normal(rng, rows, k), _normal(rng, columns)
        w, right = _weights(kernel, rng, columns, k)
        left = x.astype(np.float64)
        exact, magnitude = left @ right.T * 0.5 + bias, np.abs(left) @ np.abs(right).T * 0.5 + np.abs(bias)
        yield Checked(_measure(kernel(x, w, scale=0.5, column_bias=bias), exact, magnitude), _chain(k + 12))


def _time_dot(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Timed:
    (rows, columns), k = kernel.spec.tile, parameters["k"]
    call = kernel.bind(_normal(rng, rows, k), _weights(kernel, rng, columns, k)[0], _output(rows, columns))
    return Timed(call, 2.0 * rows * columns * k)


# ---- scores ----


def _scores(kernel: NativeKernel, rng: Random, depth: int, tiles: int) -> dict[str, Array]:
    rows, width = kernel.spec.tile
    return {
        "k": _normal(rng, tiles, depth, rows),
        "q": aligned(_normal(rng, depth, width) / np.float32(math.sqrt(depth))),
        "shift": np.full(width, 4, np.float32),
        "sum": np.zeros(width, np.float32),
        "maximum": np.full(width, -np.inf, np.float32),
    }


def _check_scores(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Iterator[Checked]:
    for depth, tiles in ((parameters["depth"], parameters["tiles"]), (7, 2)):
        arrays = _scores(kernel, rng, depth, tiles)
        k, q = arrays["k"].astype(np.float64), arrays["q"].astype(np.float64)
        exact = np.exp2(np.einsum("tci,cj->tij", k, q) - 4)
        size = np.einsum("tci,cj->tij", np.abs(k), np.abs(q)) + 4
        p = kernel(**arrays)
        # The error of the exponent is one of the power, relatively, beside two units in its last place.
        yield Checked(_measure(p, exact, exact), _chain(depth + 2) * float(size.max()) + 4 * _UNIT)
        total = p.astype(np.float64).sum((0, 1))
        yield Checked(_measure(arrays["sum"], total, total), _chain(tiles * kernel.spec.tile[0]))


def _time_scores(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Timed:
    (rows, width), depth, tiles = kernel.spec.tile, parameters["depth"], parameters["tiles"]
    call = kernel.bind(**_scores(kernel, rng, depth, tiles), p=_output(tiles, rows, width))
    return Timed(call, 2.0 * rows * width * depth * tiles)


# ---- what moves ----


def _elements(kernel: NativeKernel, rng: Random, rows: int, k: int) -> tuple[Array, Array]:
    """Elements of the kernel's type, and as they are in single precision."""
    values, exact = _weights(kernel, rng, rows, k)
    return values, exact.astype(np.float32)


def _equal(result: Array, expected: Array) -> Checked:
    return Checked(0.0 if np.array_equal(result, expected) else math.inf, 0.0)


def _check_pack(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Iterator[Checked]:
    (width,) = kernel.spec.tile
    for rows, k in ((width, parameters["k"]), (width, 13), (max(width - 1, 1), 9)):
        src, values = _elements(kernel, rng, rows, k)
        expected = np.zeros((k, width), np.float32)
        expected[:, :rows] = values.T
        yield _equal(kernel(src), expected)


def _time_pack(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Timed:
    (width,), k = kernel.spec.tile, parameters["k"]
    src, _ = _elements(kernel, rng, width, k)
    return Timed(kernel.bind(src, _output(k, width)), float(src.nbytes + 4 * src.size))


def _check_pack_rows(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Iterator[Checked]:
    (width,) = kernel.spec.tile
    for columns, k in ((width, parameters["k"]), (width - 3, 13)):
        src, values = _elements(kernel, rng, k, columns)
        expected = np.zeros((k, width), np.float32)
        expected[:, :columns] = values
        yield _equal(kernel(src), expected)


def _time_pack_rows(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Timed:
    src, _ = _elements(kernel, rng, parameters["k"], kernel.spec.tile[0])
    return Timed(kernel.bind(src, _output(*src.shape)), float(src.nbytes + 4 * src.size))


def _check_unpack(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Iterator[Checked]:
    (width,) = kernel.spec.tile
    for k in (parameters["k"], 13):
        src, factor = _normal(rng, k, width), _normal(rng, width)
        yield _equal(kernel(src, factor), (src * factor).T)


def _time_unpack(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Timed:
    k, (width,) = parameters["k"], kernel.spec.tile
    src = _normal(rng, k, width)
    return Timed(kernel.bind(src, _normal(rng, width), _output(width, k)), 2.0 * src.nbytes)


# ---- elementwise ----

_PARAMETER = {"leaky": (0.125, 0.0), "clamp": (-1.5, 2.25)}


def _logistic(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    "silu": lambda x: x * _logistic(x),
    "gelu": lambda x: x * _logistic(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    "gelu_erf": lambda x: x * 0.5 * np.array([math.erfc(-value / math.sqrt(2)) for value in x]),
    "gelu_quick": lambda x: x * _logistic(1.702 * x),
    "sigmoid": _logistic,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "leaky": lambda x: np.where(x > 0, x, x * _PARAMETER["leaky"][0]),
    "clamp": lambda x: np.clip(x, *_PARAMETER["clamp"]),
    "exp": np.exp,
}


def _check_map(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Iterator[Checked]:
    function = kernel.spec.operation.removeprefix("map_")
    for n in (parameters["n"], 77):
        x, weight, addend = 3 * _normal(rng, n), _normal(rng, n), _normal(rng, n)
        t = x.astype(np.float64) * weight + addend
        size = np.abs(x.astype(np.float64) * weight) + np.abs(addend)
        exact = _FUNCTIONS[function](t)
        y = kernel(x, weight=weight, addend=addend, parameter=_PARAMETER.get(function, (0.0, 0.0)))
        # One rounding of t, which a function of a slope up to its own size passes on, and some units of the result.
        yield Checked(_measure(y, exact, np.abs(exact) * (1 + size) + size), 16 * _UNIT)


def _time_map(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Timed:
    x = _normal(rng, parameters["n"])
    return Timed(kernel.bind(x, _output(*x.shape)), 2.0 * x.nbytes)


def _check_moments(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Iterator[Checked]:
    for n in (parameters["n"], 77):
        x = _normal(rng, n)
        wide = x.astype(np.float64)
        exact = np.array([math.fsum(wide), math.fsum(wide**2)])
        magnitude = np.array([math.fsum(np.abs(wide)), exact[1]])
        error = np.abs(kernel(x) - exact) / magnitude
        yield Checked(float(np.max(np.where(np.isfinite(error), error, np.inf))), n * 2.0**-53)


def _time_moments(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Timed:
    x = _normal(rng, parameters["n"])
    return Timed(kernel.bind(x), float(x.nbytes))


def _check_maximum(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Iterator[Checked]:
    for n in (parameters["n"], 77):
        x = _normal(rng, n)
        yield Checked(float(abs(kernel(x)[0] - np.max(x))), 0.0)


def _time_maximum(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Timed:
    x = _normal(rng, parameters["n"])
    return Timed(kernel.bind(x), float(x.nbytes))


def _check_nh(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Iterator[Checked]:
    half, low = np.uint64(32), np.uint64(2**32 - 1)
    for n in (8 * parameters["lines"], 8):
        data, secrets = (rng.integers(0, 2**64, count, np.uint64) for count in (n, n + 24))
        exact = []
        for p in range(4):
            added = secrets[8 * p : 8 * p + n]
            exact.append(np.sum((data + added & low) * ((data >> half) + (added >> half) & low)))
        yield Checked(0.0 if np.array_equal(kernel(data, secrets), exact) else np.inf, 0.0)


def _time_nh(kernel: NativeKernel, rng: Random, parameters: Mapping[str, int]) -> Timed:
    n = 8 * parameters["lines"]
    data, secrets = (aligned(rng.integers(0, 2**64, count, np.uint64)) for count in (n, n + 24))
    return Timed(kernel.bind(data, secrets), float(data.nbytes))


_MOST = 2**20  # of a length

_LONG = {"k": _MOST}
_GEMM = Workload("FLOP", {"k": 320}, _check_gemm, _time_gemm, _LONG)
WORKLOADS = {
    "gemm": _GEMM,
    "gemm16": _GEMM,
    "dot": Workload("FLOP", {"k": 320}, _check_dot, _time_dot, _LONG),
    "scores": Workload(
        "FLOP", {"depth": 40, "tiles": 8}, _check_scores, _time_scores, {"depth": 2**14, "tiles": 2**14}
    ),
    "pack": Workload("B", {"k": 256}, _check_pack, _time_pack, _LONG),
    "pack_rows": Workload("B", {"k": 256}, _check_pack_rows, _time_pack_rows, _LONG),
    "unpack": Workload("B", {"k": 256}, _check_unpack, _time_unpack, _LONG),
    "map": Workload("B", {"n": 2048}, _check_map, _time_map, {"n": _MOST}),
    "moments": Workload("B", {"n": 4096}, _check_moments, _time_moments, {"n": _MOST}),
    "maximum": Workload("B", {"n": 4096}, _check_maximum, _time_maximum, {"n": _MOST}),
    "nh": Workload("B", {"lines": 16}, _check_nh, _time_nh, {"lines": 2**14}),
}
