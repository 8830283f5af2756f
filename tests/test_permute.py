"""sdgen_permute at every level that runs here: every element bit for bit where it belongs, and nothing else written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import sdgen_native as native
from tests.exact import first_difference
from tests.guarded import Flush
from tests.operations import Array, Run, Tile, execute

every_level = pytest.mark.parametrize("level", native.native_levels(), ids=native.level_name)

Extents = tuple[int, int, int, int]


@dataclass(frozen=True)
class Permute:
    """x has its dimensions in an order of memory, the innermost first. Gaps are in elements: of x behind each run of
    each of its dimensions in memory, of y behind each row, each plane and each volume."""

    extents: Extents
    order: tuple[int, int, int, int] = (0, 1, 2, 3)
    x_gaps: tuple[int, int, int] = (0, 0, 0)
    y_gaps: tuple[int, int, int] = (0, 0, 0)
    apart: int = 1  # elements from one to the next of x
    backward: tuple[int, ...] = ()  # dimensions of x that lie in memory from the last to the first

    @property
    def transposed(self) -> bool:
        """Whether elements pass through registers: some other dimension than the first is side by side in x."""
        strides = self.x_strides
        return (
            strides[0] != 4 and self.extents[0] > 1 and any(strides[d] == 4 and self.extents[d] > 1 for d in (1, 2, 3))
        )

    @property
    def x_strides(self) -> Extents:
        strides, stride = [0, 0, 0, 0], 4 * self.apart
        for place, d in enumerate(self.order):
            strides[d] = -stride if d in self.backward else stride
            stride *= self.extents[d]
            stride += 4 * self.x_gaps[place] if place < 3 else 0
        return (strides[0], strides[1], strides[2], strides[3])

    @property
    def y_strides(self) -> Extents:
        strides = [4]
        for extent, gap in zip(self.extents[:3], self.y_gaps, strict=True):
            strides.append(strides[-1] * extent + 4 * gap)
        return (strides[0], strides[1], strides[2], strides[3])

    def compute(self, values: Array, run: Run) -> Array:
        """Of values [d3][d2][d1][d0]."""
        with run.guards(run.flush) as arrays:
            x = arrays.strided("x", values.shape, self.x_strides[::-1])
            x.view(np.uint32)[...] = values.view(np.uint32)
            y = arrays.strided("y", values.shape, self.y_strides[::-1])
            op = native.Permute(self.extents, x.ctypes.data, self.x_strides, y.ctypes.data, self.y_strides[1:])
            execute("sdgen_permute", op, arrays, run, f"{self} {run}")
            assert not first_difference(x.view(np.uint32), values.view(np.uint32)), "x was written"
            result: Array = y.copy()
            return result

    def verify(self, values: Array, run: Run) -> None:
        y = self.compute(values, run)
        difference = first_difference(y.view(np.uint32), values.view(np.uint32))
        assert not difference, f"{self} {run}: {difference}"

    def data(self, rng: np.random.Generator) -> Array:
        """Any bits but signalling NaNs, where these would become quiet: the transposition multiplies by 1."""
        bits = rng.integers(0, 2**32, self.extents[::-1], np.uint32)
        for special in (0x80000000, 1, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF):
            bits[rng.random(bits.shape) < 0.01] = special
        values = bits.view(np.float32)
        if self.transposed:
            bits[np.isnan(values)] |= 0x00400000
        else:
            bits[rng.random(bits.shape) < 0.05] = 0x7F800123
        return values


# Odd, of one vector and of more, of one element; the last ones of several items of work.
SHAPES: list[Extents] = [
    (1, 1, 1, 1),
    (7, 1, 1, 1),
    (1, 9, 1, 1),
    (3, 5, 2, 2),
    (8, 8, 1, 3),
    (17, 9, 3, 2),
    (16, 24, 2, 1),
    (33, 1, 5, 2),
    (1, 31, 7, 1),
    (40, 37, 3, 1),
    (1, 1, 5, 9),
    (19, 130, 2, 3),
]


@every_level
@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_every_permutation(level: native.Level, order: tuple[int, int, int, int], rng: np.random.Generator) -> None:
    for index, (extents, gapped) in enumerate(product(SHAPES, (False, True))):
        gaps = (
            (((1, 3, 2), (2, 0, 5)) if index % 4 == 1 else ((8, 0, 1), (0, 7, 0))) if gapped else ((0,) * 3, (0,) * 3)
        )
        case = Permute(extents, order, *gaps)
        case.verify(case.data(rng), Run(Tile(level), list(Flush)[index % 2], 1 + index % 4, work_shift=1 + index))


# As models have them: images to tokens and back, heads out of tokens, values transposed; concatenations by channels are
# copies of planes with a gap behind.
LARGE = [
    Permute((40, 8, 300, 1), (0, 2, 1, 3)),
    Permute((320, 32, 32, 1), (1, 2, 0, 3)),
    Permute((33, 31, 320, 1), (2, 0, 1, 3)),
    Permute((77, 40, 8, 2), (1, 2, 0, 3)),
    Permute((64, 64, 40, 2), y_gaps=(0, 0, 64 * 64 * 24)),
    Permute((20_000, 3, 1, 1), (1, 0, 2, 3)),
    Permute((3, 20_000, 1, 1), (1, 0, 2, 3)),
    Permute((40_000, 3, 1, 1), y_gaps=(5, 0, 0)),
    Permute((50, 50, 9, 1), apart=3),
    Permute((50, 50, 9, 1), (2, 0, 1, 3), apart=2),
    Permute((50, 51, 9, 1), (1, 0, 2, 3), backward=(0, 2)),
    Permute((50, 51, 9, 1), (0, 2, 1, 3), backward=(1, 2)),
]


@every_level
@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_threads(level: native.Level, case: Permute, flush: Flush, rng: np.random.Generator) -> None:
    values = case.data(rng)
    for threads, slow in ((1, -1), (2, 1), (3, 0), (4, -1)):
        case.verify(values, Run(Tile(level), flush, threads, slow))


@every_level
def test_signalling_nans_stay_nans(level: native.Level) -> None:
    """The quiet ones of the same payload where elements are transposed, themselves where rows are copied."""
    bits = np.full((1, 1, 19, 21), 0x7F800001, np.uint32)
    bits[..., ::2] |= 0xFF80BEEF
    for case, quiet in ((Permute((21, 19, 1, 1), (1, 0, 2, 3)), 0x00400000), (Permute((21, 19, 1, 1)), 0)):
        y = case.compute(bits.view(np.float32), Run(Tile(level))).view(np.uint32)
        assert not first_difference(y | np.uint32(quiet), bits | np.uint32(quiet))


@given(
    st.tuples(*(st.integers(1, 40),) * 2, *(st.integers(1, 5),) * 2),
    st.permutations(range(4)),
    st.tuples(*(st.integers(0, 9),) * 3),
    st.tuples(*(st.integers(0, 9),) * 3),
    st.integers(1, 2),
    st.sampled_from(native.native_levels()),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)
def test_random_permutations(
    extents: Extents,
    order: list[int],
    x_gaps: tuple[int, int, int],
    y_gaps: tuple[int, int, int],
    apart: int,
    level: native.Level,
    threads: int,
    seed: int,
) -> None:
    case = Permute(extents, (order[0], order[1], order[2], order[3]), x_gaps, y_gaps, apart)
    case.verify(case.data(np.random.default_rng(seed)), Run(Tile(level), list(Flush)[seed % 2], threads))


# ---- what the check refuses ----


def valid() -> native.Permute:
    """The addresses are never used."""
    return native.Permute((3, 5, 7, 2), 4096, (20, 4, 60, 420), 8192, (12, 60, 420))


def change_extent(d: int, extent: int) -> Callable[[native.Permute], None]:
    return lambda op: op.extent.__setitem__(d, extent)


def change_stride(array: str, d: int) -> Callable[[native.Permute], None]:
    return lambda op: getattr(op, f"{array}_stride").__setitem__(d, 62)


WRONG: list[tuple[str, Callable[[native.Permute], None]]] = [
    *(("extent", change_extent(d, extent)) for d in range(4) for extent in (0, -1)),
    *(("missing", lambda op, name=name: setattr(op, name, None)) for name in "xy"),
    *(("aligned", lambda op, name=name: setattr(op, name, 4098)) for name in "xy"),
    *(("aligned", change_stride("x", d)) for d in range(4)),
    *(("aligned", change_stride("y", d)) for d in range(3)),
]


def check(op: native.Permute) -> bytes | None:
    message: bytes | None = native.sdgen_permute_check(ctypes.byref(op))
    return message


def test_check_passes_what_is_right() -> None:
    assert check(valid()) is None
    repeated = valid()
    repeated.x_stride = (0, 4, -60, 0)
    assert check(repeated) is None


@pytest.mark.parametrize(("part", "change"), WRONG)
def test_check_refuses(part: str, change: Callable[[native.Permute], None]) -> None:
    op = valid()
    change(op)
    message = check(op)
    assert message and part in message.decode()
    assert 5 < len(message) < 100
