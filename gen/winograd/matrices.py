"""The matrices of Winograd's F(m x m, 3 x 3), in exact fractions (Toom and Cook's construction).

An output tile of m x m comes from an input tile of t x t, t = m + 2: Y = A^T [(G g G^T) * (B^T d B)] A. With points
a[0] to a[t - 2] and one at infinity, and N[k] the product of a[k] - a[l] over all l != k,

  A^T[i][k] = a[k]^i,    G[k][j] = a[k]^j / N[k],    B^T[k][s] = coefficient of x^s in the product of x - a[l], l != k

and at infinity A^T[m - 1] = 1, G[2] = 1, B^T[s] = coefficient of x^s in the product of all x - a[l]. The points are
fractions of powers of two, so that A^T and B^T are exact in single precision. Only G is rounded.

Which points: `python -m gen.winograd.matrices` measures them, and printed what stands beside the choice.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

Matrix = tuple[tuple[Fraction, ...], ...]

KERNEL = 3  # rows and columns of the convolution's kernel


@dataclass(frozen=True)
class Algorithm:
    """F(m x m, 3 x 3) by its three matrices: `at` is A^T, `bt` is B^T."""

    at: Matrix
    g: Matrix
    bt: Matrix

    @property
    def m(self) -> int:
        """Rows and columns of an output tile."""
        return len(self.at)

    @property
    def t(self) -> int:
        """Rows and columns of an input tile."""
        return len(self.bt)


def toom_cook(m: int, points: Sequence[Fraction]) -> Algorithm:
    """The algorithm of these m + 1 points and infinity."""
    rows = []
    for k, point in enumerate(points):
        others = [*points[:k], *points[k + 1 :]]
        scale = 1 / prod((point - other for other in others), start=Fraction(1))
        sign = -1 if scale == -1 else 1  # costs nothing in B^T
        rows.append(
            (
                [point**i for i in range(m)],
                [sign * scale * point**j for j in range(KERNEL)],
                [sign * c for c in (*_monic(others), Fraction(0))],
            )
        )
    infinity = [Fraction(0)] * (m - 1) + [Fraction(1)], [Fraction(0), Fraction(0), Fraction(1)], _monic(points)
    a, g, bt = zip(*rows, infinity, strict=True)
    algorithm = Algorithm(tuple(zip(*a, strict=True)), tuple(map(tuple, g)), tuple(map(tuple, bt)))
    assert is_correct(algorithm)
    assert all(x == to_float32(x) for matrix in (algorithm.at, algorithm.bt) for row in matrix for x in row)
    return algorithm


def is_correct(algorithm: Algorithm) -> bool:
    """Whether it computes y[i] = sum over j of d[i + j] g[j], in one dimension: then it does in two."""
    return all(
        sum(a * g[j] * b[s] for a, g, b in zip(row, algorithm.g, algorithm.bt, strict=True)) == (s == i + j)
        for i, row in enumerate(algorithm.at)
        for j in range(KERNEL)
        for s in range(algorithm.t)
    )


def to_float32(value: Fraction) -> Fraction:
    """The value, rounded to single precision."""
    return Fraction(struct.unpack("<f", struct.pack("<f", value))[0])


def literal(value: Fraction) -> str:
    """The value, rounded to single precision, as C writes it."""
    text = f"{float(to_float32(value)):.9g}"
    return text + ("f" if "." in text or "e" in text else ".0f")


def _monic(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the product of x - root, lowest first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [x - root * y for x, y in zip(shifted, [*coefficients, Fraction(0)], strict=True)]
    return coefficients


def _points(text: str) -> tuple[Fraction, ...]:
    """Points as text, "0 5/8 3/2" for 0, +-5/8 and +-3/2."""
    values = [Fraction(word) for word in text.split()]
    return tuple(signed for value in values for signed in ((value, -value) if value else (value,)))


# The points, besides infinity; the first is taken.
POINTS = {
    2: ("0 1",),
    3: ("3/8 5/4",),
    4: ("0 5/8 3/2",),
}

ALGORITHMS = {m: toom_cook(m, _points(candidates[0])) for m, candidates in POINTS.items()}
