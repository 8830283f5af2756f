"""sdgen_pad at every level that runs here: every element bit for bit where it belongs, and nothing else written."""

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
from tests.test_permute import Extents, Permute

every_level = pytest.mark.parametrize("level", native.native_levels(), ids=native.level_name)


@dataclass(frozen=True)
class Pad:
    """x is laid out as that of a permutation. Gaps are in elements: of y behind each row, plane and volume."""

    x: Permute
    before: Extents
    after: Extents
    y_gaps: tuple[int, int, int] = (0, 0, 0)

    def compute(self, values: Array, run: Run) -> Array:
        with run.guards(run.flush) as arrays:
            x = arrays.strided("x", values.shape, self.x.x_strides[::-1])
            x.view(np.uint32)[...] = values.view(np.uint32)
            n0, n1, n2, n3 = (sum(of) for of in zip(self.x.extents, self.before, self.after, strict=True))
            y_strides = Permute((n0, n1, n2, n3), y_gaps=self.y_gaps).y_strides
            y = arrays.strided("y", (n3, n2, n1, n0), y_strides[::-1])
            addresses = (x.ctypes.data, self.x.x_strides, y.ctypes.data, y_strides[1:])
            op = native.Pad(self.x.extents, self.before, self.after, *addresses)
            execute("sdgen_pad", op, arrays, run, f"{self} {run}")
            result: Array = y.copy()
            return result

    def verify(self, rng: np.random.Generator, run: Run) -> None:
        values = rng.standard_normal(self.x.extents[::-1], np.float32)
        expected = np.pad(values, tuple(zip(self.before, self.after, strict=True))[::-1])
        difference = first_difference(self.compute(values, run).view(np.uint32), expected.view(np.uint32))
        assert not difference, f"{self} {run}: {difference}"


NONE = (0, 0, 0, 0)

CASES = [
    Pad(Permute((1, 1, 1, 1)), NONE, NONE),
    Pad(Permute((1, 1, 1, 1)), (1, 2, 3, 4), (4, 3, 2, 1)),
    Pad(Permute((13, 11, 5, 6)), (1, 1, 2, 0), (1, 1, 0, 0)),
    Pad(Permute((64, 64, 3, 2), x_gaps=(3, 1, 2)), NONE, (0, 7, 0, 0), (1, 3, 2)),
    Pad(Permute((9, 20, 3, 2), (1, 0, 2, 3)), (5, 0, 1, 1), (0, 3, 0, 2)),
    Pad(Permute((40_001, 2, 1, 1)), (3, 1, 0, 0), (2, 0, 0, 0)),
    Pad(Permute((3, 500, 1, 20)), (1, 0, 0, 0), NONE),
]


@every_level
@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pad(level: native.Level, case: Pad, flush: Flush, rng: np.random.Generator) -> None:
    for threads in (1, 3):
        case.verify(rng, Run(Tile(level), flush, threads=threads))


# ---- what the check refuses ----


def valid() -> native.Pad:
    """An operation that passes its check; the addresses are never used."""
    return native.Pad((10, 10, 2, 1), (2, 0, 0, 0), NONE, 4096, (4, 40, 400, 800), 4096, (48, 480, 960))


WRONG: dict[str, Callable[[native.Pad], None]] = {
    "an extent is 0": lambda op: setattr(op, "extent", (10, 0, 2, 1)),
    "a padding before is negative": lambda op: setattr(op, "before", (0, -1, 0, 0)),
    "a padding after is negative": lambda op: setattr(op, "after", (0, 0, 0, -1)),
    "x is missing": lambda op: setattr(op, "x", None),
    "y is missing": lambda op: setattr(op, "y", None),
    "x is not aligned": lambda op: setattr(op, "x", 4098),
    "a stride of x is not aligned": lambda op: setattr(op, "x_stride", (4, 41, 400, 800)),
    "a stride of y is not aligned": lambda op: setattr(op, "y_stride", (50, 480, 960)),
}


def test_check_passes_what_is_right() -> None:
    assert native.sdgen_pad_check(ctypes.byref(valid())) is None


@pytest.mark.parametrize("wrong", WRONG)
def test_check_refuses(wrong: str) -> None:
    op = valid()
    WRONG[wrong](op)
    message = native.sdgen_pad_check(ctypes.byref(op))
    assert message and 5 < len(message) < 100
