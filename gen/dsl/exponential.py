"""2^x on vectors, in registers.

x = n + r with n the nearest integer, so |r| <= 1/2, and 2^x = 2^n p(r), the power of two added to the exponent's bits.

p is a polynomial with p(0) = 1, so that 2^n is exact, fitted by weighted least squares (Lawson's iteration) to the
least largest error in units in the last place of the result, its coefficients then rounded and tried a few bits to
either side. Measured over four million r, in units in the last place: degree 4 37, degree 5 1.8, degree 6 0.9. The
range [0, 1) in place of [-1/2, 1/2] costs six more bits at the same degree. Degree 5 is the least that is within two
units.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from gen.dsl.operands import Register
from gen.dsl.vectors import VectorUnit

# Of r^5 down to r^0.
COEFFICIENTS = tuple(
    map(
        float.fromhex,
        ("0x1.5ab438p-10", "0x1.3ceca0p-7", "0x1.c6baa2p-5", "0x1.ebf9b4p-3", "0x1.62e424p-1", "0x1p0"),
    )
)

# Below it the result is 0: there it would be denormal.
LEAST = -126.0


def polynomial(v: VectorUnit, dst: Register, x: Register, coefficients: Sequence[float]) -> None:
    """dst = the polynomial of x with these coefficients, highest power first, by Horner's rule"""
    v.load_constant(dst, coefficients[0])
    for coefficient in coefficients[1:]:
        v.a.VFMADD213PS(dst, x, v.constant(coefficient))


class Exponential:
    """2^x in place, for one vector after the other; holds what it works with until it is released."""

    def __init__(self, v: VectorUnit) -> None:
        self._v = v
        self._kept = v.masks("kept", "lanes where 2^x is not too small", 1)[0]
        self._exponent = v.a.vector("exponent", "n of 2^n")
        self._power = v.a.vector("power", "p(r), before that n")

    def __call__(self, x: Register) -> None:
        """x = 2^x, 0 where x < -126, NaN where it is NaN; correct for x up to 127"""
        v, a, exponent, power = self._v, self._v.a, self._exponent, self._power
        v.not_less(self._kept, x, v.constant(LEAST))
        a.VCVTPS2DQ(exponent, x)
        a.VCVTDQ2PS(power, exponent)
        a.VSUBPS(x, x, power)
        a.VPSLLD(exponent, exponent, 23)
        polynomial(v, power, x, COEFFICIENTS)
        v.add_integers_where(x, self._kept, power, exponent)

    def release(self) -> None:
        """Gives the registers back."""
        self._v.a.release(self._kept, self._exponent, self._power)


class NaturalExponential:
    """e^(factor x), with factor x / ln 2 = n + r, which is not rounded before n is taken off.

    r is made of x by two multiply-adds, with the factor in two parts (Cody and Waite 1980), so that the error does not
    grow with n.
    """

    def __init__(self, v: VectorUnit, factor: float) -> None:
        self._v = v
        exact = factor / math.log(2)
        self._high = _single(exact)
        self._low = exact - self._high

    def reduce(self, x: Register, n: Register, r: Register) -> None:
        """n, as integers, and r of factor x / ln 2 = n + r"""
        v, a = self._v, self._v.a
        v.multiply(r, x, v.constant(self._high))
        a.VCVTPS2DQ(n, r)
        a.VCVTDQ2PS(r, n)
        a.VFMSUB231PS(r, x, v.constant(self._high))
        v.fma(r, x, v.constant(self._low))

    def __call__(self, x: Register, n: Register, r: Register) -> None:
        """x = e^(factor x), where -126 <= factor x / ln 2 < 128; NaN where x is NaN; clobbers n and r"""
        a = self._v.a
        self.reduce(x, n, r)
        polynomial(self._v, x, r, COEFFICIENTS)
        a.VPSLLD(n, n, 23)
        a.VPADDD(x, x, n)


def _single(value: float) -> float:
    """The nearest number of single precision."""
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    return float(single)
