"""The functions of elementwise operations in double precision, and how far a result may be from them.

A unit (ulp) is that in the last place of the exact result. e^x has an error of less than two by its polynomial and half
of one by r, which is rounded twice at |r| <= 1/2; a sum, a product and a quotient each add half of one at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.exact import TINY, UNIT
from tests.sdgen_native import Function

Array64 = NDArray[np.float64]

PARAMETERS = {Function.LEAKY: (0.125, 0.0), Function.CLAMP: (-1.5, 2.25)}

# Below it in magnitude a quotient by 1 + e^x is 0.
FLOOR = 2.0**-120


def _erfc(x: Array64) -> Array64:
    return np.array([math.erfc(value) for value in x.ravel()]).reshape(x.shape)


def _logistic(numerator: Any, x: Array64) -> Array64:
    with np.errstate(over="ignore"):
        result: Array64 = numerator / (1 + np.exp(-x))
    return result


def _gelu_argument(x: Array64) -> Array64:
    return 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


_EXACT: dict[Function, Callable[[Array64], Any]] = {
    Function.NONE: lambda x: x,
    Function.SILU: lambda x: _logistic(x, x),
    Function.GELU: lambda x: _logistic(x, _gelu_argument(x)),
    Function.GELU_ERF: lambda x: 0.5 * x * _erfc(-x / math.sqrt(2)),
    Function.GELU_QUICK: lambda x: _logistic(x, 1.702 * x),
    Function.SIGMOID: lambda x: _logistic(1, x),
    Function.TANH: np.tanh,
    Function.RELU: lambda x: np.maximum(x, 0),
    Function.LEAKY: lambda x: np.where(x > 0, x, PARAMETERS[Function.LEAKY][0] * x),
    Function.CLAMP: lambda x: np.clip(x, *PARAMETERS[Function.CLAMP]),
    Function.EXP: np.exp,
}

# Of e^x 2.5, of 1 + e^x 0.5, of the quotient 0.5, and as much as a half for the sum's place within its binade.
_ULPS = {
    Function.NONE: 0.0,
    Function.SILU: 4.0,
    Function.GELU: 4.0,
    Function.GELU_ERF: 2.0,  # of the larger part, x: the tail is no more than x / 2, and counts below
    Function.GELU_QUICK: 4.0,
    Function.SIGMOID: 4.0,
    Function.TANH: 4.0,
    Function.RELU: 0.0,
    Function.LEAKY: 1.0,
    Function.CLAMP: 0.0,
    Function.EXP: 2.5,
}


def exact(function: Function, x: NDArray[Any]) -> Array64:
    """f(x), x finite"""
    result: Array64 = np.asarray(_EXACT[function](x.astype(np.float64)), np.float64)
    return result


def allowed(function: Function, x: NDArray[Any], result: Array64) -> Array64:
    """The most that f(x) may differ from the exact result."""
    unit = np.maximum(2.0**-23 * 2.0 ** np.floor(np.log2(np.maximum(np.abs(result), TINY))), TINY)
    most = _ULPS[function] * unit + TINY
    if function in (Function.SILU, Function.GELU, Function.GELU_QUICK, Function.SIGMOID, Function.GELU_ERF):
        most = most + FLOOR
    # The exponent is rounded before its exponential is taken: by four roundings of u, |u| e^-|u| <= 0.37; by two of
    # a^2 / 2, a^2 / 2 e^(-a^2 / 2) <= 0.37 of the tail at its start, and by those of the two polynomials.
    if function is Function.GELU:
        most = most + np.abs(x.astype(np.float64)) * 4 * 0.37 * UNIT
    if function is Function.GELU_ERF:
        most = most + np.abs(x.astype(np.float64)) * 1e-7
    return most
