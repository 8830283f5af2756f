"""Attention's kernels on processors emulated with just their level."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests import sdgen_native as native
from tests.emulated import emulated_guards
from tests.guarded import Flush
from tests.test_attention_kernels import Case, check_pack_rows, check_scores, check_unpack, row_strides
from tests.test_emulated_kernels import Processors, every_flush, kernels_of
from tests.test_emulated_kernels import processors as processors  # a fixture
from tests.test_kernels import SOURCE_BITS


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("scores"))
def test_scores(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for depth, tiles, raw in product((0, 3, 9), (1, 2), (False, True)):
        case = Case(depth, tiles, load=bool(depth % 2), raw=raw, bias=tiles == 2, gap=depth % 5, chunk=4 * tiles)
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            check_scores(kernel, arrays, rng, case)


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("pack_rows"))
def test_pack_rows(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    dtype = SOURCE_BITS[kernel.type]
    for columns, k in product(range(1, kernel.columns + 1), (0, 1, 6)):
        stride = row_strides(columns * dtype.itemsize, dtype.itemsize)[(columns + k) % 5]
        source = rng.integers(0, 2 ** (8 * dtype.itemsize), (k, columns), dtype)
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            check_pack_rows(kernel, arrays, source, stride)


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("unpack"))
def test_unpack(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for k, rows, gap in product((0, 3, 8, 19), (1, 3, 7, 8), (0, 5)):
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            check_unpack(kernel, arrays, rng, k, rows, gap)
