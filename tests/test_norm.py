"""sdgen_group_norm and sdgen_layer_norm at every level that runs here, against two passes in double precision."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import UNIT, chain_bound, error_measure, first_difference
from tests.functions import PARAMETERS, allowed, exact
from tests.guarded import Flush
from tests.operations import Array, Run, Tile, execute
from tests.sdgen_native import Function

every_level = pytest.mark.parametrize("level", native.native_levels(), ids=native.level_name)

# Of scale and shift as they become single precision, of the multiply-add, and of another where weight and bias are
# vectors; the statistics, in double precision, are exact beside that.
ROUNDINGS = 4

Data = tuple[Array, Array, Array]  # x, weight, bias
RowData = tuple[Array, Array, Array, Array]  # x, weight, modulation, bias


def affine_reference(
    x: NDArray[np.float64], axes: tuple[int, ...], eps: float, rms: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Normalized, and the magnitudes of x scale and shift."""
    mean = np.zeros_like(x[:1, :1]) if rms else x.mean(axes, keepdims=True)
    scale = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + float(np.float32(eps)))
    return (x - mean) * scale, (np.abs(x) + np.abs(mean)) * scale


@dataclass(frozen=True)
class GroupNorm:
    """Gaps are in elements, behind each channel and each batch."""

    channels: int
    pixels: int
    groups: int
    batch: int = 1
    weight: bool = True
    bias: bool = True
    function: Function = Function.NONE
    eps: float = 1e-6
    mean: float = 0.5
    deviation: float = 1.0
    x_gaps: tuple[int, int] = (0, 0)
    y_gaps: tuple[int, int] = (0, 0)
    in_place: bool = False

    def data(self, rng: np.random.Generator) -> Data:
        x = rng.standard_normal((self.batch, self.channels, self.pixels)) * self.deviation + self.mean
        weight, bias = rng.standard_normal((2, self.channels), np.float32)
        return x.astype(np.float32), weight, bias

    def compute(self, data: Data, run: Run, sums: NDArray[np.float64] | None = None) -> Array:
        def strides(gaps: tuple[int, int]) -> tuple[int, int, int]:
            channel = 4 * (self.pixels + gaps[0])
            return channel * self.channels + 4 * gaps[1], channel, 4

        with run.guards(run.flush) as arrays:
            x = arrays.strided("x", data[0].shape, strides(self.x_gaps))
            x[...] = data[0]
            y = x if self.in_place else arrays.strided("y", x.shape, strides(self.y_gaps))
            weight = arrays.copy("weight", data[1]).ctypes.data if self.weight else None
            bias = arrays.copy("bias", data[2]).ctypes.data if self.bias else None
            op = native.GroupNorm(
                *(self.batch, self.channels, self.pixels, self.groups),
                *(x.ctypes.data, x.strides[1], x.strides[0], y.ctypes.data, y.strides[1], y.strides[0]),
                *(weight, bias, self.eps, self.function, PARAMETERS.get(self.function, (0, 0))),
            )
            if sums is not None:
                op.sums, op.sum_pieces = arrays.copy("sums", sums).ctypes.data, sums.shape[2]
            execute("sdgen_group_norm", op, arrays, run, f"{self} {run}")
            result: Array = y.copy()
            return result

    def reference(self, data: Data) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What the function is of, and the magnitudes summed for it."""
        x = data[0].astype(np.float64).reshape(self.batch, self.groups, -1)
        normalized, magnitude = (part.reshape(data[0].shape) for part in affine_reference(x, (2,), self.eps, False))
        if self.weight:
            weight = data[1][:, None].astype(np.float64)
            normalized, magnitude = normalized * weight, magnitude * np.abs(weight)
        if self.bias:
            normalized, magnitude = normalized + data[2][:, None], magnitude + np.abs(data[2][:, None])
        return normalized, magnitude

    def exact(self, data: Data) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The exact result, and how far another may be from it."""
        normalized, magnitude = self.reference(data)
        expected = exact(self.function, normalized)
        # None of the functions has a slope of more than 1.2.
        return expected, 1.2 * chain_bound(ROUNDINGS) * magnitude + allowed(self.function, normalized, expected)

    def judge(self, data: Data, y: Array, what: str) -> None:
        if self.function is Function.NONE:
            error = error_measure(y, *self.reference(data))
            assert error <= chain_bound(ROUNDINGS), f"{what}: error {error}"
        else:
            expected, most = self.exact(data)
            assert np.all(np.abs(y - expected) <= most), what

    def verify(self, rng: np.random.Generator, run: Run) -> None:
        data = self.data(rng)
        self.judge(data, self.compute(data, run), f"{self} {run}")


GROUP_NORMS = [
    GroupNorm(320, 64 * 64, 32, function=Function.SILU),
    GroupNorm(1280, 8 * 8, 32, batch=2),
    GroupNorm(32, 1, 32),
    GroupNorm(32, 1, 1),
    GroupNorm(1, 1, 1),
    GroupNorm(1, 777, 1),
    GroupNorm(1, 100_003, 1, batch=2),
    GroupNorm(3, 16_385, 3, function=Function.GELU),
    GroupNorm(2, 40_000, 1, function=Function.TANH),
    GroupNorm(30, 17 * 13, 6, batch=3, bias=False),
    GroupNorm(30, 17 * 13, 5, batch=2, weight=False, function=Function.LEAKY),
    GroupNorm(12, 99, 4, batch=2, weight=False, bias=False, x_gaps=(3, 0), y_gaps=(0, 7)),
    GroupNorm(12, 20_000, 4, batch=2, x_gaps=(0, 5), y_gaps=(1, 0)),
    GroupNorm(600, 100, 2, in_place=True, function=Function.SILU),
    GroupNorm(64, 1000, 8, eps=0.5),
]


@every_level
@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("case", GROUP_NORMS, ids=str)
def test_group_norm(level: native.Level, case: GroupNorm, flush: Flush, rng: np.random.Generator) -> None:
    case.verify(rng, Run(Tile(level), flush, work_shift=13))


@every_level
@pytest.mark.parametrize("case", GROUP_NORMS, ids=str)
def test_threads_do_not_change_groups(level: native.Level, case: GroupNorm, rng: np.random.Generator) -> None:
    data = case.data(rng)
    alone = case.compute(data, Run(Tile(level)))
    for threads in (2, 3, 4):
        for slow in (-1, threads - 1):
            run = Run(Tile(level), threads=threads, slow=slow)
            assert not first_difference(case.compute(data, run), alone), f"{run}"


@every_level
def test_no_thread_is_ahead_of_the_sums(level: native.Level, rng: np.random.Generator) -> None:
    """A group is normalized when all of its pieces have been summed; sums that are not there yet are NaN."""
    case = GroupNorm(1, 300_001, 1)
    data = case.data(rng)
    for _ in range(20):
        assert np.all(np.isfinite(case.compute(data, Run(Tile(level), threads=4))))


@every_level
@pytest.mark.parametrize("mean", [10.0, 100.0, -100.0, 1e4])
def test_groups_far_from_zero(level: native.Level, mean: float, rng: np.random.Generator) -> None:
    """Statistics of numbers whose mean is many times their deviation: those of two passes in double precision."""
    for deviation in (1.0, 1e-3, 1e3):
        case = GroupNorm(20, 3000, 2, mean=mean * deviation, deviation=deviation, eps=1e-12)
        case.verify(rng, Run(Tile(level), threads=2))


@every_level
def test_groups_of_one_number(level: native.Level, rng: np.random.Generator) -> None:
    """The variance is 0 and not less, so that y is the bias."""
    case = GroupNorm(6, 500, 2, weight=False)
    _, weight, bias = case.data(rng)
    x = np.full((1, 6, 500), np.float32(1 / 3))
    y = case.compute((x, weight, bias), Run(Tile(level)))
    # eps is 1e-6, so that scale and shift are a thousand times the numbers themselves.
    assert np.max(np.abs(y - bias[:, None])) <= 2 * UNIT * 334


@every_level
def test_a_variance_is_never_negative(level: native.Level) -> None:
    """That of equal numbers, by the mean of their squares, would be for some of these."""
    case = GroupNorm(1, 777, 1, weight=False, bias=False, eps=1e-30)
    for number in np.linspace(0.1, 10, 50).astype(np.float32):
        x, zeros = np.full((1, 1, 777), number), np.zeros(1, np.float32)
        assert np.all(np.isfinite(case.compute((x, zeros, zeros), Run(Tile(level)))))


@every_level
def test_what_is_not_finite_stays_in_its_group(level: native.Level, rng: np.random.Generator) -> None:
    case = GroupNorm(12, 300, 4, function=Function.SILU)
    x, weight, bias = case.data(rng)
    x[0, 4, 17] = np.nan
    x[0, 11, 299] = np.inf
    y = case.compute((x, weight, bias), Run(Tile(level)))
    assert np.all(np.isnan(y[0, [3, 4, 5, 9, 10, 11]])) and np.all(np.isfinite(y[0, [0, 1, 2, 6, 7, 8]]))


# ---- rows ----


@dataclass(frozen=True)
class LayerNorm:
    """Gaps are in elements, behind each dimension."""

    n: int
    rows: tuple[int, int, int] = (1, 1, 1)
    weight: bool = True
    bias: bool = True
    rms: bool = False
    eps: float = 1e-5
    mean: float = 0.5
    gaps: tuple[int, int, int] = (0, 0, 0)
    in_place: bool = False
    modulation: bool = False
    by_batch: bool = False  # modulation and bias

    def data(self, rng: np.random.Generator) -> RowData:
        x = rng.standard_normal((*self.rows[::-1], self.n)) + self.mean
        batches = (*self.rows[:0:-1], 1, self.n) if self.by_batch else (1, 1, 1, self.n)
        modulation, bias = rng.standard_normal((2, *batches), np.float32)
        return x.astype(np.float32), rng.standard_normal(self.n, np.float32), modulation, bias

    def compute(self, data: RowData, run: Run) -> Array:
        row = 4 * (self.n + self.gaps[0])
        plane = row * self.rows[0] + 4 * self.gaps[1]
        strides = (plane * self.rows[1] + 4 * self.gaps[2], plane, row, 4)
        with run.guards(run.flush) as arrays:
            x = arrays.strided("x", data[0].shape, strides)
            x[...] = data[0]
            y = x if self.in_place else arrays.array("y", x.shape)
            op = native.LayerNorm(
                *(self.n, self.rows, x.ctypes.data, x.strides[-2::-1], y.ctypes.data, y.strides[-2::-1]),
                (
                    arrays.copy("weight", data[1]).ctypes.data if self.weight else None,
                    arrays.copy("modulation", data[2]).ctypes.data if self.modulation else None,
                    arrays.copy("bias", data[3]).ctypes.data if self.bias else None,
                    *((data[2].strides[1::-1], data[3].strides[1::-1]) if self.by_batch else ((0, 0), (0, 0))),
                    *(self.eps, self.rms),
                ),
            )
            execute("sdgen_layer_norm", op, arrays, run, f"{self} {run}")
            result: Array = y.copy()
            return result

    def verify(self, rng: np.random.Generator, run: Run) -> None:
        data = self.data(rng)
        y = self.compute(data, run)
        normalized, magnitude = affine_reference(data[0].astype(np.float64), (3,), self.eps, self.rms)
        if self.weight:
            normalized, magnitude = normalized * data[1], magnitude * np.abs(data[1])
        if self.modulation:
            factor = 1 + data[2].astype(np.float64)
            normalized, magnitude = normalized * factor, magnitude * np.abs(factor)
        if self.bias:
            normalized, magnitude = normalized + data[3], magnitude + np.abs(data[3])
        error = error_measure(y, normalized, magnitude)
        # 1 + modulation is rounded, and its product with the weight.
        assert error <= chain_bound(ROUNDINGS + 2 * self.modulation), f"{self} {run}: error {error}"


LAYER_NORMS = [
    LayerNorm(320, (1024, 1, 1)),
    LayerNorm(768, (77, 1, 2), rms=True),
    LayerNorm(1),
    LayerNorm(7, (3, 4, 5), weight=False),
    LayerNorm(33, (3, 4, 5), bias=False, gaps=(3, 1, 2)),
    LayerNorm(1280, (9, 2, 1), weight=False, bias=False, rms=True),
    LayerNorm(100_001, (2, 1, 1)),
    LayerNorm(640, (50, 1, 1), in_place=True),
    LayerNorm(640, (50, 2, 1), mean=100.0),
    LayerNorm(640, (50, 2, 1), mean=100.0, modulation=True),
    LayerNorm(33, (1, 4, 5), modulation=True, by_batch=True, gaps=(3, 1, 2)),
    LayerNorm(700, (30, 3, 2), weight=False, modulation=True, by_batch=True, in_place=True),
    LayerNorm(7, (3000, 3, 1), weight=False, bias=False, modulation=True, by_batch=True, rms=True),
    LayerNorm(320, (100, 3, 1), by_batch=True),
]


@every_level
@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("case", LAYER_NORMS, ids=str)
def test_layer_norm(level: native.Level, case: LayerNorm, flush: Flush, rng: np.random.Generator) -> None:
    case.verify(rng, Run(Tile(level), flush, work_shift=5))
    replace(case, rms=not case.rms).verify(rng, Run(Tile(level), flush))


@every_level
@pytest.mark.parametrize("case", LAYER_NORMS, ids=str)
def test_threads_do_not_change_rows(level: native.Level, case: LayerNorm, rng: np.random.Generator) -> None:
    data = case.data(rng)
    alone = case.compute(data, Run(Tile(level)))
    for threads in (2, 3, 4):
        run = Run(Tile(level), threads=threads, slow=threads - 1)
        assert not first_difference(case.compute(data, run), alone), f"{run}"


# ---- what the checks refuse ----


def valid_group_norm() -> native.GroupNorm:
    """An operation that passes its check; the addresses are never used."""
    return native.GroupNorm(2, 64, 100, 32, 4096, 400, 25600, 4096, 400, 25600, 4096, 4096, 1e-6, Function.SILU, (0, 0))


WRONG_GROUP_NORM: dict[str, Callable[[native.GroupNorm], None]] = {
    "batch is 0": lambda op: setattr(op, "batch", 0),
    "channels is 0": lambda op: setattr(op, "channels", 0),
    "pixels is negative": lambda op: setattr(op, "pixels", -1),
    "groups is 0": lambda op: setattr(op, "groups", 0),
    "groups do not divide the channels": lambda op: setattr(op, "groups", 30),
    "x is missing": lambda op: setattr(op, "x", None),
    "y is missing": lambda op: setattr(op, "y", None),
    "x is not aligned": lambda op: setattr(op, "x", 4098),
    "a stride of x is not aligned": lambda op: setattr(op, "x_batch_stride", 25602),
    "a stride of y is not aligned": lambda op: setattr(op, "y_channel_stride", 401),
    "weight is not aligned": lambda op: setattr(op, "weight", 4097),
    "bias is not aligned": lambda op: setattr(op, "bias", 4098),
    "the function is unknown": lambda op: setattr(op, "function", -1),
    "sums are of no pieces": lambda op: setattr(op, "sums", 4096),
    "channels of y overlap": lambda op: setattr(op, "y_channel_stride", 396),
}


def valid_layer_norm() -> native.LayerNorm:
    """The same for rows."""
    strides = (400, 4000, 40000)
    norm = native.RowNorm(None, None, None, (0, 0), (0, 0), 1e-5, False)
    return native.LayerNorm(100, (10, 10, 2), 4096, strides, 4096, strides, norm)


WRONG_LAYER_NORM: dict[str, Callable[[native.LayerNorm], None]] = {
    "n is 0": lambda op: setattr(op, "n", 0),
    "rows is 0": lambda op: setattr(op, "rows", (10, 0, 2)),
    "x is missing": lambda op: setattr(op, "x", None),
    "y is missing": lambda op: setattr(op, "y", None),
    "x is not aligned": lambda op: setattr(op, "x", 4098),
    "a stride of x is not aligned": lambda op: setattr(op, "x_stride", (400, 4001, 40000)),
    "a stride of y is not aligned": lambda op: setattr(op, "y_stride", (402, 4000, 40000)),
    "weight is not aligned": lambda op: setattr(op.norm, "weight", 4098),
    "modulation is not aligned": lambda op: setattr(op.norm, "modulation", 4098),
    "bias is not aligned": lambda op: setattr(op.norm, "bias", 4098),
    "a stride of modulation is not aligned": lambda op: setattr(op.norm, "modulation_stride", (0, 402)),
    "a stride of bias is not aligned": lambda op: setattr(op.norm, "bias_stride", (402, 0)),
    "rows of y overlap": lambda op: setattr(op, "y_stride", (396, 4000, 40000)),
}


def test_checks_pass_what_is_right() -> None:
    assert native.sdgen_group_norm_check(ctypes.byref(valid_group_norm())) is None
    assert native.sdgen_layer_norm_check(ctypes.byref(valid_layer_norm())) is None


@pytest.mark.parametrize("wrong", WRONG_GROUP_NORM)
def test_check_refuses_groups(wrong: str) -> None:
    op = valid_group_norm()
    WRONG_GROUP_NORM[wrong](op)
    message = native.sdgen_group_norm_check(ctypes.byref(op))
    assert message and 5 < len(message) < 100


@pytest.mark.parametrize("wrong", WRONG_LAYER_NORM)
def test_check_refuses_rows(wrong: str) -> None:
    op = valid_layer_norm()
    WRONG_LAYER_NORM[wrong](op)
    message = native.sdgen_layer_norm_check(ctypes.byref(op))
    assert message and 5 < len(message) < 100
