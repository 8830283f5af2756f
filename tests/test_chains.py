"""The order of the sums: each number of C is the sum of the chains that runtime/gemm.c says it is made of, bit for bit.

Accuracy stands on that, and so does that neither threads nor levels change a result."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import first_difference
from tests.operations import Array, Conv2d, Matmul, Run, Tile, chain_length, default_blocking, every_tile, loaded
from tests.sdgen_native import Blocking, Type

DEPTHS = [1, 11, 12, 23, 24, 35, 36, 40, 72, 77, 80, 95, 128, 144, 191, 256, 288, 320, 768, 1000, 2880]
BLOCKINGS = [None, Blocking(100, 18, 48, 40000), Blocking(512, 100, 100, 10**8)]


def summed(a: Array, b: Array, length: int) -> Array:
    """The product of a [rows][depth] and b [depth][columns] by chains of fused multiply-adds of that length, each from
    zero, added in their order."""
    c = np.full((len(a), b.shape[1]), np.nan, np.float32)
    for begin in range(0, a.shape[1], length):
        a_block = np.ascontiguousarray(a[:, begin : begin + length].T)
        b_block = np.ascontiguousarray(b[begin : begin + length])
        epilogue = native.Epilogue(None, None, b.shape[1], int(begin > 0), 1.0)
        sizes, addresses = (*c.shape, len(a_block)), (a_block.ctypes.data, b_block.ctypes.data, c.ctypes.data)
        native.test_gemm(*sizes, *addresses, c.strides[0], epilogue)
    return c


def check(what: str, c: NDArray[np.float32], a: Array, b: Array, run: Run) -> None:
    depth = a.shape[1]
    length = chain_length(depth, (run.blocking or default_blocking()).kc)
    difference = first_difference(c, summed(a, b, length))
    if difference:
        # That the message says what was done instead.
        others = [other for other in range(1, depth + 1) if not first_difference(c, summed(a, b, other))]
        done = f"they are of {others[0]}" if others else "no even cut of the depth gives them"
        pytest.fail(f"{what}: not the sum of chains of {length}, but {done}: {difference}")


@pytest.mark.parametrize("blocking", BLOCKINGS, ids=str)
@every_tile
def test_matmul(tile: Tile, blocking: Blocking | None, rng: np.random.Generator) -> None:
    for k in DEPTHS:
        case, run = Matmul(37, 53, k, w_type=Type(k % 3)), Run(tile, threads=2, blocking=blocking)
        w, x, bias = case.data(rng)
        c = case.compute((w, x, bias), run)
        check(f"{case} {run}", c[0, 0], x[0, 0], loaded(w, case.w_type)[0, 0].T, run)


@pytest.mark.parametrize("blocking", BLOCKINGS, ids=str)
@every_tile
def test_conv2d(tile: Tile, blocking: Blocking | None, rng: np.random.Generator) -> None:
    run = Run(tile, threads=2, blocking=blocking)
    cases = [Conv2d(channels, 19, (15, 9), (1, 1)) for channels in DEPTHS]
    cases += [Conv2d(channels, 19, (15, 9), stride=(2, 2), pad=(1, 1)) for channels in (1, 2, 4, 8, 16, 21, 32, 90)]
    for case in cases:
        w, x, bias = case.data(rng)
        c = case.compute((w, x, bias), run)
        weights = np.ascontiguousarray(w.reshape(case.channels_out, -1))
        check(f"{case} {run}", c.reshape(case.channels_out, -1), weights, case.patches(x)[0], run)
