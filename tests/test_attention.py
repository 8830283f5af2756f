"""sdgen_attention with every panel that runs here, against float64."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import UNIT, first_difference
from tests.guarded import Flush, guards
from tests.operations import (
    ATTENTION_ERROR,
    Attention,
    AttentionData,
    Layout,
    Run,
    Tile,
    attention_tiles,
    default_blocking,
    execute,
    loaded,
)
from tests.sdgen_native import Level, Type

Mask = NDArray[np.float32]

every_tile = pytest.mark.parametrize("tile", attention_tiles(), ids=str)

# The largest errors by what they were measured on.
LARGEST: dict[str, float] = {}


@pytest.fixture(scope="module", autouse=True)
def _largest_errors() -> Iterator[None]:
    """Prints them at the end, for -s to show."""
    yield
    for key in sorted(LARGEST, key=LARGEST.__getitem__, reverse=True):
        print(f"{LARGEST[key]:.2e} {key}")


def note(case: Attention, error: float) -> None:
    key = f"depth {case.depth}, keys {case.keys}, {case.k_type.name} and {case.v_type.name}"
    LARGEST[key] = max(error, LARGEST.get(key, 0))


def runs(tile: Tile) -> Iterator[Run]:
    """Arrays flush to either end, working memory at any place, one thread and more, in turn."""
    index = 0
    while True:
        yield Run(tile, list(Flush)[index % 2], (1, 1, 3)[index % 3], work_shift=index * 5 % 37)
        index += 1


# ---- shapes ----

DEPTHS = [
    *((depth, 17, 77) for depth in (1, 3, 4, 8, 32, 40, 64, 72, 80, 96, 128, 160)),
    *((256, 5, 61), (512, 3, 65), (512, 33, 9)),
]


@every_tile
def test_depths(tile: Tile, rng: np.random.Generator) -> None:
    for (depth, queries, keys), run in zip(DEPTHS, runs(tile), strict=False):
        for other in (0, 1, 40, 161)[depth % 2 :: 2] if depth < 256 else (0,):
            case = Attention(queries, keys, depth, other)
            note(case, case.verify(rng, run))


QUERIES = (1, 2, 15, 16, 17, 31, 33, 63, 65, 77, 100, 130)
KEYS = (1, 2, 5, 6, 7, 11, 12, 13, 59, 60, 61, 77, 121, 300, 511, 513, 700)


@every_tile
def test_queries_and_keys(tile: Tile, rng: np.random.Generator) -> None:
    shapes = [(queries, keys) for queries, keys in product(QUERIES, KEYS) if (queries + 3 * keys) % 4 == 0]
    shapes += [(queries, 77) for queries in QUERIES] + [(16, keys) for keys in KEYS]
    for (queries, keys), run in zip(shapes, runs(tile), strict=False):
        case = Attention(queries, keys, (8, 20, 5)[queries % 3])
        note(case, case.verify(rng, run))


@every_tile
def test_more_panels_than_are_taken_at_a_time(tile: Tile, rng: np.random.Generator) -> None:
    for threads in (1, 2):
        Attention(1100, 70, 4, heads=2).verify(rng, Run(tile, threads=threads))


@every_tile
@pytest.mark.parametrize("types", list(product(Type, Type)), ids=lambda types: "-".join(t.name for t in types))
def test_types(tile: Tile, types: tuple[Type, Type], rng: np.random.Generator) -> None:
    for (queries, keys, depth, values), run in zip(
        ((17, 77, 40, 40), (5, 6, 3, 17), (2, 250, 65, 16)), runs(tile), strict=False
    ):
        case = Attention(queries, keys, depth, values, k_type=types[0], v_type=types[1])
        note(case, case.verify(rng, run))


@every_tile
@pytest.mark.parametrize("flush", Flush)
def test_heads_and_batches(tile: Tile, flush: Flush, rng: np.random.Generator) -> None:
    repeats = [((1, 1), (1, 1)), ((2, 1), (1, 2)), ((4, 2), (2, 2)), ((3, 1), (4, 1))]
    for index, ((heads, batch), (k_repeat, v_repeat)) in enumerate(
        product(((1, 1), (3, 1), (1, 2), (8, 2), (3, 5)), repeats)
    ):
        case = Attention(7 + index, 20 - index, 9, 11, heads, batch, k_repeat=k_repeat, v_repeat=v_repeat)
        case.verify(rng, Run(tile, flush, 1 + index % 3))


LAYOUTS = [
    Layout(True),
    Layout(gap=1),
    Layout(True, 3, 5),
    Layout(outer_gap=7),
    Layout(gap=13, backward=True),
    Layout(True, 1, backward=True),
]


@every_tile
@pytest.mark.parametrize("flush", Flush)
def test_layouts(tile: Tile, flush: Flush, rng: np.random.Generator) -> None:
    forward = [layout for layout in LAYOUTS if not layout.backward]
    for index in range(12):
        q, k, v, mask = (LAYOUTS[(index * step + start) % 6] for start, step in enumerate((1, 5, 7, 1)))
        case = Attention(
            *(19, 70, 12, 9, 3, 2, Type(index % 3), Type(index // 3 % 3)),
            mask_type=Type(index % 3),
            q_layout=q,
            k_layout=k,
            v_layout=v,
            c_layout=forward[index % len(forward)],
            mask_layout=replace(mask, heads_inside=False),
        )
        masks = masks_of("holes", rng, case, heads=3, batch=2) if index % 2 else None
        case.verify(rng, Run(tile, flush, 1 + index % 2), masks)


@every_tile
@pytest.mark.parametrize("depth", [20, 40])
def test_views_of_fused_projections(tile: Tile, depth: int, rng: np.random.Generator) -> None:
    """q, k and v straight out of [token][3][head][depth], and c as [token][head][depth]."""
    tokens, heads = 50, 3
    case = Attention(tokens, tokens, depth, heads=heads)
    with guards(Flush.END) as arrays:
        fused = arrays.copy("qkv", rng.standard_normal((tokens, 3, heads, depth), np.float32))
        c = arrays.array("c", (tokens, heads, depth))
        row = 4 * depth
        op = native.Attention(*(tokens, tokens, heads, 1, depth, depth), scale=case.factor)
        op.q, op.k, op.v = (fused[0, i].ctypes.data for i in range(3))
        op.q_stride = op.k_stride = op.v_stride = 3 * heads * row
        op.q_head_stride = op.k_head_stride = op.v_head_stride = row
        op.k_repeat = op.v_repeat = (1, 1)
        op.c, op.c_stride, op.c_head_stride = c.ctypes.data, heads * row, row
        execute("sdgen_attention", op, arrays, Run(tile), "a fused projection")
        q, k, v = (np.ascontiguousarray(fused[:, i].transpose(1, 0, 2))[None] for i in range(3))
        case.judge(AttentionData(q, k, v), c.transpose(1, 0, 2)[None]).verify("a fused projection")


@every_tile
@pytest.mark.parametrize("kind", Type)
def test_strides_past_32_bits(tile: Tile, kind: Type, rng: np.random.Generator) -> None:
    """Tokens more than 2^31 bytes apart and heads more than 2^33, in memory of which few pages are touched."""
    case = Attention(3, 4, 5, heads=2, k_type=kind, v_type=kind)
    data = case.data(rng)
    row, far = 2**31 + 4096, 2**34
    size = far + 4 * row
    bases = [native.test_map(size) for _ in range(4)]
    assert all(bases)
    try:
        for base, values in zip(bases, (data.q, data.k, data.v), strict=False):
            for h, i in product(range(2), range(values.shape[2])):
                ctypes.memmove(base + h * far + i * row, values[0, h, i].tobytes(), values[0, h, i].nbytes)
        op = native.Attention(*(3, 4, 2, 1, 5, 5), scale=case.factor)
        op.q, op.k, op.v, op.c = bases
        for name in "qkvc":
            setattr(op, f"{name}_stride", row)
            setattr(op, f"{name}_head_stride", far)
        op.k_type = op.v_type = kind
        op.k_repeat = op.v_repeat = (1, 1)
        with guards(Flush.END) as arrays:
            execute("sdgen_attention", op, arrays, Run(tile), "strides past 32 bits")
        c = np.empty((1, 2, 3, 5), np.float32)
        for h, i in product(range(2), range(3)):
            c[0, h, i] = np.ctypeslib.as_array((ctypes.c_float * 5).from_address(bases[3] + h * far + i * row))
        case.judge(data, c).verify("strides past 32 bits")
    finally:
        for base in bases:
            native.test_unmap(base, size)


# ---- masks ----

MASKS = ("random", "causal", "blocks", "band", "holes", "padding", "late", "early", "rows", "none", "all", "sparse")


def masks_of(name: str, rng: np.random.Generator, case: Attention, heads: int = 1, batch: int = 1) -> Mask:
    """A mask of [batch][heads][queries][keys]."""
    i, j = np.arange(case.queries)[:, None], np.arange(case.keys)
    end = j - (case.keys - case.queries)
    mask = np.zeros((batch, heads, case.queries, case.keys), np.float32)
    if name == "random":
        mask[...] = rng.standard_normal(mask.shape)
    elif name == "causal":
        mask[..., end > i] = -np.inf
    elif name == "blocks":
        mask[..., j // 16 > i // 5] = -np.inf
    elif name == "band":
        mask[..., np.abs(i - j) > 10] = -np.inf
    elif name == "holes":
        mask[rng.random(mask.shape) < 0.4] = -np.inf
    elif name == "sparse":
        mask[rng.random(mask.shape) < 0.97] = -np.inf
    elif name == "padding":
        mask[..., case.keys * 2 // 7 + 1 :] = -np.inf
    elif name == "late":  # the first of the blocks, but for the last query of all
        mask[..., :-1, : case.keys * 3 // 4] = -np.inf
    elif name == "early":  # the last of the blocks, but for the last query of all
        mask[..., :-1, case.keys // 4 :] = -np.inf
    elif name == "rows":
        mask[..., ::3, :] = -np.inf
    elif name == "all":
        mask[...] = -np.inf
    return mask


@every_tile
@pytest.mark.parametrize("name", MASKS)
def test_masks(tile: Tile, name: str, rng: np.random.Generator) -> None:
    shapes = ((17, 77, 8), (100, 130, 5), (3, 700, 4), (70, 61, 20), (1, 1, 3))
    for index, ((queries, keys, depth), run) in enumerate(zip(shapes, runs(tile), strict=False)):
        case = Attention(queries, keys, depth, heads=2, mask_type=Type(index % 3))
        data = case.data(rng, masks_of(name, rng, case, heads=1 + index % 2))
        c = case.compute(data, run)
        case.judge(data, c).verify(f"{name} {case} {run}")
        assert data.mask is not None
        nothing = np.isneginf(loaded(data.mask, case.mask_type)).all(-1)
        assert not np.any(c[np.broadcast_to(nothing, c.shape[:3])])


@every_tile
@pytest.mark.parametrize("mask_type", Type)
def test_masks_are_shared(tile: Tile, mask_type: Type, rng: np.random.Generator) -> None:
    """Among heads and batches, which take them in turn."""
    for (heads, batch), (mask_heads, mask_batch) in product(((8, 2), (3, 4)), ((1, 1), (8, 2), (4, 1), (2, 2), (3, 4))):
        case = Attention(9, 21, 6, heads=heads, batch=batch, mask_type=mask_type)
        mask = masks_of("random", rng, case, mask_heads, mask_batch)
        mask[rng.random(mask.shape) < 0.2] = -np.inf
        case.verify(rng, Run(tile, threads=2), mask)


@every_tile
@pytest.mark.parametrize("name", [name for name in MASKS if name not in ("random", "none")])
def test_masked_keys_do_not_count(tile: Tile, name: str, rng: np.random.Generator) -> None:
    """What k and v hold where no query of any head looks, and what it looks at where others do, changes no bit."""
    case = Attention(40, 130, 12, heads=2)
    mask = masks_of(name, rng, case)
    data = case.data(rng, mask)
    expected = case.compute(data, Run(tile))
    unseen = np.isneginf(mask[0, 0]).all(0)
    others = replace(data, k=data.k.copy(), v=data.v.copy())
    others.k[:, :, unseen], others.v[:, :, unseen] = 1e30, -1e30
    assert not first_difference(case.compute(others, Run(tile)), expected)
    for query in (0, 17, 39):
        masked = np.isneginf(mask[0, 0, query])
        others = replace(data, k=data.k.copy(), v=data.v.copy())
        others.k[:, :, masked] = 10 * rng.standard_normal(others.k[:, :, masked].shape, np.float32)
        others.v[:, :, masked] = 1e4
        c = case.compute(others, Run(tile))
        assert not first_difference(c[:, :, query], expected[:, :, query]), f"query {query}"


@every_tile
def test_values_that_are_no_numbers_spread_alike(tile: Tile, rng: np.random.Generator) -> None:
    """Where all of a panel's queries mask a key, its values are not looked at, whichever panels a thread has taken."""
    case = Attention(200, 200, 8)
    data = case.data(rng, masks_of("causal", rng, case))
    data.v[:, :, [40, 90]] = np.nan  # in blocks of which some panels have but the beginning
    data.k[:, :, 145] = np.inf
    results = [case.compute(data, Run(tile, threads=threads)) for threads in (1, 2, 3, 4)]
    for result in results[1:]:
        assert not first_difference(results[0], result)
    if tile.level != Level.AVX512:  # whose panels are wider
        assert np.all(np.isfinite(results[0][:, :, :16]))


@every_tile
@pytest.mark.parametrize("bad", [3e38, -3e38, np.inf, np.nan])
def test_masked_keys_may_be_no_numbers(tile: Tile, bad: float, rng: np.random.Generator) -> None:
    """Where some queries look at them, those do; where none does, nothing comes of them."""
    case = Attention(20, 130, 8, heads=2)
    mask = masks_of("holes", rng, case)
    mask[..., 77:] = -np.inf
    mask[..., 5, 9] = mask[..., 6:9, 76] = -np.inf
    data = case.data(rng, mask)
    c = case.judge(data, case.compute(data, Run(tile)))
    for key in (9, 76, 77, 129):
        others = replace(data, k=data.k.copy())
        others.k[:, :, key] = bad
        seen = np.isfinite(mask[0, 0, :, key])
        result = replace(c, c=np.where(seen[:, None], c.c, case.compute(others, Run(tile))))
        result.verify(f"{bad} at {key}")


@every_tile
@pytest.mark.parametrize("depth", [40, 64, 80, 160])
def test_padded_keys(tile: Tile, depth: int, rng: np.random.Generator) -> None:
    """77 keys filled up to 256, as callers do for the sake of other kernels."""
    padded, alone = Attention(33, 256, depth, heads=2), Attention(33, 77, depth, heads=2)
    mask = np.zeros((1, 1, 33, 256), np.float32)
    mask[..., 77:] = -np.inf
    data = padded.data(rng, mask)
    data.k[:, :, 77:] = data.v[:, :, 77:] = 0
    c = padded.compute(data, Run(tile))
    padded.judge(data, c).verify(f"{tile} padded")
    real = AttentionData(data.q, data.k[:, :, :77], data.v[:, :, :77])
    alone.judge(real, c).verify(f"{tile} padded, as without padding")


@every_tile
@pytest.mark.parametrize("depth", [40, 64, 80, 160])
def test_values_show_in_the_output(tile: Tile, depth: int, rng: np.random.Generator) -> None:
    """Of 77 keys, each element of each changes its column for every query, and no other."""
    case = Attention(18, 77, depth, k_type=Type.F16, v_type=Type.F16)
    data = case.data(rng)
    c = case.compute(data, Run(tile))
    for key in (0, 38, 39, 76):
        others = replace(data, v=data.v.copy())
        others.v[0, 0, key, key % depth] += 10
        changed = case.compute(others, Run(tile)) != c
        assert np.array_equal(np.argwhere(changed.all((0, 1, 2)))[:, 0], [key % depth])
        assert changed.sum() == 18


@every_tile
def test_band(tile: Tile, rng: np.random.Generator) -> None:
    """Most blocks of a long sequence have nothing for most panels."""
    case = Attention(640, 640, 4)
    for threads in (1, 3):
        case.verify(rng, Run(tile, threads=threads), masks_of("band", rng, case))


@every_tile
@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12])
def test_alibi(tile: Tile, heads: int, rng: np.random.Generator) -> None:
    for index, (max_bias, name) in enumerate(product((8.0, 1.5), ("distance", "holes"))):
        case = Attention(11, 40, 8, heads=heads, mask_type=Type(index % 3), max_bias=max_bias)
        distance = -np.abs(np.arange(11)[:, None] - np.arange(40)).astype(np.float32)[None, None]
        mask = distance + (masks_of(name, rng, case) if name == "holes" else 0)
        case.verify(rng, Run(tile, threads=1 + index % 2), mask)


@every_tile
def test_softcap_and_sinks(tile: Tile, rng: np.random.Generator) -> None:
    options = product((0, 0.7, 30), (None, "holes", "rows"), (False, True), (0.0, 8.0))
    for index, (softcap, name, sunk, max_bias) in enumerate(options):
        case = Attention(
            *(7, 90, 150 if index % 5 == 0 else 6), heads=3, softcap=softcap, max_bias=max_bias, v_type=Type(index % 3)
        )
        mask = masks_of(name, rng, case) if name else None
        sinks = np.array([1.5, -np.inf, -3], np.float32) if sunk else None
        case.verify(rng, Run(tile, list(Flush)[index % 2], 1 + index % 2), mask, sinks)


@every_tile
def test_softcap_of_large_scores(tile: Tile, rng: np.random.Generator) -> None:
    case = Attention(9, 70, 16, scale=100, softcap=50)
    data = case.data(rng)
    case.judge(data, case.compute(data, Run(tile))).verify("softcap", np.inf)


@every_tile
def test_sinks_of_any_size(tile: Tile, rng: np.random.Generator) -> None:
    """Beside scores that are ordinary, and such as move the shift."""
    for sink, scale in product((-1e4, -80, -5, 0, 20, 90, 1e4), (0, 100, 1000)):
        case = Attention(5, 66, 4, scale=scale)
        data = case.data(rng, sinks=np.array([sink], np.float32))
        result = case.judge(data, case.compute(data, Run(tile)))
        assert np.all(np.isfinite(result.c))
        result.verify(f"sink {sink} {case}", np.inf)


# ---- scores of any size ----


@every_tile
@pytest.mark.parametrize("scale", [4, 30, 1e3, 3e4, -3e4])
def test_peaked(tile: Tile, scale: float, rng: np.random.Generator) -> None:
    """Scores of a few times one to ten thousand, of either sign."""
    for (queries, keys), threads in product(((20, 77), (3, 300), (2, 1000)), (1, 2)):
        case = Attention(queries, keys, 8, scale=scale)
        data = case.data(rng)
        result = case.judge(data, case.compute(data, Run(tile, threads=threads)))
        assert np.all(np.isfinite(result.c))
        result.verify(f"{case} {tile}", np.inf)


def with_scores(case: Attention, scores: NDArray[Any], rng: np.random.Generator) -> AttentionData:
    """Data whose scores, with a scale of 1, are these by key or by query and key, exactly where they have few bits."""
    data = case.data(rng)
    scores = np.broadcast_to(scores, (case.queries, case.keys))
    assert case.depth >= case.queries
    data.q[...] = np.eye(case.queries, case.depth)
    data.k[...] = 0
    data.k[0, 0, :, : case.queries] = scores.T
    return data


@every_tile
@pytest.mark.parametrize("scale", [1e6, 1e8, 1e9, 1e10, 1e12, 1e20, 1e30])
def test_scores_of_few_digits(tile: Tile, scale: float, rng: np.random.Generator) -> None:
    """So large that their rounding alone may be a factor of 2^100 in a weight, they still choose a key or two."""
    for (keys, name), threads in product(((20, None), (300, "holes"), (1000, None)), (1, 2)):
        case = Attention(20, keys, 8, scale=scale)
        data = case.data(rng, masks_of(name, rng, case) if name else None)
        result = case.judge(data, case.compute(data, Run(tile, threads=threads)))
        assert np.all(np.isfinite(result.c))
        result.verify(f"{case} {tile}", np.inf)
        assert np.mean(np.max(result.errors, -1) < 1e-6) > 0.9


STEPS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "up": lambda t: np.where(t < 0.4, -500, 500),
    "down": lambda t: np.where(t < 0.4, 500, -500),
    "far up": lambda t: np.where(t < 0.6, -1e4, 1e4),
    "all low": lambda t: np.full_like(t, -300),
    "all very low": lambda t: np.full_like(t, -30000) + 3 * t,
    "all high": lambda t: np.full_like(t, 300) - 2 * t,
    "rising": lambda t: 300 * t - 150,
    "falling": lambda t: 150 - 300 * t,
    "around the limit above": lambda t: 22.18 + 0.01 * t,
    "around the limit below": lambda t: -22.18 - 0.01 * t,
    "up by less than the limit": lambda t: np.where(t < 0.3, -21, 21.0),
    "down, below what counts": lambda t: np.where(t < 0.3, 20, -80.0),
    "low, then none": lambda t: np.where(t < 0.3, -80, -200.0),
    "one key": lambda t: np.where(np.arange(len(t)) == len(t) * 2 // 3, 60, -60.0),
    "the last key": lambda t: np.where(np.arange(len(t)) == len(t) - 1, 2000, 0.0),
    "the first key": lambda t: np.where(np.arange(len(t)) == 0, 2000, 0.0),
}


@every_tile
@pytest.mark.parametrize("name", STEPS)
def test_scores_that_change(tile: Tile, name: str, rng: np.random.Generator) -> None:
    """From block to block, from part to part of the keys; queries whose shifts move beside such whose do not."""
    for keys, threads in product((50, 130, 500, 1000), (1, 2)):
        case = Attention(4, keys, 4, 20, scale=1)
        scores = STEPS[name](np.arange(keys) / keys)
        data = with_scores(case, np.stack([scores, 0 * scores, scores[::-1], scores + 1]), rng)
        result = case.judge(data, case.compute(data, Run(tile, threads=threads)))
        result.verify(f"{name} {case}", np.inf)
        # Alone, as among others.
        for query in range(4):
            only = replace(data, q=data.q[:, :, query : query + 1])
            alone = replace(case, queries=1).compute(only, Run(tile))
            assert not first_difference(alone[0, 0, 0], result.c[0, 0, query])


@every_tile
def test_masks_that_move_shifts(tile: Tile, rng: np.random.Generator) -> None:
    """Finite biases far from zero, with what is masked before and behind."""
    for index, (low, high) in enumerate(product((-60000, -300, -20), (-200, 0, 250, 60000))):
        case = Attention(9, 250, 6, mask_type=Type(index // 3 % 3))
        mask = masks_of(("late", "holes", "early")[index % 3], rng, case)
        mask += np.where(np.arange(250) < 200, low, high)
        data = case.data(rng, mask)
        result = case.judge(data, case.compute(data, Run(tile, threads=1 + index % 2)))
        result.verify(f"{low} {high} {case}", np.inf)


@every_tile
def test_one_key_takes_all(tile: Tile, rng: np.random.Generator) -> None:
    """Its values come out, but for the roundings of its weight, of a product with that and of the division by it."""
    for keys, key in ((7, 3), (77, 0), (500, 499)):
        case = Attention(3, keys, 5, 33, scale=1)
        data = with_scores(case, np.where(np.arange(keys) == key, 20000.0, 0), rng)
        c, v = case.compute(data, Run(tile)), data.v[:, :, key : key + 1]
        assert np.all(np.abs(c - v) <= 4 * UNIT * np.abs(v))


@every_tile
@pytest.mark.parametrize("threads", [1, 2])
def test_equal_keys(tile: Tile, threads: int) -> None:
    """The mean of 2^n ones is one."""
    for keys in (1, 4, 64, 512, 1024):
        case = Attention(5, keys, 3, 18)
        data = AttentionData(*(np.ones((1, 1, rows, n), np.float32) for rows, n in ((5, 3), (keys, 3), (keys, 18))))
        c = case.compute(data, Run(tile, threads=threads))
        assert np.abs(c - 1).max() <= (keys + 20) * 2.0**-24


@every_tile
def test_values_of_any_size(tile: Tile, rng: np.random.Generator) -> None:
    for q_size, v_size in ((1, 1e4), (1, 1e30), (1, 1e-40), (1e-42, 1), (1e-42, 1e-42), (1e4, 1e4)):
        case = Attention(9, 77, 8, 12)
        data = case.data(rng)
        data.q *= np.float32(q_size)
        data.v *= np.float32(v_size)
        result = case.judge(data, case.compute(data, Run(tile)))
        assert np.all(np.isfinite(result.c))
        if v_size > 1e-30:
            result.verify(f"q {q_size}, v {v_size}", np.inf if q_size > 1 else ATTENTION_ERROR)
        else:  # where products are denormal, each rounding loses up to half of the least number
            assert np.abs(result.c - result.exact).max() <= 80 * 2.0**-149


@every_tile
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_stays_where_it_is_read(tile: Tile, bad: float, rng: np.random.Generator) -> None:
    case = Attention(70, 130, 8, 20, heads=2)
    data = case.data(rng)
    expected = case.compute(data, Run(tile))

    def check(others: AttentionData, finite: NDArray[np.bool_]) -> None:
        c = case.compute(others, Run(tile, threads=2))
        assert np.array_equal(np.isfinite(c), finite)
        assert not first_difference(c[finite], expected[finite])

    everywhere = np.ones(expected.shape, bool)
    q = data.q.copy()
    q[0, 1, 33, 4] = bad
    finite = everywhere.copy()
    finite[0, 1, 33] = False
    check(replace(data, q=q), finite)
    v = data.v.copy()
    v[0, 0, 100, 7] = bad
    finite = everywhere.copy()
    finite[0, 0, :, 7] = False
    check(replace(data, v=v), finite)
    k = data.k.copy()
    k[0, 1, 100, 7] = np.nan
    finite = everywhere.copy()
    finite[0, 1] = False
    check(replace(data, k=k), finite)


@every_tile
def test_nan_in_a_mask(tile: Tile, rng: np.random.Generator) -> None:
    case = Attention(20, 130, 8, mask_type=Type.F32)
    mask = np.zeros((1, 1, 20, 130), np.float32)
    mask[0, 0, 7, 99] = np.nan
    c = case.compute(case.data(rng, mask), Run(tile))
    assert np.array_equal(np.isfinite(c[0, 0]).all(1), np.arange(20) != 7)


# ---- threads, working memory ----

THREAD_CASES = [
    (Attention(1, 1, 1), None),
    (Attention(3, 1000, 20), None),
    (Attention(2, 700, 5, heads=2), "causal"),
    (Attention(150, 77, 8, heads=3), "random"),
    (Attention(700, 130, 4), "causal"),
    (Attention(300, 300, 4, heads=2), "blocks"),
    (Attention(330, 500, 3), "band"),
    (Attention(65, 260, 7, heads=5), "sparse"),
    (Attention(640, 70, 5, heads=4), "late"),
]


@every_tile
@pytest.mark.parametrize("case, name", THREAD_CASES, ids=str)
def test_threads_do_not_change_the_result(
    tile: Tile, case: Attention, name: str | None, rng: np.random.Generator
) -> None:
    data = case.data(rng, masks_of(name, rng, case) if name else None)
    alone = case.compute(data, Run(tile))
    for threads in (2, 3, 4, 7):
        for slow in (-1, 0, threads - 1) if threads < 7 else (-1,):
            run = Run(tile, threads=threads, slow=slow)
            assert not first_difference(case.compute(data, run), alone), f"{run}"


@every_tile
@pytest.mark.parametrize("name", [None, "causal", "holes", "sparse"])
def test_neighbours_do_not_change_the_result(tile: Tile, name: str | None, rng: np.random.Generator) -> None:
    """A query's result is its own, whatever others are computed with it: with keys that are one block."""
    case = Attention(70, 59, 8)
    data = case.data(rng, masks_of(name, rng, case) if name else None)
    c = case.compute(data, Run(tile))
    for begin, end in ((0, 1), (10, 70), (33, 60), (69, 70)):
        some = replace(data, q=data.q[:, :, begin:end])
        some.mask = None if data.mask is None else data.mask[:, :, begin:end]
        part = replace(case, queries=end - begin).compute(some, Run(tile))
        assert not first_difference(part[0, 0], c[0, 0, begin:end])


@every_tile
@pytest.mark.parametrize("threads", [1, 8])
def test_working_memory(tile: Tile, threads: int) -> None:
    """At most 4 MB a thread."""
    plan = native.Plan(native.sdgen_kernels(tile.level), default_blocking(), tile.columns)
    tokens = (*range(1, 100, 7), 256, 577, 1024, 1984, 2000, 2048, 4096, 9216, 16384, 18432)
    for queries, keys, depth, heads, masked in product(
        tokens, (77, 256, 500, 2000, 18432), (32, 40, 64, 80, 128, 160, 256, 512), (1, 2, 8), (False, True)
    ):
        op = native.Attention(queries, keys, heads, 1, depth, depth, mask=4096 if masked else None)
        size = native.sdgen_attention_work_size(ctypes.byref(plan), ctypes.byref(op), threads)
        assert 0 < size <= threads * 4 * 2**20, f"{queries} x {keys}, {heads} heads of {depth}: {size / 2**20:.2f} MB"


# ---- large ones ----

LARGE = [
    Attention(4096, 77, 40, heads=2),
    Attention(1024, 1024, 40, heads=2),
    Attention(256, 4096, 64),
    Attention(300, 1500, 160, v_type=Type.F16),
    Attention(130, 2000, 512),
]


@pytest.mark.parametrize("tile", [Tile(level) for level in native.native_levels()[-1:]], ids=str)
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_layers(tile: Tile, case: Attention, rng: np.random.Generator) -> None:
    """Attention like that of a UNet and of a decoder, with fewer queries or heads. The errors of weights are each
    other's strangers, so that those of a mean of many keys shrink as the root of their number; those of the sums, of
    chains cut short, stay at two roundings."""
    data = case.data(rng)
    result = case.judge(data, case.compute(data, Run(tile, threads=2)))
    note(case, result.verify(str(case), UNIT * (2 + 100 / math.sqrt(case.keys))))


@st.composite
def attentions(draw: st.DrawFn) -> tuple[Attention, Run, str | None, bool, int]:
    def layout(backward: bool = True) -> Layout:
        gaps = st.integers(0, 20)
        return Layout(draw(st.booleans()), draw(gaps), draw(gaps), backward and draw(st.booleans()))

    heads, batch = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    case = Attention(
        *(draw(st.integers(1, 140)), draw(st.integers(1, 200)), draw(st.integers(1, 50)), draw(st.integers(0, 40))),
        *(heads, batch, draw(st.sampled_from(Type)), draw(st.sampled_from(Type))),
        k_repeat=(draw(st.integers(1, heads)), draw(st.integers(1, batch))),
        v_repeat=(draw(st.integers(1, heads)), draw(st.integers(1, batch))),
        mask_type=draw(st.sampled_from(Type)),
        q_layout=layout(),
        k_layout=layout(),
        v_layout=layout(),
        c_layout=layout(backward=False),
        mask_layout=layout(),
        scale=draw(st.sampled_from([0, 0.3, -1, 5])),
        max_bias=draw(st.sampled_from([0, 0, 8, 3])),
        softcap=draw(st.sampled_from([0, 0, 0, 2, 50])),
    )
    run = Run(
        draw(st.sampled_from(attention_tiles())),
        draw(st.sampled_from(Flush)),
        threads=draw(st.integers(1, 4)),
        work_shift=draw(st.integers(0, 63)),
    )
    name = draw(st.sampled_from([None, *MASKS]))
    return case, run, name, draw(st.booleans()), draw(st.integers(0, 2**32 - 1))


@given(attentions())
def test_random_operations(drawn: tuple[Attention, Run, str | None, bool, int]) -> None:
    case, run, name, sunk, seed = drawn
    rng = np.random.default_rng(seed)
    mask = None
    if name:
        mask = masks_of(name, rng, case, int(rng.integers(1, case.heads + 1)), int(rng.integers(1, case.batch + 1)))
    data = case.data(rng, mask, rng.standard_normal(case.heads, np.float32) if sunk else None)
    case.judge(data, case.compute(data, run)).verify(f"{case} {run} {name}", np.inf)


# ---- what the check refuses ----


def valid() -> native.Attention:
    """An operation that passes its check; the addresses are never used."""
    strides = {
        f"{name}_{of}stride": size for name in "qkvc" for of, size in (("", 64), ("head_", 640), ("batch_", 2560))
    }
    op = native.Attention(10, 10, 4, 2, 16, 16, scale=1, q=4096, k=4096, v=4096, c=4096, **strides)
    op.k_repeat = op.v_repeat = (1, 1)
    op.mask, op.mask_type, op.mask_stride = 4096, Type.F16, 20
    op.mask_heads = op.mask_batch = 1
    return op


def setting(**fields: Any) -> Callable[[native.Attention], None]:
    def change(op: native.Attention) -> None:
        for name, value in fields.items():
            setattr(op, name, value)

    return change


WRONG: dict[str, tuple[str, Callable[[native.Attention], None]]] = {
    **{
        f"{name} is {value}": ("an extent is not positive", setting(**{name: value}))
        for name, value in product(("queries", "keys", "heads", "batch", "depth", "value_depth"), (0, -1))
    },
    **{
        f"{name} is {value}": ("a repetition is not positive", setting(**{name: value}))
        for name, value in product(("k_repeat", "v_repeat"), ((0, 1), (1, 0), (-1, 1)))
    },
    **{f"{name} is missing": ("an array is missing", setting(**{name: None})) for name in "qkvc"},
    **{
        f"{name} is {value}": ("a type is none of", setting(**{name: value}))
        for name, value in product(("k_type", "v_type", "mask_type"), (3, -1))
    },
    **{
        f"{name}{field} is not aligned": (f"{name} or one of its strides is not", setting(**{name + field: value}))
        for name in "qkvc"
        for field, value in (("", 4098), ("_stride", 66), ("_head_stride", 641), ("_batch_stride", 2563))
    },
    **{
        f"mask{field} is not aligned": ("the mask or one of its strides is not", setting(**{"mask" + field: value}))
        for field, value in (("", 4097), ("_stride", 21), ("_head_stride", 3), ("_batch_stride", -1))
    },
    "mask_heads is 0": ("an extent of the mask is not positive", setting(mask_heads=0)),
    "mask_batch is 0": ("an extent of the mask is not positive", setting(mask_batch=0)),
    "rows of c overlap": ("rows of c overlap", setting(c_stride=60)),
    "heads of c overlap": ("rows of c overlap", setting(c_head_stride=60)),
    "batches of c overlap": ("rows of c overlap", setting(c_batch_stride=60)),
    "c is written backward": ("rows of c overlap", setting(c_stride=-64)),
}


def test_check_passes_what_is_right() -> None:
    assert native.sdgen_attention_check(ctypes.byref(valid())) is None


@pytest.mark.parametrize(
    "change",
    [
        setting(mask=None, mask_type=7, mask_stride=1, mask_heads=0, mask_batch=0),
        setting(queries=1, heads=1, batch=1, c_stride=0, c_head_stride=0, c_batch_stride=0),
        setting(k_type=Type.F16, k=4098, k_stride=38, k_head_stride=-2),
        setting(q_stride=0, k_stride=-64, mask_stride=0),
    ],
)
def test_check_passes_what_does_not_matter(change: Callable[[native.Attention], None]) -> None:
    op = valid()
    change(op)
    assert native.sdgen_attention_check(ctypes.byref(op)) is None


@pytest.mark.parametrize("wrong", WRONG)
def test_check_refuses(wrong: str) -> None:
    op = valid()
    expected, change = WRONG[wrong]
    change(op)
    message = native.sdgen_attention_check(ctypes.byref(op))
    assert message and message.decode().startswith(expected) and len(message) < 100
