"""3x3 convolutions of an image doubled by repeating its pixels, at every level that runs here, against float64 of the
image written out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.exact import first_difference
from tests.operations import SMALL_BLOCKS, Conv2d, Run, Tile, every_tile
from tests.sdgen_native import Type
from tests.test_winograd_conv2d import CHANNELS, run_of, verify

M = 2  # of the one form that there is, as exact as F(2 x 2)


def doubled(channels_in: int, channels_out: int, size: tuple[int, int], **more: object) -> Conv2d:
    return Conv2d(channels_in, channels_out, size, pad=(1, 1), upsample=2, **more)  # type: ignore[arg-type]


@every_tile
def test_sizes(tile: Tile, rng: np.random.Generator) -> None:
    """One to nine pixels each way, of which a tile each."""
    for index, (width, height) in enumerate(product(range(1, 10), (1, 2, 3, 4, 7, 9))):
        case = doubled(20, 5, (width, height), w_type=Type(index % 3), bias=index % 2 == 1)
        verify(case, rng, run_of(tile, M, index), M)


@every_tile
def test_batches_gaps(tile: Tile, rng: np.random.Generator) -> None:
    for index, (batch, gap, scale, bias) in enumerate(product((1, 3), (0, 5), (1.0, -0.3), (False, True))):
        gaps = {"row_gap": gap, "channel_gap": 2 * gap, "batch_gap": gap}
        case = doubled(20, 17, (7, 5), batch=batch, w_type=Type(index % 3), scale=scale, bias=bias, **gaps)
        verify(case, rng, run_of(tile, M, index), M)


@every_tile
def test_channels(tile: Tile, rng: np.random.Generator) -> None:
    for index, channels in enumerate((3, 4, 17, 24, 31, 33, 65, 130, 225, 352)):
        verify(doubled(channels, 19, (7, 6), w_type=Type.F16), rng, run_of(tile, M, index), M)
    for index, channels in enumerate((1, 2, 6, 7, 15, 16, 18, 33)):
        verify(doubled(24, channels, (7, 6)), rng, run_of(tile, M, index), M)


@every_tile
@pytest.mark.parametrize("size", [(5, 7), (28, 40), (33, 32), (50, 75)], ids=str)
def test_odd_sizes(tile: Tile, size: tuple[int, int], rng: np.random.Generator) -> None:
    case = doubled(CHANNELS[M], 20, size, w_type=Type.F16, bias=True)
    verify(case, rng, Run(tile, threads=2, winograd=M), M)


@every_tile
def test_threads_change_nothing(tile: Tile, rng: np.random.Generator) -> None:
    case = doubled(70, 37, (15, 13), w_type=Type.F16, bias=True)
    data = case.data(rng)
    alone = case.compute(data, Run(tile, winograd=M))
    for threads, slow in ((2, -1), (3, 1), (4, 0)):
        assert not first_difference(case.compute(data, Run(tile, threads=threads, slow=slow, winograd=M)), alone)


@every_tile
@pytest.mark.parametrize("winograd", [-1, 2, 3, 4], ids=str)
def test_choice(tile: Tile, winograd: int, rng: np.random.Generator) -> None:
    """Whatever form is asked for, the one that there is; by shape directly where there are few channels."""
    for channels in (24, 64) if winograd > 0 else (3, 23, 24, 64):
        verify(doubled(channels, 32, (12, 9)), rng, Run(tile, winograd=winograd, threads=2), M)


@every_tile
def test_directly(tile: Tile, rng: np.random.Generator) -> None:
    """Any convolution of an image doubled, whatever its kernel, stride, padding and dilation."""
    settings = product(((3, 3), (1, 1), (2, 5)), ((1, 1), (2, 1)), ((0, 0), (1, 1), (3, 2)), ((1, 1), (2, 1)))
    for index, (kernel, stride, pad, dilation) in enumerate(settings):
        case = Conv2d(9, 7, (5, 6), kernel, stride, pad, dilation, batch=2, row_gap=index % 2, upsample=2)
        case.verify(rng, Run(tile, threads=1 + index % 2, blocking=SMALL_BLOCKS if index % 3 else None, winograd=-1))
