"""Functions of the elements of a run, and sums, called through the trampoline with their arrays between guard pages."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from gen import contract, isa
from tests import sdgen_native as native
from tests.exact import first_difference
from tests.functions import PARAMETERS, allowed, exact
from tests.guarded import Flush, Guards, guards
from tests.operations import Array
from tests.sdgen_native import Function, Level
from tests.test_kernels import kernels_of

OPERANDS = ("weight", "addend", "factor")


def map_kernels() -> list[object]:
    return [parameter for function in Function for parameter in kernels_of(f"map_{function.name.lower()}")]


every_map_kernel = pytest.mark.parametrize("kernel", map_kernels())


def function_of(kernel: native.Kernel) -> Function:
    return Function[kernel.operation.removeprefix("map_").upper()]


def lanes_of(kernel: native.Kernel) -> int:
    return 16 if kernel.level == Level.C else isa.LEVELS[native.level_name(kernel.level)].lanes


def test_structure_is_the_contracts() -> None:
    offsets = {name: getattr(native.MapRun, name).offset for name, *_ in native.MapRun._fields_}
    assert offsets == {name: contract.MAP_RUN.offset(name) for _, name, _ in contract.MAP_RUN.fields}


def short_numbers(rng: np.random.Generator, n: int) -> Array:
    """Numbers of so few bits that products of three of them are exact."""
    return (rng.integers(-64, 65, n) / 16).astype(np.float32)


def call(
    kernel: native.Kernel,
    arrays: Guards,
    x: Array,
    scale: float = 1,
    shift: float = 0,
    in_place: str = "",
    **operands: Array,
) -> Array:
    """y, which is the array that in_place names, or one of its own."""
    placed = {name: arrays.copy(name, values) for name, values in {"x": x, **operands}.items()}
    y = placed[in_place] if in_place else arrays.array("y", x.shape)
    addresses = [placed[name].ctypes.data if name in placed else None for name in OPERANDS]
    run = native.MapRun(
        *(placed["x"].ctypes.data, y.ctypes.data, x.size, *addresses, scale, shift),
        PARAMETERS.get(function_of(kernel), (0, 0)),
    )
    structure = arrays.copy("run", np.frombuffer(bytes(run), np.uint8))
    what = f"{kernel.name} n={x.size} {[*operands]} in place of {in_place or 'nothing'} {arrays.flush}"
    before = {name: values.copy() for name, values in placed.items()}
    arrays.call(what, kernel.function, structure.ctypes.data)
    for name, values in placed.items():
        assert name == in_place or not first_difference(values, before[name]), f"{what}: {name} was written"
    return y.copy()


def check_map(
    kernel: native.Kernel, arrays: Guards, rng: np.random.Generator, n: int, names: tuple[str, ...], in_place: str = ""
) -> None:
    """A run with the operands named, against double precision."""
    operands = {name: short_numbers(rng, n) for name in names}
    x, scale, shift = short_numbers(rng, n), *((1.0, 0.0) if n % 3 == 0 else (-0.75, 1.5))
    y = call(kernel, arrays, x, scale, shift, in_place, **operands)
    t = (x.astype(np.float64) * scale + shift) * operands.get("weight", 1) + operands.get("addend", 0)
    assert np.all(t == t.astype(np.float32))
    function = function_of(kernel)
    expected = exact(function, t)
    most = allowed(function, t, expected)
    if "factor" in operands:
        most = np.abs(operands["factor"]) * most + np.abs(expected * operands["factor"]) * 2.0**-24
        expected = expected * operands["factor"]
    assert np.all(np.abs(y - expected) <= most), f"{kernel.name} n={n} {names}: {np.max(np.abs(y - expected) - most)}"


SUBSETS = [tuple(name for name, given in zip(OPERANDS, choice, strict=True) if given)
           for choice in product((False, True), repeat=3)]  # fmt: skip


@pytest.mark.parametrize("flush", Flush)
@every_map_kernel
def test_map(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    """Each length up to two passes and one element, with each choice of operands."""
    for n, names in product((*range(4 * lanes_of(kernel) + 2), 300), SUBSETS):
        with guards(flush) as arrays:
            check_map(kernel, arrays, rng, n, names)


@every_map_kernel
def test_map_in_place(kernel: native.Kernel, rng: np.random.Generator) -> None:
    for n, names in product((1, lanes_of(kernel), 5 * lanes_of(kernel) - 1, 300), SUBSETS):
        for in_place in ("x", *names):
            with guards(Flush.END) as arrays:
                check_map(kernel, arrays, rng, n, names, in_place)


def accuracy_arguments(rng: np.random.Generator) -> Array:
    """Dense where the functions bend, less so to where they are 0 or infinite, and every magnitude."""
    magnitudes = 2.0 ** rng.uniform(-149, 8, 40000) * rng.choice([-1, 1], 40000)
    ranges = (np.linspace(-2, 2, 60001), np.linspace(-15, 15, 60001), np.linspace(-110, 110, 60001), magnitudes)
    return np.concatenate(ranges).astype(np.float32)


@every_map_kernel
def test_accuracy(kernel: native.Kernel, rng: np.random.Generator) -> None:
    function, x = function_of(kernel), accuracy_arguments(rng)
    with guards(Flush.END) as arrays:
        y = call(kernel, arrays, x)
    with np.errstate(over="ignore"):
        expected = exact(function, x)
        infinite = np.isinf(expected.astype(np.float32))
    assert np.all(y[infinite] == np.inf)
    error = np.abs(y - expected)[~infinite]
    excess = error - allowed(function, x[~infinite], expected[~infinite])
    worst = int(np.argmax(excess))
    assert excess[worst] <= 0, f"f({x[~infinite][worst]}): error {error[worst]:.3g}"


@every_map_kernel
def test_gelu_is_more_exact_than_ggmls(kernel: native.Kernel) -> None:
    """Whose largest error for |x| <= 12 is 4.5e-7; ours is that of rounding the result, below 8."""
    if function_of(kernel) is Function.GELU_ERF:
        x = np.linspace(-12, 7.99, 200001).astype(np.float32)
        with guards(Flush.END) as arrays:
            y = call(kernel, arrays, x)
        assert np.max(np.abs(y - exact(Function.GELU_ERF, x))) <= 2.5e-7


HUGE = (89.5, 200.0, 1e19, 1e30, 3e38, math.inf)

# f(x) for x from 89.5 on, and for -x; None: x itself, or -x.
AT_THE_ENDS: dict[Function, tuple[float | None, float | None]] = {
    Function.NONE: (None, None),
    Function.SILU: (None, 0.0),
    Function.GELU: (None, 0.0),
    Function.GELU_ERF: (None, 0.0),
    Function.GELU_QUICK: (None, 0.0),
    Function.SIGMOID: (1.0, 0.0),
    Function.TANH: (1.0, -1.0),
    Function.RELU: (None, 0.0),
    Function.CLAMP: (PARAMETERS[Function.CLAMP][1], PARAMETERS[Function.CLAMP][0]),
}


@every_map_kernel
def test_numbers_beyond_all_bounds(kernel: native.Kernel) -> None:
    function = function_of(kernel)
    x = np.array([*HUGE, *(-number for number in HUGE), 0.0, np.nan], np.float32)
    with guards(Flush.END) as arrays:
        y = call(kernel, arrays, x)
    assert np.isnan(y[-1]) and y[-2] == {Function.SIGMOID: 0.5, Function.EXP: 1.0}.get(function, 0.0)
    above, below = y[: len(HUGE)], y[len(HUGE) : -2]
    if function is Function.EXP:
        assert np.all(above == np.inf) and np.all(below <= 2.0**-128) and below[-1] == 0
    elif function is Function.LEAKY:
        assert np.all(above == x[: len(HUGE)]) and np.all(below == x[len(HUGE) : -2] * np.float32(0.125))
    else:
        for values, ends, given in ((above, AT_THE_ENDS[function][0], 1), (below, AT_THE_ENDS[function][1], -1)):
            expected = given * x[: len(HUGE)] if ends is None else np.full(len(HUGE), ends, np.float32)
            assert np.all(values == expected)


@pytest.mark.parametrize("kernel", kernels_of("map_none"))
def test_multiply_adds_are_rounded_once(kernel: native.Kernel) -> None:
    """(1 + 2^-23) (1 - 2^-23) - 1 = -2^-46"""
    n = 2 * lanes_of(kernel) + 1
    above, below, least = np.float32(1 + 2.0**-23), np.float32(1 - 2.0**-23), np.float32(-1)
    with guards(Flush.END) as arrays:
        assert np.all(call(kernel, arrays, np.full(n, above), float(below), -1.0) == -(2.0**-46))
    with guards(Flush.END) as arrays:
        y = call(kernel, arrays, np.full(n, above), weight=np.full(n, below), addend=np.full(n, least))
        assert np.all(y == -(2.0**-46))


# ---- moments ----


def check_moments(kernel: native.Kernel, arrays: Guards, x: Array, start: NDArray[np.float64]) -> NDArray[np.float64]:
    placed, sums = arrays.copy("x", x), arrays.copy("sums", start)
    arrays.call(
        f"{kernel.name} n={x.size} {arrays.flush}", kernel.function, x.size, placed.ctypes.data, sums.ctypes.data
    )
    return sums.copy()


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", kernels_of("moments"))
def test_moments(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    """Integers, so that every order of the sums is exact."""
    for n in (*range(8 * lanes_of(kernel) + 2), 1000, 5003):
        x = rng.integers(-1000, 1001, n).astype(np.float32)
        start = np.array([0.5, -3.0])
        with guards(flush) as arrays:
            sums = check_moments(kernel, arrays, x, start)
        wide = x.astype(np.float64)
        assert np.array_equal(sums, start + np.array([np.sum(wide), np.sum(wide**2)])), f"n={n}"


@pytest.mark.parametrize("kernel", kernels_of("moments"))
def test_moments_are_sums_in_double_precision(kernel: native.Kernel, rng: np.random.Generator) -> None:
    """Within the bound of n roundings."""
    x = (100 + rng.standard_normal(10007)).astype(np.float32)
    with guards(Flush.END) as arrays:
        sums = check_moments(kernel, arrays, x, np.zeros(2))
    for power, result in zip((1, 2), sums, strict=True):
        expected = math.fsum(float(value) ** power for value in x)
        assert abs(result - expected) <= expected * x.size * 2.0**-53


@pytest.mark.parametrize("kernel", kernels_of("moments"))
def test_moments_of_what_is_not_finite(kernel: native.Kernel) -> None:
    for place in (0, 30, 99):
        for value in (np.nan, np.inf):
            x = np.ones(100, np.float32)
            x[place] = value
            with guards(Flush.END) as arrays:
                sums = check_moments(kernel, arrays, x, np.zeros(2))
            assert not np.any(np.isfinite(sums))


# ---- the largest element ----


def check_maximum(kernel: native.Kernel, arrays: Guards, x: Array, start: float) -> float:
    placed, largest = arrays.copy("x", x), arrays.copy("maximum", np.array([start], np.float32))
    arrays.call(
        f"{kernel.name} n={x.size} {arrays.flush}", kernel.function, x.size, placed.ctypes.data, largest.ctypes.data
    )
    return float(largest[0])


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", kernels_of("maximum"))
def test_maximum(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    """At each place of each length up to two passes, beside NaNs and infinities, all of them negative but one."""
    for n in (*range(8 * lanes_of(kernel) + 2), 1000, 5003):
        x = -1 - rng.random(n, np.float32)
        with guards(flush) as arrays:
            assert check_maximum(kernel, arrays, x, -np.inf) == np.max(x, initial=-np.inf)
        for place in rng.integers(0, max(n, 1), min(n, 8)):
            x[place] = -0.5
            x[rng.integers(0, n, n // 3)] = -np.inf
            x[rng.integers(0, n, n // 3)] = np.nan
            with guards(flush) as arrays:
                assert check_maximum(kernel, arrays, x, -0.75) == np.fmax.reduce(x, initial=np.float32(-0.75))


@pytest.mark.parametrize("kernel", kernels_of("maximum"))
def test_maximum_of_what_is_not_finite(kernel: native.Kernel) -> None:
    x = np.full(100, -np.inf, np.float32)
    for expected, place in ((-np.inf, 0), (np.inf, 99), (np.inf, 98)):
        x[place] = expected
        with guards(Flush.END) as arrays:
            assert check_maximum(kernel, arrays, x, -np.inf) == expected
    with guards(Flush.END) as arrays:
        assert check_maximum(kernel, arrays, np.full(100, np.nan, np.float32), 3.0) == 3.0
