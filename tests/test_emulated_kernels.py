"""Every generated kernel with each of its tails, and whole operations, on processors emulated with just their level."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests import sdgen_native as native
from tests.emulated import emulated_guards, load_library
from tests.emulator.process import Emulator
from tests.exact import first_difference
from tests.guarded import Flush
from tests.operations import SMALL_BLOCKS, Conv2d, Matmul, Run, Tile
from tests.sdgen_native import Feature, Level, Type
from tests.test_dot_kernels import Case, check_dot
from tests.test_kernels import SOURCE_BITS, TAILS, check_gemm, check_pack, check_pack_patches

# The least processor of each level by name, so that anything beyond the level is an invalid opcode.
MODELS = {"avx2": "haswell", "avx512": "skylake-x"}
# The least with what a kernel needs beside its level.
FEATURE_MODELS = {
    Feature.AVX_VNNI: "arrow-lake",
    Feature.AVX512_VNNI: "icelake",
    Feature.AVX512_BF16: "sapphire-rapids",
    Feature.AVX512_FP16: "sapphire-rapids",
    Feature.AMX_BF16: "sapphire-rapids",
    Feature.AMX_INT8: "sapphire-rapids",
    Feature.AMX_FP16: "granite-rapids",
}

LEVELS = [level for level in Level if level != Level.C and native.sdgen_kernels(level)]

Processors = Callable[[Level], Emulator]


@pytest.fixture(scope="session")
def processors(emulators: Callable[[str], Emulator]) -> Processors:
    """The emulated processor of a level, with the library in its memory."""

    @functools.cache
    def processor(level: Level) -> Emulator:
        name = native.level_name(level)
        assert name in MODELS, f"no model of processor is known for level {name}"
        emulator = emulators(MODELS[name])
        load_library(emulator)
        return emulator

    return processor


def kernels_of(operation: str) -> list[object]:
    """The generated kernels of an operation, as test parameters."""
    return [
        pytest.param(kernel, id=kernel.name)
        for kernel in native.kernels()
        if kernel.operation == operation and kernel.level != Level.C
    ]


every_flush = pytest.mark.parametrize("flush", Flush)


# ---- kernels ----


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("gemm"))
def test_gemm(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    """Each number of columns with each tail, and with each k."""
    processor = processors(kernel.level)
    for columns in range(1, kernel.columns + 1):
        cases = [(5, tail) for tail in TAILS] + [(k, TAILS[(5 * columns + k) % len(TAILS)]) for k in (0, 1, 2, 9)]
        for k, tail in cases:
            with emulated_guards(flush, processor) as arrays:
                check_gemm(kernel, arrays, rng, columns, k, (0, 1, 17)[(columns + k) % 3], tail)


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("dot"))
def test_dot(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    """Each number of elements that a pass may leave, with and without passes."""
    for k in range(36):
        for length in (k, k + 64):
            case = Case(length, ((0, 0, 0), (1, 3, 1), (-1, -2, 5))[k % 3], (1.0, -0.375)[k % 2], bool(k & 2))
            with emulated_guards(flush, processors(kernel.level)) as arrays:
                check_dot(kernel, arrays, rng, case)


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("pack"))
def test_pack(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    dtype = SOURCE_BITS[kernel.type]
    for rows in range(1, kernel.columns + 1):
        for k in (*range(21), 33):
            tight = k * dtype.itemsize
            stride = (tight, tight + 1, -tight - 3, tight + 68)[(rows + k) % 4]
            source = rng.integers(0, 2 ** (8 * dtype.itemsize), (rows, k), dtype)
            with emulated_guards(flush, processors(kernel.level)) as arrays:
                check_pack(kernel, arrays, source, stride)


@every_flush
@pytest.mark.parametrize("kernel", kernels_of("pack_patches"))
def test_pack_patches(kernel: native.Kernel, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for channels, (gap, dst_gap), thorough in product(range(10), ((0, 0), (3, 5)), (False, False, True)):
        with emulated_guards(flush, processors(kernel.level)) as arrays:
            check_pack_patches(kernel, arrays, rng, channels, gap, dst_gap, thorough)


@pytest.mark.parametrize("kernel", kernels_of("probe"))
def test_probe(kernel: native.Kernel, processors: Processors, emulators: Callable[[str], Emulator]) -> None:
    if kernel.features:
        emulator = emulators(FEATURE_MODELS[Feature(kernel.features)])
        load_library(emulator)
    else:
        emulator = processors(kernel.level)
    with emulated_guards(Flush.END, emulator) as arrays:
        for rounds in (0, 1, 3):
            arrays.call(kernel.name, kernel.function, rounds)


# ---- whole operations ----


def tiles() -> list[Tile]:
    """The kernels that an operation can be computed with: of each level, chosen by shape or of one width."""
    return [
        Tile(level, columns)
        for level in LEVELS
        for columns in (0, *sorted({k.columns for k in native.kernels() if (k.operation, k.level) == ("gemm", level)}))
    ]


every_tile = pytest.mark.parametrize("tile", tiles(), ids=str)


def run_of(tile: Tile, processors: Processors, flush: Flush) -> Run:
    guards = functools.partial(emulated_guards, emulator=processors(tile.level))
    return Run(tile, flush, blocking=SMALL_BLOCKS, guards=guards)


MATMULS = [
    *(Matmul(m, n, 9, w_type=Type((m + n) % 3)) for m, n in product((1, 2, 5, 6, 7, 8, 9, 17), (1, 5, 6, 7, 8, 9, 13))),
    *(Matmul(m, n, 3) for m, n in product((15, 16, 17, 31, 33, 47, 49, 63, 65), (1, 11))),
    *(Matmul(n, m, 3) for m, n in product((15, 16, 17, 31, 33, 47, 49, 63, 65), (3, 11))),
    # Around the blocks' sizes.
    *(Matmul(m, n, k, bias=True) for m, n, k in ((19, 49, 23), (49, 19, 25), (18, 48, 49), (65, 25, 50))),
    Matmul(13, 21, 10, batch=(4, 2), w_repeat=(2, 1), w_type=Type.F16, scale=0.125),
    Matmul(13, 21, 10, batch=(2, 2), w_gap=3, x_gap=5, c_gap=7, batch_gap=2, bias=True),
    Matmul(7, 20, 8, batch=(3, 1), heads_inside=True, batch_gap=1, w_type=Type.BF16),
]

CONV2DS = [
    Conv2d(3, 7, (9, 8), pad=(1, 1)),
    Conv2d(5, 13, (17, 5), pad=(1, 1), bias=True, w_type=Type.F16),
    Conv2d(4, 6, (33, 3), kernel=(1, 1), bias=True, scale=-0.5),
    Conv2d(2, 9, (11, 10), stride=(2, 2), pad=(1, 1)),
    Conv2d(2, 3, (13, 9), dilation=(2, 3), pad=(2, 3), w_type=Type.BF16),
    Conv2d(1, 1, (3, 3)),
    Conv2d(3, 4, (7, 6), kernel=(5, 2), pad=(3, 1), stride=(1, 2), batch=2),
    Conv2d(3, 5, (6, 7), pad=(1, 1), batch=2, row_gap=1, channel_gap=2, batch_gap=3),
    Conv2d(9, 8, (66, 2), pad=(1, 1)),
]


@every_flush
@every_tile
def test_matmul(tile: Tile, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for op in MATMULS:
        op.verify(rng, run_of(tile, processors, flush))


@every_flush
@every_tile
def test_conv2d(tile: Tile, flush: Flush, rng: np.random.Generator, processors: Processors) -> None:
    for op in CONV2DS:
        op.verify(rng, run_of(tile, processors, flush))


@pytest.mark.parametrize("op", [MATMULS[-1], MATMULS[-4], CONV2DS[0], CONV2DS[8]], ids=repr)
def test_levels_and_threads_agree(op: Matmul | Conv2d, rng: np.random.Generator, processors: Processors) -> None:
    """Each element is one chain of multiply-adds for each kc of the depth, whatever the tile and however many threads
    there are: the same bits."""
    data = op.data(rng)
    runs = [
        replace(run_of(tile, processors, Flush.END), threads=threads, slow=slow)
        for tile in tiles()
        for threads, slow in ((1, -1), (2, -1), (3, 0), (4, 3))
    ]
    first = op.compute(data, runs[0])
    for run in runs[1:]:
        difference = first_difference(first, op.compute(data, run))
        assert not difference, f"{run}: {difference}"
