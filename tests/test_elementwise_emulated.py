"""Elementwise kernels on processors emulated with just their level."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests import sdgen_native as native
from tests.emulated import emulated_guards
from tests.guarded import Flush
from tests.sdgen_native import Function
from tests.test_elementwise_kernels import SUBSETS, check_map, check_maximum, check_moments, lanes_of
from tests.test_emulated_kernels import Processors, every_flush, kernels_of
from tests.test_emulated_kernels import processors as processors  # a fixture


def map_kernels() -> list[object]:
    return [parameter for function in Function for parameter in kernels_of(f"map_{function.name.lower()}")]


@every_flush
@pytest.mark.parametrize("kernel", map_kernels())
def test_map(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    """Lengths below, at and beyond a pass, with each choice of operands."""
    lanes = lanes_of(kernel)
    for n, names in product((0, 1, lanes - 1, lanes + 1, 4 * lanes + 3), SUBSETS):
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            check_map(kernel, arrays, rng, n, names, in_place="x" if n % 2 else "")


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("moments"))
def test_moments(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for n in (0, 1, *range(2 * lanes_of(kernel) - 2, 2 * lanes_of(kernel) + 3), 7 * lanes_of(kernel) - 1):
        x = rng.integers(-1000, 1001, n).astype(np.float32)
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            sums = check_moments(kernel, arrays, x, np.zeros(2))
        wide = x.astype(np.float64)
        assert np.array_equal(sums, [np.sum(wide), np.sum(wide**2)])


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("maximum"))
def test_maximum(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for n in (0, 1, *range(2 * lanes_of(kernel) - 2, 2 * lanes_of(kernel) + 3), 7 * lanes_of(kernel) - 1):
        x = -1 - rng.random(n, np.float32)
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            assert check_maximum(kernel, arrays, x, -np.inf) == np.max(x, initial=-np.inf)
