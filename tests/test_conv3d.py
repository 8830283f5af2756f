"""sdgen_conv2d of frames, directly and by Winograd's method, at every level that runs here, against float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import chain_bound, error_measure, first_difference
from tests.guarded import Flush
from tests.operations import CHANCE_ERROR, SMALL_BLOCKS, Array, Run, Tile, execute, loaded, native_tiles, stored
from tests.sdgen_native import Function, Type
from tests.test_winograd_conv2d import ERROR

pytestmark = pytest.mark.slow

every_tile = pytest.mark.parametrize("tile", native_tiles(), ids=str)
every_level = pytest.mark.parametrize("level", native.native_levels(), ids=native.level_name)

Triple = tuple[int, int, int]

# w as elements of its type, x, bias, addend
Data = tuple[NDArray[Any], Array, Array, Array]


@dataclass(frozen=True)
class Conv3d:
    """Triples are (x, y, z); gaps are in elements, behind each row, each frame, each channel and each batch."""

    channels_in: int
    channels_out: int
    size: Triple
    kernel: Triple = (3, 3, 3)
    stride: Triple = (1, 1, 1)
    pad: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    batch: int = 1
    w_type: Type = Type.F32
    gaps: tuple[int, int, int, int] = (0, 0, 0, 0)
    scale: float = 1.0
    bias: bool = False
    addend: str = ""  # "its own", with gaps; or "c"
    fewer: int = 0  # frames of c than there could be
    frames_first: bool = False  # frames of x lie farther apart than its channels

    @property
    def size_out(self) -> Triple:
        x, y, z = (
            (self.size[i] + 2 * self.pad[i] - self.dilation[i] * (self.kernel[i] - 1) - 1) // self.stride[i] + 1
            for i in range(3)
        )
        return x, y, z - self.fewer

    @property
    def shape_out(self) -> tuple[int, ...]:
        return (self.batch, self.channels_out, *self.size_out[::-1])

    def data(self, rng: np.random.Generator) -> Data:
        """Zero-mean with unit variance."""
        w = rng.standard_normal((self.channels_out, self.channels_in, *self.kernel[::-1]), np.float32)
        x = rng.standard_normal((self.batch, self.channels_in, *self.size[::-1]), np.float32)
        bias = rng.standard_normal(self.channels_out, np.float32)
        return stored(w, self.w_type), x, bias, rng.standard_normal(self.shape_out, np.float32)

    def strides(self, channels: int, size: Triple, gaps: tuple[int, int, int, int]) -> tuple[int, ...]:
        row = 4 * (size[0] + gaps[0])
        frame = row * size[1] + 4 * gaps[1]
        channel = frame * size[2] + 4 * gaps[2]
        return channel * channels + 4 * gaps[3], channel, frame, row, 4

    def compute(self, data: Data, run: Run) -> Array:
        what = f"{self} {run}"
        with run.guards(run.flush) as arrays:
            w, bias = arrays.copy("w", data[0]), arrays.copy("bias", data[2]) if self.bias else None
            x_strides = self.strides(self.channels_in, self.size, self.gaps)
            if self.frames_first:
                row = x_strides[3]
                channel = row * self.size[1]
                frame = channel * self.channels_in
                x_strides = (frame * self.size[2], channel, frame, row, 4)
            x = arrays.strided("x", data[1].shape, x_strides)
            x[...] = data[1]
            c = arrays.strided(
                "c", self.shape_out, self.strides(self.channels_out, self.size_out, (0, 0, 0, self.gaps[3]))
            )
            after = native.After()
            if self.addend:
                gaps = (0, *self.gaps[1:]) if self.addend == "its own" else (0, 0, 0, self.gaps[3])
                strides = self.strides(self.channels_out, self.size_out, gaps)
                addend = c if self.addend == "c" else arrays.strided("addend", self.shape_out, strides)
                addend[...] = data[3]
                after.addend = native.Operand(addend.ctypes.data, (4, strides[1], strides[2], strides[0]))
                after.function, after.parameter = Function.LEAKY, (0.25, 0.0)
            frames = native.Frames(self.size[2], self.size_out[2], *(of[2] for of in self.zs), x_strides[2])
            op = native.Conv2d(
                *(self.batch, self.channels_in, self.channels_out, *self.size[:2], *self.size_out[:2]),
                *(self.kernel[:2] + self.stride[:2] + self.pad[:2] + self.dilation[:2]),
                *(w.ctypes.data, self.w_type, x.ctypes.data, x_strides[3], x_strides[1], x_strides[0]),
                *(c.ctypes.data, c.strides[0], self.scale, None if bias is None else bias.ctypes.data),
                *(False, after),
                frames=frames,
            )
            execute("sdgen_conv2d", op, arrays, run, what)
            result: Array = c.copy()
            return result

    @property
    def zs(self) -> tuple[Triple, Triple, Triple, Triple]:
        return self.kernel, self.stride, self.pad, self.dilation

    def reference(self, data: Data) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The exact result, and the sums of the magnitudes of the products summed."""
        w = loaded(data[0], self.w_type).astype(np.float64).reshape(self.channels_out, -1)
        x = data[1].astype(np.float64)
        padded = np.pad(x, ((0, 0), (0, 0), *((pad, pad) for pad in self.pad[::-1])))
        window = [self.dilation[i] * (self.kernel[i] - 1) + 1 for i in (2, 1, 0)]
        windows = np.lib.stride_tricks.sliding_window_view(padded, window, (2, 3, 4))
        (sx, sy, sz), (dx, dy, dz) = self.stride, self.dilation
        taps = windows[:, :, ::sz, ::sy, ::sx, ::dz, ::dy, ::dx].transpose(0, 1, 5, 6, 7, 2, 3, 4)
        taps = taps[:, :, :, :, :, : self.size_out[2]]
        patches = np.ascontiguousarray(taps).reshape(self.batch, w.shape[1], -1)
        exact = (w @ patches).reshape(self.shape_out) * self.scale
        magnitude = (np.abs(w) @ np.abs(patches)).reshape(self.shape_out) * abs(self.scale)
        if self.bias:
            bias = data[2].astype(np.float64)[:, None, None, None]
            exact, magnitude = exact + bias, magnitude + np.abs(bias)
        if self.addend:
            exact, magnitude = exact + data[3], magnitude + np.abs(data[3])
            exact = np.where(exact > 0, exact, 0.25 * exact)  # a leaky ReLU passes errors on as they are, or less
        return exact, magnitude

    def verify(self, rng: np.random.Generator, run: Run) -> None:
        data = self.data(rng)
        c = self.compute(data, run)
        exact, magnitude = self.reference(data)
        if run.winograd:
            # As in tests/test_winograd_conv2d.py: a pixel has the rounding errors of its whole tile.
            magnitude, limit = np.broadcast_to(magnitude.max(), magnitude.shape), 2 * ERROR[run.winograd]
        else:
            kernel = self.kernel[0] * self.kernel[1] * self.kernel[2]
            limit = min(chain_bound(self.channels_in * kernel + 5), CHANCE_ERROR)
        error = error_measure(c, exact, magnitude)
        assert error <= limit, f"{self} {run}: error {error:.3g}, allowed {limit:.3g}"


DIRECT = [
    Conv3d(1, 1, (1, 1, 1), (1, 1, 1)),
    Conv3d(3, 5, (13, 7, 4), pad=(1, 1, 1), bias=True),
    Conv3d(4, 9, (11, 6, 5), (3, 3, 3), (2, 1, 2), (1, 0, 2), batch=2, gaps=(1, 3, 2, 5), w_type=Type.F16),
    Conv3d(5, 7, (9, 8, 7), (1, 1, 3), pad=(0, 0, 1), bias=True, scale=0.5),
    Conv3d(5, 7, (9, 8, 7), (1, 1, 3), (1, 1, 2), gaps=(0, 3, 0, 0), w_type=Type.BF16),
    Conv3d(8, 19, (12, 5, 3), (1, 1, 1), batch=2, addend="its own", gaps=(0, 1, 2, 3)),
    Conv3d(16, 33, (8, 6, 2), (2, 2, 1), (2, 2, 1), addend="its own", bias=True),
    Conv3d(3, 6, (14, 14, 4), (5, 3, 2), (1, 2, 1), (2, 1, 1), (1, 2, 3), batch=2),
    Conv3d(4, 3, (10, 9, 3), (3, 3, 3), pad=(1, 1, 2), addend="c", batch=2, gaps=(0, 0, 0, 4)),
    Conv3d(20, 17, (17, 9, 6), pad=(1, 1, 1), frames_first=True, addend="its own"),
    Conv3d(3, 4, (5, 4, 1), (3, 2, 3), pad=(1, 1, 1)),
    Conv3d(6, 5, (9, 7, 4), pad=(1, 1, 2), fewer=2, batch=2),
    Conv3d(7, 5, (1, 1, 20), (1, 1, 5), pad=(0, 0, 2), addend="c"),
]

TRANSFORMED = [
    Conv3d(24, 17, (13, 11, 5), pad=(1, 1, 1), bias=True),
    Conv3d(20, 5, (9, 7, 4), (3, 3, 2), (1, 1, 2), (1, 1, 1), batch=2, gaps=(1, 2, 3, 4), w_type=Type.F16, scale=0.5),
    Conv3d(70, 16, (12, 6, 3), (3, 3, 3), dilation=(1, 1, 1), pad=(0, 0, 2), addend="its own", gaps=(0, 5, 1, 0)),
    Conv3d(24, 35, (8, 5, 6), (3, 3, 3), pad=(1, 1, 2), dilation=(1, 1, 2), addend="c", batch=2),
    Conv3d(30, 20, (9, 7, 4), pad=(1, 1, 2), fewer=2, bias=True),
    Conv3d(40, 3, (17, 16, 2), (3, 3, 1), pad=(1, 1, 0), frames_first=True, addend="its own"),
]


@every_tile
@pytest.mark.parametrize("case", DIRECT, ids=str)
def test_directly(tile: Tile, case: Conv3d, rng: np.random.Generator) -> None:
    for flush, blocking in zip(Flush, (None, SMALL_BLOCKS), strict=True):
        case.verify(rng, Run(tile, flush, threads=2, blocking=blocking))


@every_level
@pytest.mark.parametrize("m", ERROR, ids="F{}".format)
@pytest.mark.parametrize("case", TRANSFORMED, ids=str)
def test_by_winograd(level: native.Level, m: int, case: Conv3d, rng: np.random.Generator) -> None:
    for flush, blocking in zip(Flush, (None, SMALL_BLOCKS), strict=True):
        case.verify(rng, Run(Tile(level), flush, threads=2, blocking=blocking, winograd=m))


@every_level
@pytest.mark.parametrize(
    ("case", "winograd"), [*((case, 0) for case in DIRECT[1:]), *((case, 2) for case in TRANSFORMED)], ids=str
)
def test_threads_do_not_change_frames(
    level: native.Level, case: Conv3d, winograd: int, rng: np.random.Generator
) -> None:
    data = case.data(rng)
    run = Run(Tile(level), blocking=SMALL_BLOCKS, winograd=winograd)
    alone = case.compute(data, run)
    for threads in (2, 3, 4):
        again = case.compute(data, replace(run, threads=threads, slow=threads - 1))
        assert not first_difference(again, alone), f"{case} {threads} threads"


# ---- what the check refuses ----


def valid() -> native.Conv2d:
    """An operation that passes its check; the addresses are never used."""
    return native.Conv2d(
        *(2, 3, 4, 10, 8, 10, 8, 3, 3, 1, 1, 1, 1, 1, 1, 4096, Type.F32),
        *(4096, 40, 1600, 4800, 4096, 6400, 1.0, None, False, native.After()),
        frames=native.Frames(5, 5, 3, 1, 1, 1, 320),
    )


def frame(name: str, value: int) -> Callable[[native.Conv2d], None]:
    def change(op: native.Conv2d) -> None:
        frames = op.frames
        setattr(frames, name, value)

    return change


WRONG: dict[str, Callable[[native.Conv2d], None]] = {
    **{f"{name} of frames is 0": frame(name, 0) for name in ("in", "kernel", "stride", "dilation")},
    "frames of c are negative": frame("out", -1),
    "the padding is negative": frame("pad", -1),
    "there are too many frames": frame("out", 6),
    "the kernel has too many frames": frame("kernel", 8),
    "the stride is not aligned": frame("x_stride", 322),
    "sums are asked for": lambda op: setattr(op, "sums", 4096),
    "the image is doubled": lambda op: setattr(op, "x_doubled", True),
    "batches of c overlap": lambda op: setattr(op, "c_batch_stride", 6396),
}


def test_check_passes_what_is_right() -> None:
    assert native.sdgen_conv2d_check(ctypes.byref(valid())) is None


@pytest.mark.parametrize("wrong", WRONG)
def test_check_refuses(wrong: str) -> None:
    op = valid()
    WRONG[wrong](op)
    if wrong == "the image is doubled":
        op.width_out, op.height_out = 20, 16
        op.c_batch_stride = 25600
    message = native.sdgen_conv2d_check(ctypes.byref(op))
    assert message and 5 < len(message) < 100
