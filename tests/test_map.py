"""sdgen_map at every level that runs here, against double precision."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import first_difference
from tests.functions import PARAMETERS, allowed, exact
from tests.guarded import Flush
from tests.operations import Array, Run, Tile, execute
from tests.sdgen_native import Function

OPERANDS = ("weight", "addend", "factor")

every_level = pytest.mark.parametrize("level", native.native_levels(), ids=native.level_name)

Extents = tuple[int, int, int, int]


def strides_of(extents: Extents, gaps: Extents) -> Extents:
    """In bytes, with so many elements behind each dimension (behind the elements of the first, there are none)."""
    strides = [4]
    for extent, gap in zip(extents[:-1], gaps[1:], strict=True):
        strides.append(strides[-1] * extent + 4 * gap)
    return (strides[0], strides[1], strides[2], strides[3])


@dataclass(frozen=True)
class Map:
    """Extents are of the first dimension on. An operand is given by the dimensions that it is not repeated along."""

    extents: Extents
    weight: str | None = None
    addend: str | None = None
    factor: str | None = None
    function: Function = Function.NONE
    scale: float = 1.0
    shift: float = 0.0
    gaps: Extents = (0, 0, 0, 0)
    operand_gap: int = 0
    in_place: str = ""

    def data(self, rng: np.random.Generator) -> dict[str, Array]:
        """Numbers of so few bits that products of three of them are exact; the last dimension is the first axis."""

        def numbers(extents: Extents) -> Array:
            return (rng.integers(-64, 65, extents[::-1]) / 16).astype(np.float32)

        data = {"x": numbers(self.extents)}
        for name in OPERANDS:
            dimensions = getattr(self, name)
            if dimensions is not None:
                a, b, c, d = (n if str(i) in dimensions else 1 for i, n in enumerate(self.extents))
                data[name] = numbers((a, b, c, d))
        return data

    def compute(self, data: dict[str, Array], run: Run) -> Array:
        with run.guards(run.flush) as arrays:
            placed, operands = {}, {}
            for name, values in data.items():
                a, b, c, d = values.shape[::-1]
                gaps = self.gaps if name == "x" else (0, *(self.operand_gap,) * 3)
                strides = strides_of((a, b, c, d), (gaps[0], gaps[1], gaps[2], gaps[3]))
                placed[name] = arrays.strided(name, values.shape, strides[::-1])
                placed[name][...] = values
                if name != "x":
                    repeated = tuple(0 if n == 1 else s for n, s in zip((a, b, c, d), strides, strict=True))
                    operands[name] = native.Operand(placed[name].ctypes.data, repeated)
            if self.in_place:
                y = placed[self.in_place]
            else:
                y = arrays.strided("y", data["x"].shape, strides_of(self.extents, self.gaps)[::-1])
            x_strides, y_strides = (array.strides[-2::-1] for array in (placed["x"], y))
            op = native.Map(
                *(self.extents, placed["x"].ctypes.data, x_strides, y.ctypes.data, y_strides),
                *(operands.get(name, native.Operand()) for name in OPERANDS),
                *(self.function, PARAMETERS.get(self.function, (0, 0)), self.scale, self.shift),
            )
            execute("sdgen_map", op, arrays, run, f"{self} {run}")
            result: Array = y.copy()
            return result

    def reference(self, data: dict[str, Array]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The exact result, and how far another may be from it."""
        t = (data["x"].astype(np.float64) * self.scale + self.shift) * data.get("weight", 1) + data.get("addend", 0)
        result = exact(self.function, t)
        most = allowed(self.function, t, result)
        factor = data.get("factor")
        if factor is not None:
            most = most * np.abs(factor) + (self.function is not Function.NONE) * np.abs(result * factor) * 2.0**-24
            result = result * factor
        return result, most

    def verify(self, rng: np.random.Generator, run: Run) -> None:
        data = self.data(rng)
        y = self.compute(data, run)
        result, most = self.reference(data)
        assert np.all(np.abs(y - result) <= most), f"{self} {run}: {np.max(np.abs(y - result) - most)}"


SHAPES: list[Extents] = [
    (1, 1, 1, 1),
    (7, 1, 1, 1),
    (1, 5, 3, 2),
    (1, 1, 40, 2),
    (33, 5, 3, 2),
    (64, 64, 3, 1),
    (5, 4, 3, 2),
    (320, 77, 1, 2),
]

# Whatever dimensions an operand may have: none, a channel, a column, a row, all, and others.
DIMENSIONS = (None, "", "0", "1", "2", "3", "01", "02", "12", "0123")


@every_level
@pytest.mark.parametrize("extents", SHAPES, ids=str)
def test_operands(level: native.Level, extents: Extents, rng: np.random.Generator) -> None:
    """Each operand with each of its dimensions, two at a time. Numbers of few bits: without a function all is exact."""
    for index, (weight, addend) in enumerate(product(DIMENSIONS, DIMENSIONS)):
        factor = DIMENSIONS[(index * 7 + index // 10) % len(DIMENSIONS)]
        case = Map(extents, weight, addend, factor, scale=(1.0, 0.5)[index % 2], shift=(0.0, -1.25)[index // 2 % 2])
        case.verify(rng, Run(Tile(level), list(Flush)[index % 2], work_shift=index % 67))
        gaps = ((0, 0, 3, 0), (0, 1, 0, 2), (0, 0, 0, 5))[index % 3]
        replace(case, gaps=gaps, operand_gap=index % 2).verify(rng, Run(Tile(level)))


@every_level
@pytest.mark.parametrize("function", Function)
def test_functions(level: native.Level, function: Function, rng: np.random.Generator) -> None:
    for weight, factor in product((None, "2"), (None, "2", "0123")):
        Map((9, 11, 6, 2), weight, "2", factor, function).verify(rng, Run(Tile(level)))


@every_level
def test_in_place(level: native.Level, rng: np.random.Generator) -> None:
    for in_place in ("x", "weight", "addend", "factor"):
        case = Map((70, 300, 2, 1), "0123", "0123", "0123", Function.SILU, in_place=in_place)
        case.verify(rng, Run(Tile(level), threads=2))
    Map((64, 64, 9, 2), "2", "2", "2", gaps=(0, 0, 1, 1), in_place="x").verify(rng, Run(Tile(level)))


THREAD_CASES = [
    Map((3, 1, 1, 1)),
    Map((100_003, 1, 1, 1), function=Function.GELU, addend=""),
    Map((64, 64, 40, 1), function=Function.SILU, weight="2", addend="2", factor="2"),
    Map((320, 500, 1, 1), function=Function.GELU_ERF, addend="0", factor="0123"),
    Map((40_000, 1, 3, 1), weight="0", addend="2"),
    Map((1, 30_000, 2, 1), addend="1", gaps=(0, 1, 0, 0)),
]


@every_level
@pytest.mark.parametrize("case", THREAD_CASES, ids=str)
def test_threads_do_not_change_the_result(level: native.Level, case: Map, rng: np.random.Generator) -> None:
    data = case.data(rng)
    alone = case.compute(data, Run(Tile(level)))
    result, most = case.reference(data)
    assert np.all(np.abs(alone - result) <= most)
    for threads in (2, 3, 4):
        for slow in (-1, 0, threads - 1):
            run = Run(Tile(level), threads=threads, slow=slow)
            assert not first_difference(case.compute(data, run), alone), f"{run}"


@st.composite
def maps(draw: st.DrawFn) -> tuple[Map, Run, int]:
    dimension = st.integers(1, 12)
    gap = st.integers(0, 2)
    operand = st.sampled_from(DIMENSIONS)
    case = Map(
        (draw(st.integers(1, 40)), draw(dimension), draw(dimension), draw(dimension)),
        *(draw(operand), draw(operand), draw(operand), draw(st.sampled_from(Function))),
        scale=draw(st.sampled_from([1.0, -0.5])),
        shift=draw(st.sampled_from([0.0, 0.75])),
        gaps=(0, draw(gap), draw(gap), draw(gap)),
        operand_gap=draw(gap),
    )
    run = Run(
        Tile(draw(st.sampled_from(native.native_levels()))),
        draw(st.sampled_from(Flush)),
        threads=draw(st.integers(1, 3)),
        work_shift=draw(st.integers(0, 63)),
    )
    return case, run, draw(st.integers(0, 2**32 - 1))


@given(maps())
def test_random_operations(drawn: tuple[Map, Run, int]) -> None:
    case, run, seed = drawn
    case.verify(np.random.default_rng(seed), run)


# ---- what the check refuses ----


def valid() -> native.Map:
    """An operation that passes its check; the addresses are never used."""
    strides = (64, 640, 6400)
    return native.Map(
        *((16, 10, 10, 2), 4096, strides, 4096, strides),
        *(native.Operand(4096, (4, 0, 64, 0)) for _ in OPERANDS),
        *(Function.LEAKY, (0.1, 0.0), 1.0, 0.0),
    )


WRONG: dict[str, Callable[[native.Map], None]] = {
    "an extent is 0": lambda op: setattr(op, "extent", (16, 10, 0, 2)),
    "an extent is negative": lambda op: setattr(op, "extent", (-16, 10, 10, 2)),
    "x is missing": lambda op: setattr(op, "x", None),
    "y is missing": lambda op: setattr(op, "y", None),
    "the function is unknown": lambda op: setattr(op, "function", len(Function)),
    "x is not aligned": lambda op: setattr(op, "x", 4098),
    "x_stride is not aligned": lambda op: setattr(op, "x_stride", (64, 642, 6400)),
    "y is not aligned": lambda op: setattr(op, "y", 4097),
    "y_stride is not aligned": lambda op: setattr(op, "y_stride", (64, 640, 6401)),
    "the weight is not aligned": lambda op: setattr(op.weight, "data", 4098),
    "the addend's elements are apart": lambda op: setattr(op.addend, "stride", (8, 0, 0, 0)),
    "the factor's stride is not aligned": lambda op: setattr(op.factor, "stride", (4, 0, 0, 2)),
}


def test_check_passes_what_is_right() -> None:
    assert native.sdgen_map_check(ctypes.byref(valid())) is None


@pytest.mark.parametrize("wrong", WRONG)
def test_check_refuses(wrong: str) -> None:
    op = valid()
    WRONG[wrong](op)
    message = native.sdgen_map_check(ctypes.byref(op))
    assert message and 5 < len(message) < 100
