"""Functions of the elements of a vector, in registers.

Each is the same in runtime/portable/elementwise.c. How far results may be from the exact ones is in tests/functions.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from gen.dsl import COEFFICIENTS, Memory, NaturalExponential, Register, VectorUnit, polynomial

# e^x is infinite in single precision from 88.72 on, and denormal below -87.33.
_MOST = 88.7
_LEAST = -87.0

# (2^r - 1) / r for |r| <= 1/2, of r^5 down to r^0: fitted as in gen/dsl/exponential.py to the least relative error,
# 1.1e-8.
_EXPM1_COEFFICIENTS = (1.54035111e-04, 1.33907355e-03, 9.61823750e-03, 5.55035743e-02, 2.40226498e-01, 6.93147188e-01)

# erfc(-b / sqrt(2)) e^(b^2 / 2) / 2 for -14 <= b <= 0 as a quotient of polynomials, highest power first: linear least
# squares on numerator - quotient * denominator with Lawson's weights, relative error 5.5e-9. All terms are positive, so
# that nothing cancels. Degrees 4 and 4: 1.4e-7.
_TAIL_NUMERATOR = (0.00407773, -0.04037362, 0.18246535, -0.43725622, 0.5)
_TAIL_DENOMINATOR = (-0.01022122, 0.10120845, -0.46743827, 1.19930625, -1.6723974, 1.0)
_TAIL_END = -13.2  # e^(-b^2 / 2) is denormal from -13.21 on


@dataclass(frozen=True)
class Scratch:
    """Registers that a function may use beside that of its argument."""

    vectors: tuple[Register, ...]
    mask: Register | None


class Function(ABC):
    """A function; holds the constants that stay in registers. `parameters` are those of the kernel's argument."""

    scratch = 0  # vectors that it needs beside its argument
    masks = False  # whether it needs a mask

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        self.v = v

    @abstractmethod
    def __call__(self, x: Register, scratch: Scratch) -> None:
        """x = f(x)"""

    def held(self, value: float, name: str) -> Register:
        """A register that holds a number in every lane."""
        register = self.v.a.vector(name, f"{value:.9g}")
        self.v.load_constant(register, value)
        return register

    def clamp(self, dst: Register, least: Register, x: Register, most: Register) -> None:
        """dst = min(max(x, least), most), x where it is NaN, as minimum and maximum pass their second operand then"""
        self.v.maximum(dst, least, x)
        self.v.minimum(dst, most, dst)


class Nothing(Function):
    """f(x) = x"""

    def __call__(self, x: Register, scratch: Scratch) -> None:
        pass


class Silu(Function):
    """f(x) = x / (1 + e^(-factor u)), u = x here; 0 where it would be below about 3e-37 in magnitude"""

    factor = 1.0
    scratch = 3
    masks = True

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.least = self.held(-_MOST / self.factor, "least")
        self.most = self.held(-_LEAST / self.factor, "most")
        self.exponential = NaturalExponential(v, -self.factor)

    def argument(self, x: Register, u: Register, spare: Register) -> Register:
        """The register of u: that of x, or the one given"""
        return x

    def numerator(self, x: Register) -> None:
        """x = what is divided"""

    def __call__(self, x: Register, scratch: Scratch) -> None:
        v, (power, n, r), kept = self.v, scratch.vectors, scratch.mask
        assert kept is not None
        u = self.argument(x, power, n)
        v.not_less(kept, u, v.constant(-_MOST / self.factor))
        self.clamp(power, self.least, u, self.most)
        self.exponential(power, n, r)
        v.add(power, power, v.constant(1.0))
        self.numerator(x)
        v.divide(x, x, power)
        v.keep(x, kept)


class GeluQuick(Silu):
    """f(x) = x / (1 + e^(-1.702 x))"""

    factor = 1.702


class Gelu(Silu):
    """f(x) = x / (1 + e^-u), u = 2 sqrt(2 / pi) (x + 0.044715 x^3), which is x (1 + tanh(u / 2)) / 2"""

    def argument(self, x: Register, u: Register, spare: Register) -> Register:
        v, c = self.v, 2 * math.sqrt(2 / math.pi)
        v.multiply(spare, x, x)
        polynomial(v, u, spare, (0.044715 * c, c))
        v.multiply(u, u, x)
        return u


class Sigmoid(Silu):
    """f(x) = 1 / (1 + e^-x)"""

    def numerator(self, x: Register) -> None:
        self.v.load_constant(x, 1.0)


class GeluErf(Function):
    """f(x) = max(x, 0) + b q(b), b = -|x|, q(b) = erfc(-b / sqrt(2)) / 2 = e^(-b^2 / 2) numerator(b) / denominator(b)

    For positive x nothing cancels: b q(b) is less than x / 2. It is 0 where x is less than -13.2.
    """

    scratch = 4
    masks = True

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.exponential = NaturalExponential(v, -0.5)

    def __call__(self, x: Register, scratch: Scratch) -> None:
        v, (b, power, n, r), kept = self.v, scratch.vectors, scratch.mask
        assert kept is not None
        v.load_constant(b, -0.0)
        v.a.VORPS(b, b, x)
        v.not_less(kept, b, v.constant(_TAIL_END))
        v.maximum(b, b, v.constant(_TAIL_END))  # of a NaN the end, but max(x, 0) keeps it
        v.multiply(power, b, b)
        self.exponential(power, n, r)
        v.multiply(power, power, b)
        polynomial(v, n, b, _TAIL_NUMERATOR)
        polynomial(v, r, b, _TAIL_DENOMINATOR)
        v.multiply(power, power, n)
        v.divide(power, power, r)
        v.keep(power, kept)
        v.zero(n)
        v.maximum(x, n, x)
        v.add(x, x, power)


class Tanh(Function):
    """f(x) = m / (m + 2), m = e^(2 x) - 1 = 2^n (2^r - 1) + (2^n - 1), which cancels nowhere near 0

    |x| is cut off at 9.2: from 9.02 on the result is 1.
    """

    scratch = 3

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.least, self.most = self.held(-9.2, "least"), self.held(9.2, "most")
        self.exponential = NaturalExponential(v, 2.0)

    def __call__(self, x: Register, scratch: Scratch) -> None:
        v, a, (m, n, r) = self.v, self.v.a, scratch.vectors
        self.clamp(x, self.least, x, self.most)
        self.exponential.reduce(x, n, r)
        polynomial(v, m, r, _EXPM1_COEFFICIENTS)
        v.multiply(m, m, r)
        a.VPSLLD(n, n, 23)
        v.load_constant(r, 1.0)
        a.VPADDD(n, n, r)
        a.VSUBPS(r, n, r)
        a.VFMADD213PS(m, n, r)
        v.add(x, m, v.constant(2.0))
        v.divide(x, m, x)


class Exp(Function):
    """f(x) = 2^(n - h) (2^h 2^r), h = n / 2: two factors, so that the result may be infinite, denormal or 0"""

    scratch = 3

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.least, self.most = self.held(-104.0, "least"), self.held(89.0, "most")
        self.exponential = NaturalExponential(v, 1.0)

    def __call__(self, x: Register, scratch: Scratch) -> None:
        v, a, (half, n, r) = self.v, self.v.a, scratch.vectors
        self.clamp(x, self.least, x, self.most)
        self.exponential.reduce(x, n, r)
        polynomial(v, x, r, COEFFICIENTS)
        a.VPSRAD(half, n, 1)
        a.VPSUBD(n, n, half)
        a.VPSLLD(half, half, 23)
        a.VPSLLD(n, n, 23)
        a.VPADDD(x, x, half)
        v.load_constant(r, 1.0)
        a.VPADDD(n, n, r)
        v.multiply(x, x, n)


class Relu(Function):
    """f(x) = max(x, 0)"""

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.zero = v.a.vector("zero", "0")
        v.zero(self.zero)

    def __call__(self, x: Register, scratch: Scratch) -> None:
        self.v.maximum(x, self.zero, x)


class Leaky(Relu):
    """f(x) = max(x, 0) + slope min(x, 0)"""

    scratch = 1

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.slope = v.a.vector("slope", "parameter 0")
        v.broadcast(self.slope, parameters[0])

    def __call__(self, x: Register, scratch: Scratch) -> None:
        (negative,) = scratch.vectors
        self.v.minimum(negative, self.zero, x)
        super().__call__(x, scratch)
        self.v.fma(x, self.slope, negative)


class Clamp(Function):
    """f(x) = min(max(x, p[0]), p[1])"""

    def __init__(self, v: VectorUnit, parameters: Sequence[Memory]) -> None:
        super().__init__(v, parameters)
        self.limits = v.a.vectors("limits", "parameters", 2)
        for limit, parameter in zip(self.limits, parameters, strict=True):
            v.broadcast(limit, parameter)

    def __call__(self, x: Register, scratch: Scratch) -> None:
        self.clamp(x, self.limits[0], x, self.limits[1])


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
