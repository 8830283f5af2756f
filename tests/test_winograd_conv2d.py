"""3x3 convolutions by Winograd's F(m x m, 3 x 3), at every level that runs here, against float64."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.exact import error_measure, first_difference
from tests.guarded import Flush
from tests.operations import SMALL_BLOCKS, Conv2d, Run, Tile, native_tiles
from tests.sdgen_native import Type

# The most that the error measure may be, the project's promise for each tile, and the input channels from which on it
# holds (those that the choice by shape asks for): the errors of the transforms are averaged over them.
ERROR = {2: 1.5e-7, 3: 2e-7, 4: 4e-7}
CHANNELS = {2: 24, 3: 64, 4: 128}

every_tile = pytest.mark.parametrize("tile", native_tiles(), ids=str)
every_m = pytest.mark.parametrize("m", ERROR, ids="F{}".format)


def verify(case: Conv2d, rng: np.random.Generator, run: Run, m: int) -> None:
    """Random data, computed and compared with float64.

    A pixel has the rounding errors of its whole tile, whose sums are those of 9 products a channel. One in the corner
    of the padded image has 4 products, one at its edge 6: there the measure, which divides by their magnitudes, may be
    9/4 times what it may be within. With fewer channels than the choice by shape asks for, a pixel's own magnitudes may
    be much smaller than its neighbours': the image's largest count, and twice the error is allowed, as none is promised
    there."""
    data = case.data(rng)
    c = case.compute(data, run)
    exact, magnitude = case.reference(data)
    limit = ERROR[m]
    if case.channels_in < CHANNELS[m]:
        magnitude = np.broadcast_to(magnitude.max(), magnitude.shape)
        limit *= 2
    what = f"{case} {run}"
    assert error_measure(c, exact, magnitude) <= limit * (9 / 4 if any(case.pad) else 1), what
    inner = (..., *(slice(pad, -pad or None) for pad in case.pad[::-1]))
    assert error_measure(c[inner], exact[inner], magnitude[inner]) <= limit, f"{what}, inner pixels"


def run_of(tile: Tile, m: int, index: int = 0) -> Run:
    """Arrays flush to either end, and blocks of either size, in turn."""
    return Run(tile, list(Flush)[index % 2], blocking=SMALL_BLOCKS if index % 3 else None, winograd=m)


@every_tile
@every_m
def test_tiles(tile: Tile, m: int, rng: np.random.Generator) -> None:
    """One to nine tiles each way, whole and cut."""
    for index, (width, height) in enumerate(product(range(1, 9 * m + 2, 2), (1, 2, m, 3 * m + 1, 9 * m))):
        case = Conv2d(20, 5, (width, height), pad=(1, 1), w_type=Type(index % 3), bias=index % 2 == 1)
        verify(case, rng, run_of(tile, m, index), m)


@every_tile
@every_m
def test_paddings_batches_gaps(tile: Tile, m: int, rng: np.random.Generator) -> None:
    settings = product(((0, 0), (1, 1), (0, 1), (1, 0)), (1, 3), (0, 5), (1.0, -0.3))
    for index, (pad, batch, gap, scale) in enumerate(settings):
        case = Conv2d(
            *(20, 17, (9, 14)),
            pad=pad,
            batch=batch,
            w_type=Type(index % 3),
            row_gap=gap,
            channel_gap=2 * gap,
            batch_gap=gap,
            scale=scale,
            bias=index % 2 == 0,
        )
        verify(case, rng, run_of(tile, m, index), m)


@every_tile
@every_m
def test_channels(tile: Tile, m: int, rng: np.random.Generator) -> None:
    for index, channels in enumerate((3, 4, 16, 17, 31, 33, 64, 65, 112, 130, 224, 225, 336, 352)):
        case = Conv2d(channels, 19, (11, 10), pad=(1, 1), w_type=Type.F16)
        verify(case, rng, run_of(tile, m, index), m)
    for index, channels in enumerate((1, 2, 6, 7, 15, 16, 18, 33)):
        verify(Conv2d(24, channels, (11, 10), pad=(1, 1)), rng, run_of(tile, m, index), m)


@every_tile
@every_m
@pytest.mark.parametrize("size", [(5, 7), (28, 40), (65, 64), (76, 76), (150, 100)], ids=str)
def test_odd_sizes(tile: Tile, m: int, size: tuple[int, int], rng: np.random.Generator) -> None:
    case = Conv2d(CHANNELS[m], 20, size, pad=(1, 1), w_type=Type.F16, bias=True)
    verify(case, rng, Run(tile, threads=2, winograd=m), m)


@pytest.mark.slow
@every_tile
@every_m
def test_layers(tile: Tile, m: int, rng: np.random.Generator) -> None:
    for channels, size in ((320, (64, 64)), (2560, (8, 8)), (1280, (16, 16)), (128, (96, 96))):
        case = Conv2d(channels, 48, size, pad=(1, 1), w_type=Type.F16)
        verify(case, rng, Run(tile, threads=2, winograd=m), m)


@every_tile
@every_m
def test_threads_change_nothing(tile: Tile, m: int, rng: np.random.Generator) -> None:
    case = Conv2d(70, 37, (30, 26), pad=(1, 1), w_type=Type.F16, bias=True)
    data = case.data(rng)
    alone = case.compute(data, Run(tile, winograd=m))
    for threads, slow in ((2, -1), (3, 1), (4, 0)):
        assert not first_difference(case.compute(data, Run(tile, threads=threads, slow=slow, winograd=m)), alone)


@every_tile
@every_m
def test_known_answer(tile: Tile, m: int, rng: np.random.Generator) -> None:
    """All weights 2.5 and inputs 1.5 with 32 channels: 480 at the corners, 720 at the edges, 1080 within."""
    case = Conv2d(32, 32, (28, 40), pad=(1, 1))
    w, x, bias = case.data(rng)
    c = case.compute((np.full_like(w, 2.5), np.full_like(x, 1.5), bias), Run(tile, winograd=m))
    exact = np.full(c.shape, 1080.0)
    exact[:, :, [0, -1], :] = exact[:, :, :, [0, -1]] = 720
    for y, x_ in product((0, -1), repeat=2):
        exact[:, :, y, x_] = 480
    assert np.abs(c - exact).max() <= 1e-3


@every_tile
@every_m
def test_errors_have_no_bias(tile: Tile, m: int, rng: np.random.Generator) -> None:
    """Their mean over n outputs is within 5 / sqrt(n) of their spread."""
    case = Conv2d(CHANNELS[m], 16, (48, 40), pad=(1, 1), w_type=Type.F16)
    data = case.data(rng)
    error = case.compute(data, Run(tile, threads=2, winograd=m)) - case.reference(data)[0]
    assert abs(error.mean()) <= 5 * error.std() / np.sqrt(error.size)


@every_tile
@every_m
@pytest.mark.parametrize("scale", [1e4, 1e-39], ids=["large", "denormal"])
def test_magnitudes(tile: Tile, m: int, scale: float, rng: np.random.Generator) -> None:
    case = Conv2d(40, 8, (13, 9), pad=(1, 1), w_type=Type.F16)
    w, x, bias = case.data(rng)
    data = w, (x * np.float64(scale)).astype(np.float32), bias
    c = case.compute(data, Run(tile, winograd=m))
    if scale > 1:
        exact, magnitude = case.reference(data)
        assert error_measure(c, exact, np.broadcast_to(magnitude.max(), c.shape)) <= ERROR[m]
    else:
        # Every one of some thousand roundings may lose a denormal's unit, times the transforms' constants.
        assert np.isfinite(c).all()
        reference = case.compute((w, (x * np.float64(scale)).astype(np.float32), bias), Run(tile))
        assert np.abs(c.astype(np.float64) - reference).max() <= 1e5 * 2.0**-149


@every_tile
@every_m
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_tiles(tile: Tile, m: int, value: float, rng: np.random.Generator) -> None:
    case = Conv2d(33, 4, (25, 27), pad=(1, 1))
    w, x, bias = case.data(rng)
    whole = case.compute((w, x, bias), Run(tile, winograd=m))
    x[0, 20, 13, 11] = value
    c = case.compute((w, x, bias), Run(tile, winograd=m))
    # An output tile from (m i, m j) on reads from (m i - 1, m j - 1) to (m i + m, m j + m).
    y, x_ = np.indices(c.shape[2:]) // m * m
    reads = (y - 1 <= 13) & (y + m >= 13) & (x_ - 1 <= 11) & (x_ + m >= 11)
    assert not first_difference(c[..., ~reads], whole[..., ~reads])
    assert not np.isfinite(c[:, :, 12:15, 10:13]).any()


@every_tile
def test_by_shape(tile: Tile, rng: np.random.Generator) -> None:
    """Whatever form is chosen, and whatever convolution it is chosen for."""
    for case in (
        Conv2d(3, 16, (24, 24), pad=(1, 1)),
        Conv2d(64, 32, (40, 24), pad=(1, 1), w_type=Type.F16),
        Conv2d(64, 32, (8, 8), pad=(1, 1), w_type=Type.F16),
        Conv2d(32, 32, (24, 24), (3, 3), (2, 2), (1, 1)),
        Conv2d(32, 32, (24, 24), (3, 3), (1, 1), (1, 1), (2, 2)),
        Conv2d(32, 32, (24, 24), (1, 1)),
    ):
        case.verify(rng, Run(tile, winograd=-1, threads=2), 9 / 4 * ERROR[4])
