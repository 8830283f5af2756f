"""sdgen_softmax at every level that runs here, against double precision."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import TINY, UNIT, first_difference
from tests.guarded import Flush
from tests.operations import Array, Run, Tile, execute, loaded, stored
from tests.sdgen_native import Type

pytestmark = pytest.mark.slow

every_level = pytest.mark.parametrize("level", native.native_levels(), ids=native.level_name)

# x, elements of the mask, sinks
Data = tuple[Array, NDArray[np.generic], Array]


def slopes(max_bias: float, heads: int) -> NDArray[np.float64]:
    """ALiBi's, of so many heads."""
    if max_bias <= 0:
        return np.ones(heads)
    power = 2.0 ** np.floor(np.log2(heads))
    head = np.arange(heads)
    result: NDArray[np.float64] = 2.0 ** (
        -max_bias / power * np.where(head < power, head + 1, (2 * (head - power) + 1) / 2)
    )
    return result


@dataclass(frozen=True)
class Softmax:
    """Gaps are in elements, behind each dimension; rows: rows, heads, batches."""

    n: int
    rows: tuple[int, int, int] = (1, 1, 1)
    mask: Type | None = None
    mask_extent: tuple[int, int] = (1, 1)
    masked: float = 0.0  # share of elements whose mask is -infinity
    sinks: bool = False
    scale: float = 1.0
    max_bias: float = 0.0
    size: float = 3.0  # of the numbers
    gaps: tuple[int, int, int] = (0, 0, 0)
    in_place: bool = False

    def data(self, rng: np.random.Generator) -> Data:
        x = rng.standard_normal((*self.rows[::-1], self.n)) * self.size
        mask = rng.standard_normal((*self.mask_extent[::-1], self.rows[0], self.n), np.float32)
        mask[rng.random(mask.shape) < self.masked] = -np.inf
        sinks = rng.standard_normal(self.rows[1], np.float32) * 3
        return x.astype(np.float32), stored(mask, self.mask or Type.F32), sinks

    def strides(self, rows: int, heads: int, size: int) -> tuple[int, int, int, int]:
        row = size * (self.n + self.gaps[0])
        head = row * rows + size * self.gaps[1]
        return head * heads + size * self.gaps[2], head, row, size

    def compute(self, data: Data, run: Run) -> Array:
        with run.guards(run.flush) as arrays:
            x = arrays.strided("x", data[0].shape, self.strides(*self.rows[:2], 4))
            x[...] = data[0]
            y = x if self.in_place else arrays.strided("y", x.shape, self.strides(*self.rows[:2], 4))
            size = data[1].itemsize
            mask = arrays.strided(
                "mask", data[1].shape, self.strides(self.rows[0], self.mask_extent[0], size), data[1].dtype
            )
            mask[...] = data[1]
            sinks = arrays.copy("sinks", data[2]).ctypes.data if self.sinks else None
            strides = x.strides[-2::-1]
            op = native.Softmax(
                *(self.n, self.rows, x.ctypes.data, strides, y.ctypes.data, strides),
                *(mask.ctypes.data if self.mask is not None else None, self.mask or Type.F32),
                *(mask.strides[-2::-1], self.mask_extent, sinks, self.scale, self.max_bias),
            )
            execute("sdgen_softmax", op, arrays, run, f"{self} {run}")
            result: Array = y.copy()
            return result

    def reference(self, data: Data) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The exact result, and the most that each element may differ from it."""
        scaled = data[0].astype(np.float64) * np.float64(np.float32(self.scale))
        s, rounded = scaled, np.zeros_like(scaled)
        if self.mask is not None:
            mask = loaded(data[1], self.mask).astype(np.float64)
            heads, batches = (np.arange(self.rows[i]) % self.mask_extent[i - 1] for i in (1, 2))
            added = slopes(self.max_bias, self.rows[1])[:, None, None] * mask[batches][:, heads]
            s = scaled + added
            # Rounded are the product with the scale, the slope, the product with it, and the sum.
            rounded = UNIT * (np.abs(scaled) + 2 * np.abs(added) + np.abs(s))
        elif self.scale < 0:
            rounded = UNIT * np.abs(scaled)
        sinks = data[2].astype(np.float64)[None, :, None, None] if self.sinks else np.full((1, 1, 1, 1), -np.inf)
        with np.errstate(invalid="ignore"):
            top = np.maximum(np.max(s, -1, keepdims=True), sinks)
            power = np.exp(s - top)
            # The exponent is rounded once more, the exponential is within 2.5 units, each up to 2 UNIT.
            relative = np.where(power > 0, rounded + UNIT * np.abs(s - top) + 5 * UNIT, 0)
            total = np.sum(power, -1, keepdims=True) + np.exp(sinks - top)
            exact = power / total
            # Of the sum the same, by its weights; its quotient and the product are rounded. What is small is denormal.
            of_sum = np.sum(exact * relative, -1, keepdims=True)
            allowed = exact * 1.001 * (relative + of_sum + 2 * UNIT) + 3 * TINY
        return exact, allowed

    def verify(self, rng: np.random.Generator, run: Run) -> None:
        data = self.data(rng)
        y = self.compute(data, run)
        exact, allowed = self.reference(data)
        assert np.array_equal(np.isnan(y), np.isnan(exact))
        excess = np.nan_to_num(np.abs(y - exact) - allowed, nan=-1)
        worst = np.unravel_index(np.argmax(excess), excess.shape)
        assert excess[worst] <= 0, f"{self} {run}: {y[worst]!r} for {exact[worst]!r}, allowed {allowed[worst]:.3g}"


CASES = [
    Softmax(77, (77, 12, 1), Type.F32, masked=0.5, in_place=True),
    Softmax(1),
    Softmax(1, (5, 3, 2), Type.F16),
    Softmax(7, (3, 4, 5), scale=0.125, gaps=(3, 1, 2)),
    Softmax(33, (5, 4, 3), Type.F16, (2, 3), scale=0.5, gaps=(1, 2, 5)),
    Softmax(33, (5, 4, 3), Type.BF16, (4, 1), sinks=True),
    Softmax(16, (9, 12, 1), Type.F32, (1, 1), max_bias=8.0, scale=0.3),
    Softmax(1025, (3, 6, 2), Type.F16, (6, 2), max_bias=4.0, masked=0.3, sinks=True, in_place=True),
    Softmax(2048, (4, 2, 1), Type.F16, scale=0.2),
    Softmax(50_003, (3, 1, 1), scale=0.7),
    Softmax(40_001, (2, 1, 1), Type.F32, scale=0.7, masked=0.9),
    Softmax(100, (40, 3, 1), scale=-1.5),
    Softmax(100, (40, 3, 1), scale=-1.5, sinks=True, in_place=True),
    Softmax(100, (40, 3, 1), scale=0.0),
    Softmax(500, (11, 2, 1), size=60.0),
    Softmax(500, (11, 2, 1), size=1e4, sinks=True),
    Softmax(3, (50, 2, 2), Type.F16, (2, 2), masked=0.7),
    Softmax(3, (50, 2, 2), Type.F16, (2, 2), masked=0.7, sinks=True),
    Softmax(20, (13, 2, 2), Type.F32, masked=1.0),
]


@every_level
@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_softmax(level: native.Level, case: Softmax, flush: Flush, rng: np.random.Generator) -> None:
    case.verify(rng, Run(Tile(level), flush))


@every_level
@pytest.mark.parametrize("case", CASES, ids=str)
def test_threads_do_not_change_rows(level: native.Level, case: Softmax, rng: np.random.Generator) -> None:
    data = case.data(rng)
    alone = case.compute(data, Run(Tile(level)))
    for threads in (2, 3, 4):
        run = Run(Tile(level), threads=threads, slow=threads - 1)
        assert not first_difference(case.compute(data, run), alone), f"{run}"


@every_level
def test_what_is_not_finite_stays_in_its_row(level: native.Level, rng: np.random.Generator) -> None:
    case = Softmax(100, (6, 1, 1))
    x, mask, sinks = case.data(rng)
    x[0, 0, 1, 17] = np.nan
    x[0, 0, 2, 99] = np.inf
    x[0, 0, 3] = -np.inf
    x[0, 0, 4, 3] = -np.inf
    y = case.compute((x, mask, sinks), Run(Tile(level)))[0, 0]
    assert np.all(np.isnan(y[[1, 2, 3]])) and np.all(np.isfinite(y[[0, 4, 5]]))
    assert y[4, 3] == 0 and np.count_nonzero(y[4] == 0) == 1


@every_level
def test_a_sink_alone(level: native.Level, rng: np.random.Generator) -> None:
    """Where all is masked a sink takes it all."""
    case = Softmax(100, (3, 2, 1), Type.F32, masked=1.0, sinks=True)
    assert np.all(case.compute(case.data(rng), Run(Tile(level))) == 0)


# ---- what the check refuses ----


def valid() -> native.Softmax:
    """An operation that passes its check; the addresses are never used."""
    strides = (400, 4000, 40000)
    mask = (4096, Type.F16, (200, 2000, 20000), (1, 2))
    return native.Softmax(100, (10, 10, 2), 4096, strides, 4096, strides, *mask, 4096, 1.0, 8.0)


WRONG: dict[str, Callable[[native.Softmax], None]] = {
    "n is 0": lambda op: setattr(op, "n", 0),
    "rows is 0": lambda op: setattr(op, "rows", (10, 0, 2)),
    "x is missing": lambda op: setattr(op, "x", None),
    "y is missing": lambda op: setattr(op, "y", None),
    "x is not aligned": lambda op: setattr(op, "x", 4098),
    "a stride of x is not aligned": lambda op: setattr(op, "x_stride", (400, 4001, 40000)),
    "a stride of y is not aligned": lambda op: setattr(op, "y_stride", (402, 4000, 40000)),
    "rows of y overlap": lambda op: setattr(op, "y_stride", (396, 4000, 40000)),
    "sinks are not aligned": lambda op: setattr(op, "sinks", 4097),
    "a slope without a mask": lambda op: setattr(op, "mask", None),
    "the mask's type is unknown": lambda op: setattr(op, "mask_type", 3),
    "the mask has no heads": lambda op: setattr(op, "mask_extent", (0, 1)),
    "the mask is not aligned": lambda op: setattr(op, "mask", 4097),
    "a stride of the mask is not aligned": lambda op: setattr(op, "mask_stride", (200, 2001, 20000)),
}


def test_check_passes_what_is_right() -> None:
    assert native.sdgen_softmax_check(ctypes.byref(valid())) is None


@pytest.mark.parametrize("wrong", WRONG)
def test_check_refuses(wrong: str) -> None:
    op = valid()
    WRONG[wrong](op)
    message = native.sdgen_softmax_check(ctypes.byref(op))
    assert message and 5 < len(message) < 100
