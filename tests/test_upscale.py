"""sdgen_upscale at every level that runs here: every element bit for bit where it belongs, and nothing else written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tests import sdgen_native as native
from tests.exact import first_difference
from tests.guarded import Flush
from tests.operations import Array, Run, Tile, execute
from tests.test_permute import Permute

every_level = pytest.mark.parametrize("level", native.native_levels(), ids=native.level_name)


@dataclass(frozen=True)
class Upscale:
    """x is laid out as that of a permutation. Gaps are in elements: of y behind each row, plane and volume."""

    x: Permute
    factors: tuple[int, int, int, int]
    y_gaps: tuple[int, int, int] = (0, 0, 0)

    def compute(self, values: Array, run: Run) -> Array:
        with run.guards(run.flush) as arrays:
            x = arrays.strided("x", values.shape, self.x.x_strides[::-1])
            x.view(np.uint32)[...] = values.view(np.uint32)
            shape = tuple(extent * factor for extent, factor in zip(self.x.extents, self.factors, strict=True))
            y_strides = Permute((shape[0], shape[1], shape[2], shape[3]), y_gaps=self.y_gaps).y_strides
            y = arrays.strided("y", shape[::-1], y_strides[::-1])
            addresses = (x.ctypes.data, self.x.x_strides, y.ctypes.data, y_strides[1:])
            op = native.Upscale(self.x.extents, self.factors, *addresses)
            execute("sdgen_upscale", op, arrays, run, f"{self} {run}")
            result: Array = y.copy()
            return result

    def verify(self, rng: np.random.Generator, run: Run) -> None:
        values = rng.standard_normal(self.x.extents[::-1], np.float32)
        y, expected = self.compute(values, run), values
        for axis, factor in enumerate(self.factors[::-1]):
            expected = expected.repeat(factor, axis)
        difference = first_difference(y.view(np.uint32), expected.view(np.uint32))
        assert not difference, f"{self} {run}: {difference}"


CASES = [
    Upscale(Permute((1, 1, 1, 1)), (1, 1, 1, 1)),
    Upscale(Permute((64, 64, 5, 1)), (2, 2, 1, 1)),
    Upscale(Permute((33, 17, 9, 2)), (2, 2, 1, 1), (3, 1, 5)),
    Upscale(Permute((7, 5, 3, 2)), (3, 4, 2, 5)),
    Upscale(Permute((7, 5, 3, 2), x_gaps=(3, 2, 1)), (2, 1, 1, 3), (1, 0, 2)),
    Upscale(Permute((20, 11, 3, 1), x_gaps=(1, 0, 0)), (1, 3, 1, 1)),
    Upscale(Permute((19, 8, 3, 2), (2, 0, 1, 3)), (2, 2, 1, 1)),
    Upscale(Permute((9, 1, 300, 1)), (5, 1, 1, 1)),
    Upscale(Permute((20_001, 2, 1, 1)), (2, 2, 1, 1)),
    Upscale(Permute((1, 40, 30, 2)), (6, 1, 2, 1)),
]


@every_level
@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_upscale(level: native.Level, case: Upscale, flush: Flush, rng: np.random.Generator) -> None:
    for threads in (1, 3):
        case.verify(rng, Run(Tile(level), flush, threads=threads))


# ---- what the check refuses ----


def valid() -> native.Upscale:
    """An operation that passes its check; the addresses are never used."""
    return native.Upscale((10, 10, 2, 1), (2, 2, 1, 1), 4096, (4, 40, 400, 800), 4096, (80, 1600, 3200))


WRONG: dict[str, Callable[[native.Upscale], None]] = {
    "an extent is 0": lambda op: setattr(op, "extent", (10, 0, 2, 1)),
    "a factor is 0": lambda op: setattr(op, "factor", (2, 2, 0, 1)),
    "x is missing": lambda op: setattr(op, "x", None),
    "y is missing": lambda op: setattr(op, "y", None),
    "x is not aligned": lambda op: setattr(op, "x", 4098),
    "a stride of x is not aligned": lambda op: setattr(op, "x_stride", (4, 41, 400, 800)),
    "a stride of y is not aligned": lambda op: setattr(op, "y_stride", (80, 1602, 3200)),
}


def test_check_passes_what_is_right() -> None:
    assert native.sdgen_upscale_check(ctypes.byref(valid())) is None


@pytest.mark.parametrize("wrong", WRONG)
def test_check_refuses(wrong: str) -> None:
    op = valid()
    WRONG[wrong](op)
    message = native.sdgen_upscale_check(ctypes.byref(op))
    assert message and 5 < len(message) < 100
