"""sdgen_matmul with every tile that runs here, against float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import sdgen_native as native
from tests.exact import first_difference
from tests.guarded import Flush, guards
from tests.operations import (
    MATMUL_ERROR,
    SMALL_BLOCKS,
    Matmul,
    Run,
    Tile,
    default_blocking,
    every_tile,
    execute,
    native_tiles,
    stored,
)
from tests.sdgen_native import Blocking, Level, Type

# 1 to 4096 in uneven steps: each about a seventh longer, with neighbours of powers of two.
LENGTHS = sorted(
    {int(1.15**i) + i % 3 for i in range(60)} | {1, 2, 7, 8, 9, 31, 63, 65, 127, 129, 255, 1023, 4095, 4096}
)
LENGTHS = [length for length in LENGTHS if 1 <= length <= 4096]


@every_tile
def test_small_sizes(tile: Tile, rng: np.random.Generator) -> None:
    """Every M and N of 1 to 33, with small blocks and with those of this processor in turn."""
    for m, n in product(range(1, 34), range(1, 34)):
        run = Run(
            tile,
            list(Flush)[(m + n) % 2],
            blocking=SMALL_BLOCKS if (m + n // 2) % 2 else None,
            work_shift=(m * n) % 37,
        )
        Matmul(m, n, LENGTHS[(m * 7 + n) % 24], w_type=Type((m + n) % 3)).verify(rng, run)


@every_tile
@pytest.mark.parametrize("threads", [1, 3])
def test_around_the_edges_of_blocks(tile: Tile, threads: int, rng: np.random.Generator) -> None:
    blocks = SMALL_BLOCKS
    around = {size: [size - 1, size, size + 1, 2 * size, 2 * size + 1] for size in (blocks.mc, blocks.nc, blocks.kc)}
    for index, (m, n, k) in enumerate(product(around[blocks.mc], around[blocks.nc], around[blocks.kc])):
        Matmul(m, n, k).verify(rng, Run(tile, list(Flush)[index % 2], threads, blocking=blocks))


@every_tile
@pytest.mark.parametrize(
    "blocks", [(1, 1, 1, 1), (5, 1, 1, 1), (7, 6, 16, 1000), (64, 7, 17, 1), (1000, 1000, 1000, 10**9)]
)
def test_any_blocks(tile: Tile, blocks: tuple[int, int, int, int], rng: np.random.Generator) -> None:
    for m, n, k in ((1, 1, 1), (13, 35, 40), (40, 17, 129)):
        for threads in (1, 2, 4):
            Matmul(m, n, k, bias=True).verify(rng, Run(tile, threads=threads, blocking=Blocking(*blocks)))


@pytest.mark.slow
@every_tile
def test_around_the_edges_of_real_blocks(tile: Tile, rng: np.random.Generator) -> None:
    blocks = default_blocking()
    for m, n, k in (
        *((blocks.mc + step, 20, 40) for step in (-1, 0, 1)),
        *((9, blocks.nc + step, 40) for step in (-1, 0, 1)),
        *((9, 20, blocks.kc + step) for step in (-1, 0, 1)),
        (blocks.mc + 1, blocks.nc + 1, blocks.kc + 1),
        (2 * blocks.mc + 5, 33, 2 * blocks.kc + 3),
    ):
        Matmul(m, n, k, w_type=Type.F16).verify(rng, Run(tile, threads=2))


@every_tile
def test_lengths(tile: Tile, rng: np.random.Generator) -> None:
    for index, k in enumerate(LENGTHS):
        Matmul(7, 19, k, w_type=Type(index % 3)).verify(rng, Run(tile, list(Flush)[index % 2]))


@pytest.mark.slow
@every_tile
@pytest.mark.parametrize("w_type", Type)
def test_layers(tile: Tile, w_type: Type, rng: np.random.Generator) -> None:
    """Linear layers like those of a UNet, with fewer rows."""
    for m, n, k in (
        (1000, 320, 320),
        (300, 640, 640),
        (77, 320, 768),
        (64, 640, 2560),
        (100, 1280, 1280),
        (1, 1280, 320),
    ):
        Matmul(m, n, k, w_type=w_type, bias=True).verify(rng, Run(tile, threads=2), MATMUL_ERROR)


@every_tile
@pytest.mark.parametrize(
    "m, n, k",
    [
        *((4096, 77, k) for k in (36, 40, 77, 80, 128, 160, 191)),
        *((1024, 320, k) for k in (256, 288, 320)),
        (77, 768, 768),
        (77, 3072, 768),
    ],
)
def test_accuracy(tile: Tile, m: int, n: int, k: int, rng: np.random.Generator) -> None:
    """Short sums, of which the worst of hundreds of thousands counts: attention, text, the first layers."""
    Matmul(m, n, k, w_type=Type(k % 3)).verify(rng, Run(tile, threads=2), MATMUL_ERROR)


@every_tile
@pytest.mark.parametrize("w_type", Type)
def test_scale_and_bias(tile: Tile, w_type: Type, rng: np.random.Generator) -> None:
    for scale, bias, blocking in product((1.0, 0.125, -3.7), (False, True), (None, SMALL_BLOCKS)):
        for m, n, k in ((1, 1, 1), (5, 17, 60), (19, 50, 49)):
            Matmul(m, n, k, w_type=w_type, scale=scale, bias=bias).verify(rng, Run(tile, blocking=blocking))


@every_tile
@pytest.mark.parametrize("flush", Flush)
def test_batches_and_views(tile: Tile, flush: Flush, rng: np.random.Generator) -> None:
    batches = [
        ((1, 1), (1, 1)),
        ((3, 1), (1, 1)),
        ((1, 2), (1, 2)),
        ((4, 3), (2, 1)),
        ((5, 3), (2, 2)),
        ((6, 2), (6, 2)),
    ]
    gaps = [(0, 0, 0, 0), (1, 0, 3, 0), (0, 5, 0, 7), (13, 1, 2, 1)]
    for index, ((batch, repeat), (w_gap, x_gap, c_gap, batch_gap)) in enumerate(product(batches, gaps)):
        case = Matmul(
            *(7, 18, 25, batch, repeat, Type(index % 3), w_gap, x_gap, c_gap, batch_gap),
            heads_inside=bool(index % 2),
        )
        for threads, blocking in ((1, None), (3, SMALL_BLOCKS)):
            case.verify(rng, Run(tile, flush, threads, blocking=blocking))


THREAD_CASES = [
    Matmul(1, 1, 1),
    Matmul(17, 200, 100),
    Matmul(200, 1, 100),
    Matmul(61, 131, 77, scale=0.5, bias=True),
    Matmul(800, 33, 9),
    Matmul(25, 40, 50, (4, 2), (2, 1), Type.F16),
]


@every_tile
@pytest.mark.parametrize("case", THREAD_CASES, ids=str)
def test_threads_do_not_change_the_result(tile: Tile, case: Matmul, rng: np.random.Generator) -> None:
    data = case.data(rng)
    for blocking in (SMALL_BLOCKS, None):
        alone = case.compute(data, Run(tile, blocking=blocking))
        for threads in (2, 3, 4, 7):
            for slow in (-1, 0, threads - 1):
                run = Run(tile, threads=threads, slow=slow, blocking=blocking)
                assert not first_difference(case.compute(data, run), alone), f"{run}"


@pytest.mark.parametrize("case", THREAD_CASES, ids=str)
def test_tiles_and_blocks_do_not_change_the_result(case: Matmul, rng: np.random.Generator) -> None:
    """Each element is the same chain of sums as long as kc is the same."""
    data = case.data(rng)
    expected = case.compute(data, Run(Tile(Level.C), blocking=Blocking(24, 18, 48, 1)))
    for tile, mc, nc, packed in product(native_tiles(), (1, 6, 500), (1, 33, 512), (1, 3000, 10**8)):
        run = Run(tile, threads=2, blocking=Blocking(24, mc, nc, packed))
        assert not first_difference(case.compute(data, run), expected), f"{run}"


@every_tile
def test_large_activations(tile: Tile, rng: np.random.Generator) -> None:
    """Activations beyond the range of F16, with the largest weights that it has."""
    case = Matmul(9, 33, 320, w_type=Type.F16)
    w, x, bias = case.data(rng)
    data = (np.sign(w) * np.float16(65504), np.sign(x) * np.float32(1e5), bias)
    run = Run(tile)
    result = case.judge(data, case.compute(data, run), run)
    assert np.all(np.isfinite(result.c))
    assert result.error <= result.bound


@every_tile
def test_denormals_are_kept(tile: Tile) -> None:
    case = Matmul(7, 17, 3)
    w = np.ones((1, 1, 17, 3), np.float32)
    x = np.full((1, 1, 7, 3), 2.0**-149, np.float32)
    assert np.all(case.compute((w, x, np.zeros(17, np.float32)), Run(tile)) == np.float32(3 * 2.0**-149))
    halves = np.full((1, 1, 17, 3), 2.0**-24, np.float16)
    half_case = replace(case, w_type=Type.F16)
    result = half_case.compute((halves, np.ones_like(x), np.zeros(17, np.float32)), Run(tile))
    assert np.all(result == np.float32(3 * 2.0**-24))


@every_tile
def test_nan_stays_in_its_row_and_column(tile: Tile, rng: np.random.Generator) -> None:
    case = Matmul(13, 35, 40)
    w, x, bias = case.data(rng)
    x[0, 0, 4, 7] = np.nan
    w[0, 0, 20, 39] = np.inf
    for blocking in (None, SMALL_BLOCKS):
        c = case.compute((w, x, bias), Run(tile, blocking=blocking))[0, 0]
        expected = np.ones((13, 35), bool)
        expected[4, :] = expected[:, 20] = False
        assert np.array_equal(np.isfinite(c), expected)


@every_tile
@pytest.mark.parametrize("w_type", Type)
def test_strides_past_32_bits(tile: Tile, w_type: Type) -> None:
    """Rows and batches that lie more than 2^31 and 2^32 bytes apart, in memory of which few pages are touched."""
    m, n, k, batch = 3, 2, 5, 2
    itemsize = 4 if w_type == Type.F32 else 2
    row, far = 2**31 + 4096, 2**33
    size = far + 3 * row + 4096
    regions = [native.test_map(size) for _ in range(3)]
    try:
        assert all(regions)
        w_base, x_base, c_base = regions
        expected = np.zeros((batch, m, n))
        for b in range(batch):
            x = np.arange(m * k).reshape(m, k) + 10 * b + 1
            w = np.arange(n * k).reshape(n, k) - 7 * b - 2
            expected[b] = x @ w.T
            for i in range(m):
                ctypes.memmove(x_base + b * far + i * row, x[i].astype(np.float32).tobytes(), 4 * k)
            for j in range(n):
                elements = stored(w[j].astype(np.float32), w_type)
                ctypes.memmove(w_base + b * far + j * row, elements.tobytes(), itemsize * k)
        strides = (row, (far, far))
        op = native.Matmul(
            *(m, n, k, (batch, 1), w_base, w_type, *strides, (1, 1), x_base, *strides, c_base, *strides, 1.0, None)
        )
        with guards(Flush.END) as arrays:
            execute("sdgen_matmul", op, arrays, Run(tile), "strides past 32 bits")
        for b, i in product(range(batch), range(m)):
            address = c_base + b * far + i * row
            c = np.ctypeslib.as_array((ctypes.c_float * n).from_address(address))
            assert np.array_equal(c, expected[b, i])
    finally:
        for region in regions:
            native.test_unmap(region, size)


@st.composite
def matmuls(draw: st.DrawFn) -> tuple[Matmul, Run, int]:
    batch = draw(st.tuples(st.integers(1, 4), st.integers(1, 3)))
    case = Matmul(
        *(draw(st.integers(1, 70)), draw(st.integers(1, 70)), draw(st.integers(1, 150)), batch),
        w_repeat=(draw(st.integers(1, batch[0])), draw(st.integers(1, batch[1]))),
        w_type=draw(st.sampled_from(Type)),
        w_gap=draw(st.integers(0, 20)),
        x_gap=draw(st.integers(0, 20)),
        c_gap=draw(st.integers(0, 20)),
        batch_gap=draw(st.integers(0, 20)),
        heads_inside=draw(st.booleans()),
        scale=draw(st.sampled_from([1.0, 0.25, -1.3])),
        bias=draw(st.booleans()),
    )
    blocks = st.tuples(st.integers(1, 200), st.integers(1, 100), st.integers(1, 100), st.integers(1, 50000))
    run = Run(
        draw(st.sampled_from(native_tiles())),
        draw(st.sampled_from(Flush)),
        threads=draw(st.integers(1, 4)),
        blocking=Blocking(*draw(blocks)),
        work_shift=draw(st.integers(0, 63)),
    )
    return case, run, draw(st.integers(0, 2**32 - 1))


@given(matmuls())
def test_random_operations(drawn: tuple[Matmul, Run, int]) -> None:
    case, run, seed = drawn
    case.verify(np.random.default_rng(seed), run)


# ---- what the check refuses ----


def valid() -> native.Matmul:
    """An operation that passes its check; the addresses are never used."""
    strides = (64, (6400, 12800))
    return native.Matmul(
        *(4, 8, 16, (2, 1), 4096, Type.F32, *strides, (1, 1), 4096, *strides, 4096, *strides, 1.0, None),
    )


WRONG: dict[str, Callable[[native.Matmul], None]] = {
    "m is 0": lambda op: setattr(op, "m", 0),
    "n is negative": lambda op: setattr(op, "n", -1),
    "k is 0": lambda op: setattr(op, "k", 0),
    "batch is 0": lambda op: setattr(op, "batch", (0, 1)),
    "w_repeat is 0": lambda op: setattr(op, "w_repeat", (1, 0)),
    "w is missing": lambda op: setattr(op, "w", None),
    "x is missing": lambda op: setattr(op, "x", None),
    "c is missing": lambda op: setattr(op, "c", None),
    "w_type is unknown": lambda op: setattr(op, "w_type", 3),
    "x is not aligned": lambda op: setattr(op, "x", 4098),
    "x_stride is not aligned": lambda op: setattr(op, "x_stride", 65),
    "x_batch_stride is not aligned": lambda op: setattr(op, "x_batch_stride", (6401, 12800)),
    "c is not aligned": lambda op: setattr(op, "c", 4097),
    "c_stride is not aligned": lambda op: setattr(op, "c_stride", 66),
    "c_batch_stride is not aligned": lambda op: setattr(op, "c_batch_stride", (6402, 12800)),
    "rows of c overlap": lambda op: setattr(op, "c_stride", 28),
}


def test_check_passes_what_is_right() -> None:
    assert native.sdgen_matmul_check(ctypes.byref(valid())) is None


@pytest.mark.parametrize("wrong", WRONG)
def test_check_refuses(wrong: str) -> None:
    op = valid()
    WRONG[wrong](op)
    message = native.sdgen_matmul_check(ctypes.byref(op))
    assert message and 5 < len(message) < 100
