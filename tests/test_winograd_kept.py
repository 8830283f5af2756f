"""Transformed weights kept in a store: results are those without it, bit for bit, whatever becomes of the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.guarded import Flush
from tests.operations import Array, Conv2d, Run, Tile, native_tiles
from tests.sdgen_native import Level, Type

pytestmark = pytest.mark.slow

CHANNELS, CHAINS, GROUPS = 640, 8, 3
ROOM = 64 << 20
KEPT = (Level.C, Level.AVX2)  # levels that keep what has so few tiles

every_tile = pytest.mark.parametrize("tile", native_tiles(), ids=str)
every_m = pytest.mark.parametrize("m", (2, 3, 4), ids="F{}".format)


def case_of(m: int, w_type: Type = Type.F16) -> Conv2d:
    return Conv2d(CHANNELS, 16 * GROUPS - 5, (4 * m, 3 * m), pad=(1, 1), w_type=w_type)


@contextmanager
def store_of(size: int = ROOM) -> Iterator[int]:
    store = native.sdgen_store_new(size)
    yield store
    native.sdgen_store_free(store)


def counts_of(store: int) -> native.StoreCounts:
    counts: native.StoreCounts = native.sdgen_store_counts(store)
    return counts


def run_of(tile: Tile, m: int, store: int | None = None, threads: int = 1) -> Run:
    return Run(tile, Flush.END, threads=threads, winograd=m, store=store)


def u_bytes(m: int) -> int:
    """Of one group."""
    return CHAINS * ((m + 2) ** 2 * (CHANNELS // CHAINS * 16 + 16) * 4)


@every_tile
@every_m
@pytest.mark.parametrize("threads", (1, 3))
def test_kept_weights_make_no_difference(tile: Tile, m: int, threads: int, rng: np.random.Generator) -> None:
    for w_type in Type if threads == 1 else (Type.F16,):
        case = case_of(m, w_type)
        data = case.data(rng)
        streamed = case.compute(data, run_of(tile, m))
        with store_of() as store:
            for again in range(3):
                kept = case.compute(data, run_of(tile, m, store, threads))
                assert np.array_equal(kept, streamed), f"{case} {tile} again={again}"
            counts = counts_of(store)
            if tile.level in KEPT:
                assert counts.bytes >= GROUPS * u_bytes(m) and counts.found >= 2 * GROUPS
            else:
                assert counts.added == counts.found == 0


Data = tuple[NDArray[Any], Array, Array]


def changed(data: Data) -> Iterator[Data]:
    """The least changes: of the first weights, which are looked at first, of some behind them, and of the last ones."""
    w, x, bias = data
    for place in (0, 3, w.size // 2, w.size - 1):
        other = w.copy()
        other.reshape(-1).view(np.uint16)[place] ^= 1
        yield other, x, bias
    yield w, x, bias
    yield np.roll(w, 16, 0), x, bias  # groups in one another's place


@every_tile
@every_m
def test_changed_weights_are_seen(tile: Tile, m: int, rng: np.random.Generator) -> None:
    case = case_of(m)
    data = case.data(rng)
    with store_of() as store:
        for other in (data, *changed(data)):
            for _ in range(2):
                assert np.array_equal(case.compute(other, run_of(tile, m, store)), case.compute(other, run_of(tile, m)))


@every_tile
def test_one_store_for_all_forms(tile: Tile, rng: np.random.Generator) -> None:
    """The same weights, transformed in other ways, cut into other chains, and as numbers of another type."""
    case = case_of(2)
    data = case.data(rng)
    other = (data[0].view(np.uint16), *data[1:])
    half = replace(case, channels_in=CHANNELS // 2, channels_out=2 * case.channels_out)
    halves = (
        data[0].reshape(half.channels_out, half.channels_in, 3, 3),
        data[1][:, : half.channels_in],
        np.tile(data[2], 2),
    )
    with store_of() as store:
        for _ in range(2):
            for m in (2, 3, 4):
                for one, values in ((case, data), (case_of(2, Type.BF16), other), (half, halves)):
                    expected = one.compute(values, run_of(tile, m))
                    result = one.compute(values, run_of(tile, m, store))
                    assert np.array_equal(result, expected, equal_nan=True)


@every_tile
def test_too_little_room(tile: Tile, rng: np.random.Generator) -> None:
    """For one group of three: that one is found each time, and the others cost no hash of all of their weights."""
    case = case_of(2)
    data = case.data(rng)
    streamed = case.compute(data, run_of(tile, 2))
    with store_of(u_bytes(2) + 1000) as store:
        for again in range(1, 4):
            assert np.array_equal(case.compute(data, run_of(tile, 2, store)), streamed)
            counts = counts_of(store)
            if tile.level in KEPT:
                assert (counts.arrays, counts.turned_away) == (2, 0)
                assert counts.found == 2 * (again - 1), "the mark and what it stands for"
        native.sdgen_store_tick(store)
    with store_of(0) as store:
        assert np.array_equal(case.compute(data, run_of(tile, 2, store)), streamed)
