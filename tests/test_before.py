"""Convolutions with a group norm of their input as a part of them, at every level that runs here: against float64, and
against the norm and the convolution one after the other, of which they make the same numbers bit for bit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import TINY, first_difference
from tests.functions import PARAMETERS
from tests.guarded import Flush, Guards
from tests.operations import SMALL_BLOCKS, Array, Conv2d, Run, Tile, every_tile, plan_of
from tests.sdgen_native import Function, Level, Type
from tests.test_after import After
from tests.test_norm import GroupNorm
from tests.test_winograd_conv2d import ERROR

pytestmark = pytest.mark.slow

every_level = pytest.mark.parametrize("tile", [Tile(level) for level in native.native_levels()], ids=str)
every_m = pytest.mark.parametrize("m", ERROR, ids="F{}".format)
every_way = pytest.mark.parametrize("m", [0, *ERROR], ids=lambda m: f"F{m}" if m else "direct")

Data = tuple[NDArray[Any], Array, Array]


def sums_of(x: Array, pieces: int) -> NDArray[np.float64]:
    """[batch][channels][pieces][2], where a channel's pixels are dealt out to its pieces."""
    pixels = x.astype(np.float64).reshape(*x.shape[:2], -1)
    dealt = [pixels[..., piece::pieces] for piece in range(pieces)]
    return np.stack([np.stack([part.sum(-1), (part**2).sum(-1)], -1) for part in dealt], 2)


@dataclass(frozen=True)
class Normed:
    """A convolution without a bias, and the norm of its input; sums: in how many pieces they are given, 0: not."""

    conv: Conv2d
    groups: int
    function: Function = Function.SILU
    weight: bool = True
    bias: bool = True
    mean: float = 0.5
    eps: float = 1e-6
    sums: int = 0

    def norm(self) -> GroupNorm:
        pixels = self.conv.size[0] * self.conv.size[1]
        settings = {"weight": self.weight, "bias": self.bias, "function": self.function, "eps": self.eps}
        return GroupNorm(self.conv.channels_in, pixels, self.groups, self.conv.batch, **settings)  # type: ignore[arg-type]

    def data(self, rng: np.random.Generator) -> tuple[Data, Array, Array]:
        """That of the convolution, and the norm's weight and bias."""
        w, x, bias = self.conv.data(rng)
        vectors = rng.standard_normal((2, self.conv.channels_in), np.float32)
        return (w, (x + np.float32(self.mean)).astype(np.float32), bias), vectors[0], vectors[1]

    def compute(
        self,
        data: tuple[Data, Array, Array],
        run: Run,
        in_place: bool = False,
        given: NDArray[np.float64] | None = None,
    ) -> Array:
        (_, x, _), weight, bias = data
        sums = sums_of(x, self.sums) if self.sums else given

        def before(arrays: Guards) -> native.Before:
            result = native.Before(
                groups=self.groups,
                eps=self.eps,
                function=self.function,
                parameter=PARAMETERS.get(self.function, (0, 0)),
            )
            if self.weight:
                result.weight = arrays.copy("weight", weight).ctypes.data
            if self.bias:
                result.bias = arrays.copy("bias", bias).ctypes.data
            if sums is not None:
                result.sums = arrays.copy("sums of x", sums).ctypes.data
                result.sum_pieces = sums.shape[2]
            return result

        return self.conv.compute(data[0], run, before=before, in_place=in_place)

    def apart(self, data: tuple[Data, Array, Array], run: Run) -> Array:
        """The norm, and then the convolution."""
        (w, x, bias), *vectors = data
        y = self.norm().compute((x.reshape(*x.shape[:2], -1), vectors[0], vectors[1]), run)
        return self.conv.compute((w, y.reshape(x.shape), bias), run)

    def judge(self, data: tuple[Data, Array, Array], c: Array, m: int) -> None:
        """By Winograd's method an error is that of its tile, as test_winograd_conv2d.py has it; beside it that of what
        is convolved."""
        (w, x, bias), *vectors = data
        y, off = self.norm().exact((x.reshape(*x.shape[:2], -1), vectors[0], vectors[1]))
        exact, magnitude = self.conv.reference((w, y.reshape(x.shape), bias))  # type: ignore[arg-type]
        moved = self.conv.reference((w, off.reshape(x.shape), bias))[1]  # type: ignore[arg-type]
        by_sums = 2 * 9 / 4 * ERROR[m] * magnitude.max() if m else self.conv.bound() * (magnitude + moved)
        most = by_sums + moved + TINY
        assert np.all(np.abs(c - exact) <= most), f"{self}: {np.abs(c - exact).max()} of {most.max()}"

    def verify(self, rng: np.random.Generator, run: Run) -> None:
        data = self.data(rng)
        c = self.compute(data, run)
        self.judge(data, c, run.winograd)
        if not self.sums:
            assert not first_difference(c, self.apart(data, run)), f"{self} {run}"


def normed(channels: int, size: tuple[int, int], groups: int, **more: Any) -> Normed:
    conv = {name: more.pop(name) for name in tuple(more) if name in Conv2d.__dataclass_fields__ and name != "bias"}
    return Normed(Conv2d(channels, 19, size, **{"pad": (1, 1), **conv}), groups, **more)


def run_of(tile: Tile, m: int, index: int) -> Run:
    """Arrays flush to either end, blocks of either size, and several threads, in turn."""
    blocking = SMALL_BLOCKS if index % 3 else None
    return Run(tile, list(Flush)[index % 2], threads=1 + index % 3, blocking=blocking, winograd=m)


@every_level
@every_m
def test_sizes(tile: Tile, m: int, rng: np.random.Generator) -> None:
    """Images of a part of a tile to many rows of them, whose strip goes round once and often."""
    sizes = [(5, 7), (2, 2), (2, 40), (40, 2), (16, 16), (9 * m, 3 * m), (17, 64), (64, 65), (76, 76)]
    for index, size in enumerate(sizes):
        normed(24, size, 8, w_type=Type(index % 3)).verify(rng, run_of(tile, m, index))
        normed(24, size, 8).verify(rng, run_of(tile, m, index + 1))


@every_tile
@every_way
def test_paddings_batches_gaps(tile: Tile, m: int, rng: np.random.Generator) -> None:
    settings = product(((0, 0), (1, 1), (0, 1), (1, 0)), (1, 2, 3), (0, 5), ((9, 14), (33, 6)))
    for index, (pad, batch, gap, size) in enumerate(settings):
        case = normed(20, size, 5, pad=pad, batch=batch, channel_gap=gap, batch_gap=2 * gap)
        case.verify(rng, run_of(tile, m, index))


@every_level
@every_way
def test_channels_groups_functions(tile: Tile, m: int, rng: np.random.Generator) -> None:
    cases = [(1, 1), (3, 3), (7, 1), (32, 32), (33, 3), (66, 11), (96, 32), (130, 2)]
    for index, (channels, groups) in enumerate(cases):
        function = (Function.SILU, Function.NONE, Function.LEAKY)[index % 3]
        case = normed(channels, (22, 10), groups, function=function, weight=index % 2 == 0, bias=index % 4 < 2)
        case.verify(rng, run_of(tile, m, index))


@every_level
@every_way
def test_given_sums(tile: Tile, m: int, rng: np.random.Generator) -> None:
    for index, pieces in enumerate((1, 2, 7)):
        normed(24, (22, 15), 4, batch=2, sums=pieces).verify(rng, run_of(tile, m, index))


DIRECT: list[dict[str, Any]] = [
    {},
    {"kernel": (1, 1), "pad": (0, 0)},
    {"kernel": (5, 5), "pad": (2, 2)},
    {"kernel": (1, 1), "pad": (2, 3), "stride": (2, 2)},
    {"stride": (2, 2)},
    {"stride": (1, 3), "pad": (1, 0)},
    {"dilation": (2, 2), "pad": (2, 2)},
    {"kernel": (3, 1), "pad": (0, 2)},
    {"kernel": (2, 4), "pad": (0, 5), "dilation": (1, 3)},
]


@every_level
@pytest.mark.parametrize("form", DIRECT, ids=str)
def test_directly(tile: Tile, form: dict[str, Any], rng: np.random.Generator) -> None:
    """Images of a part of a panel to several bands, the widest of which begin within rows."""
    for index, (size, channels_out) in enumerate(product(((17, 10), (5, 13), (33, 20), (600, 12)), (3, 19))):
        case = normed(24, size, 8, batch=1 + index % 2, w_type=Type(index % 3), **form)
        replace(case, conv=replace(case.conv, channels_out=channels_out)).verify(rng, run_of(tile, 0, index))


@every_level
def test_directly_of_many_channels(tile: Tile, rng: np.random.Generator) -> None:
    """Blocks of the depth that begin and end within a channel, and strips of some of the rows."""
    for index, (channels, size, form) in enumerate(product((130, 200), ((64, 22),), DIRECT[:3])):
        normed(channels, size, 10, **form).verify(rng, Run(tile, threads=1 + index % 2))


def check_sums(case: Conv2d, rng: np.random.Generator, run: Run) -> None:
    """Each piece of c is in one of the sums: they add up to those of all pixels, and their order is the kernel's."""
    data, sums = case.data(rng), list[NDArray[np.float64]]()
    c = case.compute(data, run, sums=sums).astype(np.float64)
    for power in (1, 2):
        made, exactly = sums[0][..., power - 1].sum(-1), (c**power).sum((2, 3))
        magnitude = (np.abs(c) ** power).sum((2, 3))
        assert np.all(np.abs(made - exactly) <= 2.0**-53 * c[0, 0].size * magnitude), f"{case} {run}"


@every_tile
@every_m
def test_sums_of_the_output(tile: Tile, m: int, rng: np.random.Generator) -> None:
    sizes = [(5, 7), (2, 2), (16, 16), (9 * m, 3 * m), (17, 64), (64, 65), (76, 76), (150, 20)]
    for index, (size, batch) in enumerate(product(sizes, (1, 3))):
        case = Conv2d(24, 19, size, pad=(1, 1), batch=batch, batch_gap=3 * (index % 2), bias=True)
        check_sums(case, rng, run_of(tile, m, index))


@every_level
def test_sums_of_an_image_doubled(tile: Tile, rng: np.random.Generator) -> None:
    check_sums(Conv2d(24, 19, (33, 20), pad=(1, 1), upsample=2, batch=2), rng, run_of(tile, 2, 1))


@every_level
@every_m
def test_threads_do_not_change_sums(tile: Tile, m: int, rng: np.random.Generator) -> None:
    case = Conv2d(40, 37, (60, 50), pad=(1, 1), batch=2)
    data, after = case.data(rng), After(addend="012", function=Function.SILU)
    operands, sums = after.data(rng, (1, 2, 37, 3000)), list[NDArray[np.float64]]()
    for threads, slow in ((1, -1), (2, -1), (3, 1), (4, 0)):
        run = Run(tile, threads=threads, slow=slow, winograd=m)
        c = case.compute(data, run, partial(after.place, operands), sums=sums)
        assert np.all(sums[-1] == sums[0]), f"{run}"
    assert np.allclose(sums[0][..., 0].sum(-1), c.astype(np.float64).sum((2, 3)), 1e-12)


@every_level
def test_a_norm_of_given_sums(tile: Tile, rng: np.random.Generator) -> None:
    """Two convolutions, the first of which makes the sums for the second's norm, in place of the image between them."""
    first = Conv2d(24, 20, (40, 66), pad=(1, 1))
    case = Normed(Conv2d(20, 20, (40, 66), pad=(1, 1)), 5)
    sums, run = list[NDArray[np.float64]](), run_of(tile, 2, 1)
    data = case.data(rng)
    x = first.compute(first.data(rng), run, sums=sums)
    data = ((data[0][0], x, data[0][2]), *data[1:])
    case.judge(data, case.compute(data, run, given=sums[0]), 2)
    norm = case.norm()
    flat = (x.reshape(1, 20, -1), *data[1:])
    norm.judge(flat, norm.compute(flat, run, sums[0]), f"{norm} {run}")


@every_level
@every_way
@pytest.mark.parametrize("mean", [100.0, -1000.0])
def test_far_from_zero(tile: Tile, m: int, mean: float, rng: np.random.Generator) -> None:
    """As exact as the norm by itself."""
    normed(24, (30, 26), 4, mean=mean).verify(rng, run_of(tile, m, 1))
    normed(24, (30, 26), 4, mean=mean, sums=3).verify(rng, run_of(tile, m, 1))


@every_level
@every_way
def test_threads_change_nothing(tile: Tile, m: int, rng: np.random.Generator) -> None:
    case = normed(70, (40, 50), 10, batch=2)
    data = case.data(rng)
    for blocking in (None, SMALL_BLOCKS):
        alone = case.compute(data, Run(tile, winograd=m, blocking=blocking))
        for threads, slow in ((2, -1), (3, 1), (4, 0)):
            run = Run(tile, threads=threads, slow=slow, winograd=m, blocking=blocking)
            assert not first_difference(case.compute(data, run), alone), f"{run}"


@every_level
@every_m
@pytest.mark.parametrize("batch", [1, 3])
def test_in_place(tile: Tile, m: int, batch: int, rng: np.random.Generator) -> None:
    for index, (size, channels) in enumerate(product(((40, 30), (5, 7), (16, 90)), (24, 19))):
        case = Normed(Conv2d(24, channels, size, pad=(1, 1), batch=batch), 8)
        data = case.data(rng)
        run = run_of(tile, m, index)
        assert not first_difference(case.compute(data, run, in_place=True), case.compute(data, run)), f"{case} {run}"


@every_level
def test_what_is_not_finite_stays_in_its_group(tile: Tile, rng: np.random.Generator) -> None:
    """Weights of the other groups only: 0 times what is not finite is a NaN."""
    case = replace(normed(12, (30, 20), 3), function=Function.NONE)
    data = case.data(rng)
    data[0][1][0, 5, 3, 4] = np.inf
    c = case.compute(data, Run(tile, winograd=2))
    assert np.all(np.isnan(c))
    data[0][1][0, 5, 3, 4] = 1
    assert np.all(np.isfinite(case.compute(data, Run(tile, winograd=2))))


# ---- where it is done, and what the check refuses ----


def valid(channels: int, size: tuple[int, int], **more: Any) -> native.Conv2d:
    """An operation that passes its check; the addresses are never used."""
    width, height = size
    pixels = 4 * width * height
    image = (4096, 4 * width, pixels, channels * pixels)
    op = native.Conv2d(
        *(1, channels, 8, width, height, width, height, 3, 3, 1, 1, 1, 1, 1, 1, 4096, Type.F32, *image),
        *(4096, 8 * pixels, 1.0, None),
        before=native.Before(4, 4096, 4096, 1e-6, Function.SILU),
    )
    for name, value in more.items():
        setattr(op, name, value)
    return op


def test_where_it_pays() -> None:
    """Both sides of the rule."""
    plan = plan_of(Run(Tile(Level.C), winograd=-1))

    def pays(op: native.Conv2d) -> bool:
        assert native.sdgen_conv2d_check(ctypes.byref(op)) is None
        return bool(native.sdgen_conv2d_norm_pays(ctypes.byref(op)))

    assert pays(valid(128, (512, 512)))
    assert pays(valid(320, (64, 64)))
    assert not pays(valid(640, (32, 32)))
    for size, sums in ((256, True), (128, False)):
        op = valid(128, (size, size))
        assert native.sdgen_conv2d_sums_pay(ctypes.byref(plan), ctypes.byref(op)) == sums
    pixel = {"kernel_width": 1, "kernel_height": 1, "pad_x": 0, "pad_y": 0}
    assert pays(valid(320, (64, 64), **pixel))
    assert not pays(valid(640, (32, 32), **pixel))


def test_given_sums_need_the_same_memory() -> None:
    """What was seen to fit without them fits with them, and the other way."""
    plan, op = plan_of(Run(Tile(Level.C), winograd=2)), valid(128, (256, 256))
    size = native.sdgen_conv2d_work_size(ctypes.byref(plan), ctypes.byref(op), 2)
    op.before.sums, op.before.sum_pieces = 4096, 3
    assert native.sdgen_conv2d_work_size(ctypes.byref(plan), ctypes.byref(op), 2) == size


@pytest.mark.parametrize(
    "changes, overwrites",
    [
        ({}, True),
        ({"before": native.Before()}, False),
        ({"pad_x": 0, "width_out": 62}, False),
        ({"x_channel_stride": 4 * 64 * 64 + 4}, False),
        ({"kernel_width": 1, "kernel_height": 3, "width_out": 66}, False),
        ({"batch": 2}, False),
        ({"batch": 2, "c_batch_stride": 4 * 128 * 64 * 64}, True),
    ],
)
def test_where_it_may_overwrite(changes: dict[str, Any], overwrites: bool) -> None:
    plan, op = plan_of(Run(Tile(Level.C), winograd=2)), valid(128, (64, 64), **changes)
    assert native.sdgen_conv2d_check(ctypes.byref(op)) is None
    assert native.sdgen_conv2d_overwrites(ctypes.byref(plan), ctypes.byref(op)) == overwrites


WRONG: dict[str, Callable[[native.Conv2d], None]] = {
    "groups do not divide the channels": lambda op: setattr(op.before, "groups", 3),
    "groups is negative": lambda op: setattr(op.before, "groups", -4),
    "the function is unknown": lambda op: setattr(op.before, "function", 99),
    "weight is not aligned": lambda op: setattr(op.before, "weight", 4097),
    "bias is not aligned": lambda op: setattr(op.before, "bias", 4098),
    "sums are not aligned": lambda op: setattr(op, "before", native.Before(4, sums=4100, sum_pieces=1)),
    "sums are of no pieces": lambda op: setattr(op.before, "sums", 4096),
    "sums of c are not aligned": lambda op: setattr(op, "sums", 4100),
    "rows have gaps": lambda op: setattr(op, "x_row_stride", 4 * 65),
    "of frames": lambda op: setattr(op, "frames", native.Frames(1, 1, 1, 1, 0, 1)),
}


def test_check_passes_what_is_right() -> None:
    assert native.sdgen_conv2d_check(ctypes.byref(valid(128, (64, 64)))) is None


@pytest.mark.parametrize("wrong", WRONG)
def test_check_refuses(wrong: str) -> None:
    op = valid(128, (64, 64))
    WRONG[wrong](op)
    message = native.sdgen_conv2d_check(ctypes.byref(op))
    assert message and 5 < len(message) < 100


def test_an_image_normed_is_not_doubled() -> None:
    op = valid(128, (64, 64), x_doubled=True, width_out=128, height_out=128)
    assert native.sdgen_conv2d_check(ctypes.byref(op))
    op.before.groups = 0
    assert native.sdgen_conv2d_check(ctypes.byref(op)) is None
