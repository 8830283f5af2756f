"""The matrices of Winograd's F(m x m, 3 x 3), in exact fractions (Toom and Cook's construction).

An output tile of m x m comes from an input tile of t x t, t = m + 2: Y = A^T [(G g G^T) * (B^T d B)] A. With points
a[0] to a[t - 2] and one at infinity, and N[k] the product of a[k] - a[l] over all l != k,

  A^T[i][k] = a[k]^i,    G[k][j] = a[k]^j / N[k],    B^T[k][s] = coefficient of x^s in the product of x - a[l], l != k

and at infinity A^T[m - 1] = 1, G[2] = 1, B^T[s] = coefficient of x^s in the product of all x - a[l]. The points are
fractions of powers of two, so that A^T and B^T are exact in single precision. Only G is rounded.

Which points is a matter of rounding errors; `python -m gen.winograd.matrices` measures them.
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
    """F(m x m, 3 x 3), or the like, by its three matrices: `at` is A^T, `bt` is B^T."""

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


def _integers(*rows: tuple[int, ...]) -> Matrix:
    return tuple(tuple(map(Fraction, row)) for row in rows)


def _points(text: str) -> tuple[Fraction, ...]:
    """Points as text: "0 +-5/8" for 0, 5/8 and -5/8."""
    points: list[Fraction] = []
    for word in text.split():
        value = Fraction(word.removeprefix("+-"))
        points += (value, -value) if word.startswith("+-") else (value,)
    return tuple(points)


# The points besides infinity: of each size the first ones are taken, the others were tried. Beside them their errors in
# 10^-7, as `python -m gen.winograd.matrices` printed them. With sums over channels in chains of 64: the error in the L2
# norm, and the largest beside the sum of magnitudes; then both with chains of 128.
POINTS = {
    2: (
        "0 +-1",  # 2.46   0.42   3.15   0.53
        "0 +-1/2",  # 8.46   2.30  10.92   2.45
        "0 +-2",  # 8.21   1.94  10.55   2.38
        "0 +-3/4",  # 3.14   0.53   4.06   0.74
    ),
    3: (
        "+-3/8 +-5/4",  # 4.18   0.70   5.25   0.98
        "+-1/2 +-5/4",  # 4.46   0.73   5.60   0.95
        "+-3/8 +-9/8",  # 4.41   0.81   5.40   0.97
        "+-3/8 +-3/2",  # 4.57   0.79   5.60   1.30
        "+-1/2 +-1",  # 6.05   1.13   7.63   1.50
        "0 +-1 2",  # 9.26   3.44  11.68   3.94
        "0 +-1 1/2",  # 9.24   2.77  11.39   2.56
        "0 +-3/4 3/2",  # 7.30   1.19   9.00   1.85
    ),
    4: (
        "0 +-5/8 +-3/2",  # 7.54   1.74   9.38   2.28
        "0 +-1/2 +-3/2",  # 9.35   3.69  11.92   4.43
        "0 +-5/8 +-5/4",  # 8.81   2.49  11.03   2.80
        "0 +-1/2 +-5/4",  # 10.82   3.67  13.63   6.76
        "0 +-3/4 +-3/2",  # 8.05   1.98  10.12   2.03
        "0 +-5/8 +-7/4",  # 7.75   1.63   9.88   3.67
        "0 +-3/4 +-7/4",  # 8.52   2.22  10.56   3.43
        "0 +-1/2 +-1",  # 16.75   6.02  22.18   9.55
        "0 +-1/2 +-2",  # 10.94   3.16  13.69   5.20
        "0 +-1 +-2",  # 16.38   8.04  20.78  10.32
    ),
}

ALGORITHMS = {m: toom_cook(m, _points(candidates[0])) for m, candidates in POINTS.items()}


# The convolution of an image that is first doubled by repeating its pixels. Two outputs depend on three of them, e:
# y[0] = g[0] e[0] + (g[1] + g[2]) e[1] and y[1] = (g[0] + g[1]) e[1] + g[2] e[2], by three products. In two dimensions
# these are 9 for 2 x 2 outputs, as few for each as F(4x4) makes, with errors like those of F(2x2).
UPSAMPLED = Algorithm(
    at=_integers((1, 1, 0), (0, 1, 1)),
    g=_integers((1, 0, 0), (1, 1, 1), (0, 0, 1)),
    bt=_integers((1, -1, 0), (0, 1, 0), (0, -1, 1)),
)


def algorithm_of(operation: str, m: int) -> Algorithm:
    """The algorithm of a kernel by its operation, which ends in `_up` where the image is doubled."""
    return UPSAMPLED if operation.endswith("_up") else ALGORITHMS[m]


def _measure(algorithm: Algorithm, fold: int) -> tuple[float, float]:
    """Errors of a convolution in single precision, sums over channels in chains of `fold`: in the L2 norm, and the
    largest beside the sum of magnitudes of the products. Activations are SiLU of normal numbers, weights FP16."""
    import numpy as np
    from numpy.typing import NDArray

    from gen.winograd.transforms import program

    m, t, channels, tiles, filters = algorithm.m, algorithm.t, 320, 64, 16
    rng = np.random.default_rng(1)
    x = rng.standard_normal((t, t, channels, tiles))
    d = (x / (1 + np.exp(-x))).astype(np.float32)
    g = (0.05 * rng.standard_normal((KERNEL, KERNEL, channels, filters))).astype(np.float16).astype(np.float32)

    def transform(matrix: Matrix, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """M x of the first dimension, step by step as the kernels do it."""
        code = program(matrix)
        values = list(x.astype(np.float64))
        for step in code.steps:
            product = float(to_float32(step.factor)) * values[step.right]
            total = product if step.left is None else values[step.left] + product
            values.append(total.astype(np.float32).astype(np.float64))
        return np.array([values[number] for number in code.outputs], np.float32)

    def both_ways(matrix: Matrix, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return transform(matrix, transform(matrix, x).swapaxes(0, 1)).swapaxes(0, 1)

    u, v = both_ways(algorithm.g, g), both_ways(algorithm.bt, d)
    taps = np.zeros((t, t, filters, tiles), np.float32)
    for first in range(0, channels, fold):
        chain = np.zeros(taps.shape)
        for c in range(first, min(first + fold, channels)):
            chain += u[:, :, c, :, None].astype(np.float64) * v[:, :, c, None]
            chain = chain.astype(np.float32).astype(np.float64)
        taps += chain.astype(np.float32)
    y = both_ways(algorithm.at, taps)
    exact, magnitude = np.zeros(y.shape), np.zeros(y.shape)
    for i in range(KERNEL):
        for j in range(KERNEL):
            part = d[i : i + m, j : j + m].astype(np.float64)
            exact += np.einsum("cf,yxcn->yxfn", g[i, j].astype(np.float64), part)
            magnitude += np.einsum("cf,yxcn->yxfn", np.abs(g[i, j]).astype(np.float64), np.abs(part))
    error = y - exact
    return float(np.linalg.norm(error) / np.linalg.norm(exact)), float(np.max(np.abs(error) / magnitude))


if __name__ == "__main__":
    for m, candidates in POINTS.items():
        for text in candidates:
            errors = (1e7 * error for fold in (64, 128) for error in _measure(toom_cook(m, _points(text)), fold))
            print(f"F{m}  {text:14}", "".join(f"{error:7.2f}" for error in errors))
