"""Winograd's kernels on processors emulated with just their level."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests import sdgen_native as native
from tests.emulated import emulated_guards
from tests.guarded import Flush
from tests.test_emulated_kernels import Processors, every_flush, kernels_of
from tests.test_emulated_kernels import processors as processors  # a fixture
from tests.test_kernels import TAILS
from tests.test_winograd_kernels import check_gemm16, check_input, check_output, check_weights


@every_flush
@pytest.mark.parametrize("kernel", [*kernels_of("winograd_input"), *kernels_of("winograd_input_up")])
def test_input(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for channels, gap, masked in product((0, 1, 2, 3), (0, 5), (False, True, True, True)):
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            check_input(kernel, arrays, rng, channels, gap, masked)


@every_flush
@pytest.mark.parametrize("kernel", [*kernels_of("winograd_weights"), *kernels_of("winograd_weights_up")])
def test_weights(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for channels, gap in product((0, 1, 2, 3), (0, 5)):
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            check_weights(kernel, arrays, rng, channels, gap)


@every_flush
@pytest.mark.parametrize("kernel", [*kernels_of("winograd_output"), *kernels_of("winograd_output_up")])
def test_output(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for channels, gap, full, bias in product((0, 1, 3), (0, 5), (True, False, False, False), (False, True)):
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            check_output(kernel, arrays, rng, channels, gap, full, bias)


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("gemm16"))
def test_gemm16(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for columns in range(1, kernel.columns + 1):
        for k in (0, 1, 2, 9):
            with emulated_guards(flush, processors(kernel.level)) as arrays:
                check_gemm16(kernel, arrays, rng, columns, k, TAILS[(5 * columns + k) % len(TAILS)])
