"""Comparison with results in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

UNIT = 2.0**-24  # of rounding to float32
TINY = 2.0**-149  # the smallest float32: the most that a rounding may lose where results are denormal


def chain_bound(roundings: int) -> float:
    """Largest |result - exact| / sum of magnitudes where each summand passes at most so many roundings.

    Each rounding multiplies by 1 + d, |d| <= UNIT, and the product of n such factors is within n UNIT / (1 - n UNIT)
    of 1 (Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1). A fused multiply-add rounds its product
    and the sum so far once, so that a chain of k makes at most k roundings."""
    return roundings * UNIT / (1 - roundings * UNIT)


def error_measure(result: NDArray[Any], exact: NDArray[np.float64], magnitude: NDArray[np.float64]) -> float:
    """The largest |result - exact| / sum of the magnitudes of the products; infinite if a result is no number."""
    error = np.maximum(np.abs(result.astype(np.float64) - exact) - TINY, 0)
    quotient = np.divide(error, magnitude, out=np.where(error > 0, np.inf, 0.0), where=magnitude > 0)
    return float(np.max(np.where(np.isfinite(result), quotient, np.inf), initial=0))


def bits(array: NDArray[Any]) -> NDArray[Any]:
    """The bit patterns of an array, for comparison."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def first_difference(left: NDArray[Any], right: NDArray[Any]) -> str:
    """What assert says where two arrays should be the same bit for bit."""
    different = np.argwhere(bits(left) != bits(right))
    if not len(different):
        return ""
    where = tuple(int(i) for i in different[0])
    return f"{len(different)} elements differ, the first at {where}: {left[where]!r} and {right[where]!r}"
