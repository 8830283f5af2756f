"""Winograd's matrices and the code made from them, in exact fractions."""

from __future__ import annotations

import itertools
import re
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from gen import registry
from gen.winograd.matrices import (
    ALGORITHMS,
    KERNEL,
    POINTS,
    UPSAMPLED,
    Algorithm,
    Matrix,
    is_correct,
    to_float32,
    toom_cook,
)
from gen.winograd.transforms import Program, formulas, program, row_groups

every_size = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=lambda algorithm: f"F{algorithm.m}")

NAMED = {**{str(m): algorithm for m, algorithm in ALGORITHMS.items()}, "up": UPSAMPLED}

MATRICES = [
    pytest.param(matrix, id=f"F{m}_{name}")
    for m, algorithm in NAMED.items()
    for name, matrix in (("AT", algorithm.at), ("G", algorithm.g), ("BT", algorithm.bt))
]

# Numbers without a pattern that the tests could be blind to.
NUMBERS = [Fraction(i * i * 7919 % 1009 - 500, 1 + i * 31 % 17) for i in range(1, 200)]


def times(matrix: Matrix, x: list[Fraction]) -> list[Fraction]:
    return [sum((factor * value for factor, value in zip(row, x, strict=True)), Fraction(0)) for row in matrix]


def both_ways(matrix: Matrix, x: list[list[Fraction]]) -> list[list[Fraction]]:
    """M x M^T"""
    columns = [times(matrix, list(column)) for column in zip(*x, strict=True)]
    return [times(matrix, list(row)) for row in zip(*columns, strict=True)]


def square(side: int, first: int) -> list[list[Fraction]]:
    return [NUMBERS[first + side * i : first + side * (i + 1)] for i in range(side)]


@every_size
def test_convolution_is_exact(algorithm: Algorithm) -> None:
    m, t = algorithm.m, algorithm.t
    assert (len(algorithm.g), len(algorithm.g[0]), len(algorithm.bt[0]), len(algorithm.at[0])) == (t, KERNEL, t, t)
    d, g = square(t, 0), square(KERNEL, 50)
    u, v = both_ways(algorithm.g, g), both_ways(algorithm.bt, d)
    taps = [[x * y for x, y in zip(*rows, strict=True)] for rows in zip(u, v, strict=True)]
    assert both_ways(algorithm.at, taps) == [
        [sum(d[y + i][x + j] * g[i][j] for i in range(KERNEL) for j in range(KERNEL)) for x in range(m)]
        for y in range(m)
    ]


def test_convolution_of_a_doubled_image_is_exact() -> None:
    e, g = square(3, 0), square(KERNEL, 50)
    u, v = both_ways(UPSAMPLED.g, g), both_ways(UPSAMPLED.bt, e)
    taps = [[x * y for x, y in zip(*rows, strict=True)] for rows in zip(u, v, strict=True)]
    # Row and column k of the doubled image, from the pixel before the first output's, are k + 1 >> 1 of e.
    d = [[e[(y + 1) // 2][(x + 1) // 2] for x in range(4)] for y in range(4)]
    assert both_ways(UPSAMPLED.at, taps) == [
        [sum(d[y + i][x + j] * g[i][j] for i in range(KERNEL) for j in range(KERNEL)) for x in range(2)]
        for y in range(2)
    ]


@every_size
def test_a_wrong_matrix_is_not_correct(algorithm: Algorithm) -> None:
    assert is_correct(algorithm)
    for name in ("at", "g", "bt"):
        rows = [list(row) for row in getattr(algorithm, name)]
        rows[1][1] += Fraction(1, 2**20)
        changed = {**vars(algorithm), name: tuple(map(tuple, rows))}
        assert not is_correct(Algorithm(**changed))


@every_size
def test_constants_are_exact_but_for_g(algorithm: Algorithm) -> None:
    for factor in itertools.chain(*algorithm.at, *algorithm.bt):
        assert struct.unpack("<f", struct.pack("<f", factor))[0] == factor
        assert factor.denominator & (factor.denominator - 1) == 0
    for matrix in (algorithm.at, algorithm.bt):
        assert all(factor == to_float32(factor) for factor in program(matrix).constants)


def test_points_that_are_no_fractions_of_powers_of_two_are_refused() -> None:
    third = Fraction(1, 3)
    with pytest.raises(AssertionError):
        toom_cook(2, (Fraction(0), third, -third))


def test_the_points_that_were_rejected_make_algorithms_too() -> None:
    assert all(len(set(candidates)) == len(candidates) > 1 for candidates in POINTS.values())


def run(code: Program, x: list[Fraction]) -> list[Fraction]:
    values = list(x)
    for step in code.steps:
        assert step.target == len(values)
        values.append((0 if step.left is None else values[step.left]) + step.factor * values[step.right])
    return [values[number] for number in code.outputs]


@pytest.mark.parametrize("matrix", MATRICES)
def test_code_computes_the_matrix(matrix: Matrix) -> None:
    x = NUMBERS[: len(matrix[0])]
    assert run(program(matrix), x) == times(matrix, x)


def test_numbers_of_operations() -> None:
    """What a row or a column costs: A^T, G and B^T of each size."""
    counts = {
        m: tuple(len(program(matrix).steps) for matrix in (algorithm.at, algorithm.g, algorithm.bt))
        for m, algorithm in ALGORITHMS.items()
    }
    assert counts == {2: (4, 4, 4), 3: (9, 8, 10), 4: (12, 9, 12)}


@every_size
def test_row_groups_are_the_rows_in_order(algorithm: Algorithm) -> None:
    groups = row_groups(algorithm.g)
    assert list(itertools.chain(*groups)) == list(range(algorithm.t))
    assert sum(len(group) == 2 for group in groups) == (algorithm.t - 1) // 2


def test_formulas() -> None:
    assert formulas(ALGORITHMS[2].bt, "y", "x") == ("y0 = x0 - x2", "y1 = x1 + x2", "y2 = -x1 + x2", "y3 = -x1 + x3")
    assert formulas(ALGORITHMS[4].bt, "y", "x")[0] == "y0 = 225/256 x0 - 169/64 x2 + x4"


def test_header(tmp_path: Path) -> None:
    """The header holds the matrices, rounded to single precision."""
    registry.generate((), tmp_path)
    text = (tmp_path / "winograd.h").read_text()
    for m, algorithm in NAMED.items():
        for name, matrix in (("AT", algorithm.at), ("G", algorithm.g), ("BT", algorithm.bt)):
            size = rf"\[{len(matrix)}\]\[{len(matrix[0])}\]"
            (body,) = re.findall(
                rf"static const float sdgen_winograd_{name}_{m}{size} = \{{(.*?)\n\}};", text, re.DOTALL
            )
            written = [np.float32(word) for word in re.findall(r"([-\d.e]+)f\b", body)]
            assert written == [np.float32(float(factor)) for row in matrix for factor in row]
