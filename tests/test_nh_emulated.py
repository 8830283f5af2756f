"""NH on processors emulated with just the kernel's level."""

from __future__ import annotations

import numpy as np
import pytest

from tests import sdgen_native as native
from tests.emulated import emulated_guards
from tests.guarded import Flush
from tests.test_emulated_kernels import Processors, every_flush, kernels_of
from tests.test_emulated_kernels import processors as processors  # a fixture
from tests.test_nh_kernels import check_nh, random_words


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("nh"))
def test_nh(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for lines in (1, 2, 5):
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            check_nh(kernel, arrays, *random_words(rng, lines), shift=lines)
