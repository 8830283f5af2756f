"""Functions of the elements of a vector, in registers.

Each is the same in runtime/portable/elementwise.c. Errors in units in the last place (ulp) of the result, measured
against double precision over dense ranges, are in tests/test_elementwise_kernels.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from gen.dsl import Exponential, Memory, NaturalExponential, Register, VectorUnit

# e^x is infinite in single precision from 88.72 on, and denormal below -87.33.
_MOST = 88.7
_LEAST = -87.0

# (2^r - 1) / r for |r| <= 1/2, of r^5 down to r^0: fitted as in exponential.py to the least relative error, 1.1e-8.
_EXPM1_COEFFICIENTS = (1.54035111e-04, 1.33907355e-03, 9.61823750e-03, 5.55035743e-02, 2.40226498e-01, 6.93147188e-01)

# erfc(a / sqrt(2)) e^(a^2 / 2) / 2 for 0 <= a <= 14 as a quotient of polynomials, highest power first: linear least
# squares on numerator - quotient * denominator with Lawson's weights, relative error 5.5e-9. All coefficients are
# positive, so that nothing cancels. Degrees 4 and 4: 1.4e-7.
_TAIL_NUMERATOR = (0.00407773, 0.04037362, 0.18246535, 0.43725622, 0.5)
_TAIL_DENOMINATOR = (0.01022122, 0.10120845, 0.46743827, 1.19930625, 1.6723974, 1.0)
_TAIL_END = 14.0


class Function(ABC):
    """A function; holds the registers that it works with. `parameters` are those of the kernel's argument."""

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        self.v = v

    @abstractmethod
    def __call__(self, x: Register) -> None:
        """x = f(x)"""

    def held(self, value: float, name: str) -> Register:
        """A register that holds a number in every lane."""
        register = self.v.a.vector(name, "constant")
        self.v.load_constant(register, value)
        return register

    def polynomial(self, dst: Register, x: Register, coefficients: Sequence[float]) -> None:
        """dst = the polynomial of x, by Horner's rule"""
        self.v.load_constant(dst, coefficients[0])
        for coefficient in coefficients[1:]:
            self.v.a.VFMADD213PS(dst, x, self.v.constant(coefficient))


class Nothing(Function):
    """f(x) = x"""

    def __call__(self, x: Register) -> None:
        pass


class Silu(Function):
    """f(x) = x / (1 + e^(-factor u)), u = x here; 0 where the quotient's magnitude is below about 3e-37"""

    factor = 1.0

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        a = self.v.a
        self.least = self.held(-_MOST / self.factor, "least")
        self.most = self.held(-_LEAST / self.factor, "most")
        self.exponential = NaturalExponential(self.v, -self.factor)
        self.clamped = a.vector("clamped", "u within what its exponential can be taken of")
        self.power = a.vector("power", "e^(-factor u)")
        (self.kept,) = self.v.masks("kept", "lanes where u is not too small", 1)

    def argument(self, x: Register) -> Register:
        """u, and whatever else is not yet in its place"""
        return x

    def numerator(self, x: Register) -> Register:
        """What is divided"""
        return x

    def __call__(self, x: Register) -> None:
        v, u = self.v, self.argument(x)
        v.not_less(self.kept, u, self.least)
        # A NaN passes minimum and maximum where it is their second operand.
        v.maximum(self.clamped, self.least, u)
        v.minimum(self.clamped, self.most, self.clamped)
        self.exponential(self.power, self.clamped)
        v.add(self.power, self.power, v.constant(1.0))
        v.divide(x, self.numerator(x), self.power)
        v.keep(x, self.kept)


class GeluQuick(Silu):
    """f(x) = x / (1 + e^(-1.702 x))"""

    factor = 1.702


class Gelu(Silu):
    """f(x) = x / (1 + e^-u), u = 2 sqrt(2 / pi) (x + 0.044715 x^3) = 2 x (c + 0.044715 c x^2): (1 + tanh(u / 2)) / 2"""

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.u = self.v.a.vector("u", "as in the formula")

    def argument(self, x: Register) -> Register:
        v, c = self.v, 2 * math.sqrt(2 / math.pi)
        v.multiply(self.u, x, x)
        v.multiply(self.u, self.u, v.constant(0.044715 * c))
        v.add(self.u, self.u, v.constant(c))
        v.multiply(self.u, self.u, x)
        return self.u


class Sigmoid(Silu):
    """f(x) = 1 / (1 + e^-x)"""

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.one = self.held(1.0, "one")

    def numerator(self, x: Register) -> Register:
        return self.one


class GeluErf(Function):
    """f(x) = max(x, 0) - a q(a), a = |x|, q(a) = erfc(a / sqrt(2)) / 2 = e^(-a^2 / 2) numerator(a) / denominator(a)

    For positive x nothing cancels: a q(a) is less than x / 2.
    """

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        a = self.v.a
        self.sign = self.held(-0.0, "sign")
        self.zero = a.vector("zero", "constant")
        self.v.zero(self.zero)
        self.magnitude = a.vector("a", "|x|, no more than the end")
        self.power = a.vector("power", "e^(-a^2 / 2), then a q(a)")
        self.polynomials = a.vectors("p", "numerator and denominator", 2)
        self.exponential = Exponential(self.v)

    def __call__(self, x: Register) -> None:
        v, (numerator, denominator) = self.v, self.polynomials
        v.a.VANDNPS(self.magnitude, self.sign, x)
        v.minimum(
            self.magnitude, self.magnitude, v.constant(_TAIL_END)
        )  # a NaN becomes the end, but max(x, 0) keeps it
        v.multiply(self.power, self.magnitude, self.magnitude)
        v.multiply(self.power, self.power, v.constant(-0.5 / math.log(2)))
        self.exponential(self.power)
        self.polynomial(numerator, self.magnitude, _TAIL_NUMERATOR)
        self.polynomial(denominator, self.magnitude, _TAIL_DENOMINATOR)
        v.multiply(self.power, self.power, self.magnitude)
        v.multiply(numerator, numerator, self.power)
        v.divide(numerator, numerator, denominator)
        v.maximum(x, self.zero, x)
        v.a.VSUBPS(x, x, numerator)


class Tanh(Function):
    """f(x) = m / (m + 2), m = e^(2 x) - 1 = 2^n (2^r - 1) + (2^n - 1), which cancels nowhere near 0

    |x| is cut off at 9.2: from 9.02 on the result is 1.
    """

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.least, self.most = self.held(-9.2, "least"), self.held(9.2, "most")
        self.exponential = NaturalExponential(self.v, 2.0)
        self.m = self.v.a.vector("m", "2^r - 1, then m")
        self.power = self.v.a.vector("power", "2^n")

    def __call__(self, x: Register) -> None:
        v, a, exponential = self.v, self.v.a, self.exponential
        v.maximum(x, self.least, x)
        v.minimum(x, self.most, x)
        exponential.reduce(x)
        exponential.polynomial(self.m, _EXPM1_COEFFICIENTS)
        v.multiply(self.m, self.m, exponential.rest)
        a.VPSLLD(exponential.exponent, exponential.exponent, 23)
        v.load_constant(self.power, 1.0)
        a.VPADDD(self.power, self.power, exponential.exponent)
        v.add(x, self.power, v.constant(-1.0))
        a.VFMADD213PS(self.m, self.power, x)
        v.add(x, self.m, v.constant(2.0))
        v.divide(x, self.m, x)


class Exp(Function):
    """f(x) = 2^(n - h) (2^h 2^r), h = n / 2: two factors, so that the result may be infinite, denormal or 0"""

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.least, self.most = self.held(-104.0, "least"), self.held(89.0, "most")
        self.exponential = NaturalExponential(self.v, 1.0)
        self.power = self.v.a.vector("power", "2^(n - h)")
        self.half = self.v.a.vector("half", "h")

    def __call__(self, x: Register) -> None:
        v, a, exponential = self.v, self.v.a, self.exponential
        v.maximum(x, self.least, x)
        v.minimum(x, self.most, x)
        exponential.reduce(x)
        exponential.polynomial(x)
        a.VPSRAD(self.half, exponential.exponent, 1)
        a.VPSUBD(exponential.exponent, exponential.exponent, self.half)
        for n in (self.half, exponential.exponent):
            a.VPSLLD(n, n, 23)
        a.VPADDD(x, x, self.half)
        v.load_constant(self.power, 1.0)
        a.VPADDD(self.power, self.power, exponential.exponent)
        v.multiply(x, x, self.power)


class Relu(Function):
    """f(x) = max(x, 0)"""

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.zero = self.v.a.vector("zero", "constant")
        self.v.zero(self.zero)

    def __call__(self, x: Register) -> None:
        self.v.maximum(x, self.zero, x)


class Leaky(Relu):
    """f(x) = max(x, 0) + slope min(x, 0)"""

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.slope = self.v.a.vector("slope", "parameter 0")
        self.v.broadcast(self.slope, parameters[0])
        self.negative = self.v.a.vector("negative", "min(x, 0)")

    def __call__(self, x: Register) -> None:
        self.v.minimum(self.negative, self.zero, x)
        super().__call__(x)
        self.v.fma(x, self.slope, self.negative)


class Clamp(Function):
    """f(x) = min(max(x, p[0]), p[1])"""

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.limits = self.v.a.vectors("limits", "parameters", 2)
        for limit, parameter in zip(self.limits, parameters, strict=True):
            self.v.broadcast(limit, parameter)

    def __call__(self, x: Register) -> None:
        self.v.maximum(x, self.limits[0], x)
        self.v.minimum(x, self.limits[1], x)


# By the name that the kernel bears: the function, and its formula for the banner.
FUNCTIONS: dict[str, tuple[type[Function], str]] = {
    "none": (Nothing, "t"),
    "silu": (Silu, "t / (1 + e^-t)"),
    "gelu": (Gelu, "t / (1 + e^-2u), u = sqrt(2 / pi) (t + 0.044715 t^3)"),
    "gelu_erf": (GeluErf, "t / 2 (1 + erf(t / sqrt(2)))"),
    "gelu_quick": (GeluQuick, "t / (1 + e^(-1.702 t))"),
    "sigmoid": (Sigmoid, "1 / (1 + e^-t)"),
    "tanh": (Tanh, "tanh(t)"),
    "relu": (Relu, "max(t, 0)"),
    "leaky": (Leaky, "max(t, 0) + parameter[0] min(t, 0)"),
    "clamp": (Clamp, "min(max(t, parameter[0]), parameter[1])"),
    "exp": (Exp, "e^t"),
}
