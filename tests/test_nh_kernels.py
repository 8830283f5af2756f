"""NH, called through the trampoline with its arrays between guard pages."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.guarded import Flush, Guards, guards
from tests.test_kernels import kernels_of

Words = NDArray[np.uint64]

LINES = (*range(1, 10), 16)
HALF, LOW = np.uint64(32), np.uint64(2**32 - 1)


def exact(data: Words, secrets: Words) -> list[np.uint64]:
    shifted = (secrets[8 * p : 8 * p + data.size] for p in range(4))
    return [np.sum((data + s & LOW) * ((data >> HALF) + (s >> HALF) & LOW)) for s in shifted]


def random_words(rng: np.random.Generator, lines: int) -> tuple[Words, Words]:
    """Data and secrets, with halves of the least and the largest numbers among them."""
    words = rng.integers(0, 2**64, 16 * lines + 24, np.uint64)
    words[rng.random(words.size) < 0.2] = 2**64 - 1
    words[rng.random(words.size) < 0.2] = 0
    return words[: 8 * lines], words[8 * lines :]


def check_nh(kernel: native.Kernel, arrays: Guards, data: Words, secrets: Words, shift: int = 0) -> None:
    """Data that begins `shift` bytes behind the start of an array."""
    placed = arrays.copy("data", np.concatenate([np.zeros(shift, np.uint8), data.view(np.uint8)]))
    s, sums = arrays.copy("secrets", secrets), arrays.array("sums", (4,), np.dtype(np.uint64))
    what = f"{kernel.name} size={data.nbytes} shift={shift} {arrays.flush}"
    arrays.call(what, kernel.function, data.nbytes, placed.ctypes.data + shift, s.ctypes.data, sums.ctypes.data)
    assert np.array_equal(sums, exact(data, secrets)), what


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("kernel", kernels_of("nh", ("u32",)))
def test_nh(kernel: native.Kernel, flush: Flush, rng: np.random.Generator) -> None:
    for lines in LINES:
        for shift in (0, 1, 31):
            with guards(flush) as arrays:
                check_nh(kernel, arrays, *random_words(rng, lines), shift)
