"""Operations of sdgen.h as data: what to compute, its float64 result, and a run of it between guard pages."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import UNIT, chain_bound, error_measure
from tests.guarded import Flush, Guards, guards
from tests.sdgen_native import Level, Type

Array = NDArray[np.float32]

# The most that the error measure may be for zero-mean data in a layer of a model, of hundreds of products.
MATMUL_ERROR = 2.4e-7
CONV2D_ERROR = 2.1e-7

# The same for any single chain. Its partial sums grow as the square root of their number p, so that its error has a
# standard deviation near UNIT sqrt(sum of p / 3) where the magnitudes add up to 0.64 k: 0.65 UNIT at any length.
CHANCE_ERROR = 10 * UNIT

# Small blocks, so that small operations have all their edges; kc differs from blocks that the runtime would choose.
SMALL_BLOCKS = native.Blocking(24, 18, 48, 24 * 18 * 4)


def default_blocking() -> native.Blocking:
    blocking: native.Blocking = native.sdgen_blocking(native.sdgen_processor())
    return blocking


def chain_length(depth: int, kc: int) -> int:
    """Products that are summed before their sum is added to C, as cut_of in runtime/gemm.c has it: three chains where
    none gets shorter than twelve for that, more where they would be longer than kc, in steps of four."""
    chains = max(math.ceil(depth / kc), min(3, max(depth // 12, 1)))
    return math.ceil(math.ceil(depth / chains) / 4) * 4


@dataclass(frozen=True)
class Tile:
    """The kernels that an operation is computed with: those of a level, of so many columns (0: chosen by shape)."""

    level: Level
    columns: int = 0

    def __str__(self) -> str:
        return native.level_name(self.level) + (f"-{self.columns}" if self.columns else "")


def native_tiles() -> list[Tile]:
    """All that run here."""
    gemms = [kernel for kernel in native.kernels() if kernel.operation == "gemm"]
    return [
        Tile(level, columns)
        for level in native.native_levels()
        for columns in (0, *sorted({kernel.columns for kernel in gemms if kernel.level == level}))
    ]


every_tile = pytest.mark.parametrize("tile", native_tiles(), ids=str)


@dataclass(frozen=True)
class Run:
    """How an operation is computed; none of it may change the result but the blocks' kc."""

    tile: Tile
    flush: Flush = Flush.END
    threads: int = 1
    slow: int = -1
    blocking: native.Blocking | None = None
    work_shift: int = 1
    winograd: int = 0  # m of F(m x m, 3 x 3); 0: directly; -1: chosen by shape
    guards: Callable[[Flush], AbstractContextManager[Guards]] = field(default=guards, repr=False)


def stored(values: Array, w_type: Type) -> NDArray[Any]:
    """The values as elements of the type, rounded or cut off to fit."""
    if w_type == Type.F32:
        return values
    if w_type == Type.F16:
        return values.astype(np.float16)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def loaded(elements: NDArray[Any], w_type: Type) -> Array:
    """The values of stored elements."""
    if w_type == Type.BF16:
        return (elements.astype(np.uint32) << 16).view(np.float32)
    return elements.astype(np.float32)


def execute(name: str, op: Any, arrays: Guards, run: Run, what: str) -> None:
    """Checks and computes an operation with exactly the working memory that it asks for."""
    check, size_of = getattr(native, f"{name}_check"), getattr(native, f"{name}_work_size")
    assert check(ctypes.byref(op)) is None, f"{what}: {check(ctypes.byref(op)).decode()}"
    plan = native.Plan(
        native.sdgen_kernels(run.tile.level), run.blocking or default_blocking(), *(run.tile.columns, run.winograd)
    )
    size = size_of(ctypes.byref(plan), ctypes.byref(op), run.threads)
    work = arrays.array("work", (size,), np.uint8, run.work_shift)
    arrays.operate(what, native.function_address(name), plan, op, work, run.threads, run.slow)


@dataclass(frozen=True)
class Result:
    """What came out, and how far it is from the exact result."""

    c: Array
    error: float
    bound: float  # that the error cannot exceed, whatever the data

    def verify(self, what: str, most: float = CHANCE_ERROR) -> None:
        """Within the bound, and within what zero-mean data leads to expect."""
        limit = min(self.bound, most)
        assert self.error <= limit, f"{what}: error {self.error:.3g}, allowed {limit:.3g}"


# Places the operands of what becomes of the elements of a product or convolution.
PlaceAfter = Callable[[Guards], native.After]


def nothing_after(_arrays: Guards) -> native.After:
    """The elements stay as they are."""
    return native.After()


@dataclass(frozen=True)
class Matmul:
    """Gaps are in elements, behind each row and behind each batch."""

    m: int
    n: int
    k: int
    batch: tuple[int, int] = (1, 1)
    w_repeat: tuple[int, int] = (1, 1)
    w_type: Type = Type.F32
    w_gap: int = 0
    x_gap: int = 0
    c_gap: int = 0
    batch_gap: int = 0
    heads_inside: bool = False  # batch 0 lies within a row, as the heads of attention do
    scale: float = 1.0
    bias: bool = False

    def _strides(self, rows: int, columns: int, gap: int, batch0: int, itemsize: int) -> tuple[int, int, int, int]:
        if self.heads_inside:
            row = batch0 * (columns + gap) + self.batch_gap
            elements = (rows * row, columns + gap, row, 1)
        else:
            row = columns + gap
            batch = rows * row + self.batch_gap
            elements = (batch0 * batch, batch, row, 1)
        b1, b0, r, e = (itemsize * element for element in elements)
        return b1, b0, r, e

    def data(self, rng: np.random.Generator) -> tuple[NDArray[Any], Array, Array]:
        """w as elements of its type, x and bias, zero-mean with unit variance."""
        w_batch = tuple(-(-batch // repeat) for batch, repeat in zip(self.batch, self.w_repeat, strict=True))
        w = rng.standard_normal((w_batch[1], w_batch[0], self.n, self.k), np.float32)
        x = rng.standard_normal((self.batch[1], self.batch[0], self.m, self.k), np.float32)
        return stored(w, self.w_type), x, rng.standard_normal(self.n, np.float32)

    def compute(self, data: tuple[NDArray[Any], Array, Array], run: Run, after: PlaceAfter = nothing_after) -> Array:
        w_values, x_values, bias_values = data
        what = f"{self} {run}"
        with run.guards(run.flush) as arrays:
            w_strides = self._strides(self.n, self.k, self.w_gap, w_values.shape[1], w_values.itemsize)
            w = arrays.strided("w", w_values.shape, w_strides, w_values.dtype)
            w[...] = w_values
            x_strides = self._strides(self.m, self.k, self.x_gap, self.batch[0], 4)
            x = arrays.strided("x", x_values.shape, x_strides)
            x[...] = x_values
            c_strides = self._strides(self.m, self.n, self.c_gap, self.batch[0], 4)
            c = arrays.strided("c", (*x_values.shape[:3], self.n), c_strides)
            bias = arrays.copy("bias", bias_values) if self.bias else None
            op = native.Matmul(
                *(self.m, self.n, self.k, self.batch),
                *(w.ctypes.data, self.w_type, w_strides[2], (w_strides[1], w_strides[0]), self.w_repeat),
                *(x.ctypes.data, x_strides[2], (x_strides[1], x_strides[0])),
                *(c.ctypes.data, c_strides[2], (c_strides[1], c_strides[0])),
                *(self.scale, None if bias is None else bias.ctypes.data, after(arrays)),
            )
            execute("sdgen_matmul", op, arrays, run, what)
            result: Array = c.copy()
            return result

    def reference(self, data: tuple[NDArray[Any], Array, Array]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The exact result, and the sums of the magnitudes of the products summed."""
        w, x, bias = loaded(data[0], self.w_type).astype(np.float64), data[1].astype(np.float64), data[2]
        for axis, repeat in ((1, self.w_repeat[0]), (0, self.w_repeat[1])):
            w = np.repeat(w, repeat, axis)[(slice(None),) * axis + (slice(x.shape[axis]),)]
        w = np.swapaxes(w, 2, 3)
        exact, magnitude = x @ w * self.scale, np.abs(x) @ np.abs(w) * abs(self.scale)
        if self.bias:
            exact, magnitude = exact + bias, magnitude + np.abs(bias)
        return exact, magnitude

    def bound(self, run: Run) -> float:
        """The most that the error measure can be."""
        kc = (run.blocking or default_blocking()).kc
        # At most kc roundings in a chain (kc is rounded up to a multiple of 4), one for each chain that is added to C,
        # one each for scale and bias.
        return chain_bound(min(self.k, kc + 3) + -(-self.k // kc) + 2)

    def judge(self, data: tuple[NDArray[Any], Array, Array], c: Array, run: Run) -> Result:
        return Result(c, error_measure(c, *self.reference(data)), self.bound(run))

    def verify(self, rng: np.random.Generator, run: Run, most: float = CHANCE_ERROR) -> None:
        """Random data, computed and compared with float64."""
        data = self.data(rng)
        self.judge(data, self.compute(data, run), run).verify(f"{self} {run}", most)


@dataclass(frozen=True)
class Conv2d:
    """Pairs are (x, y); gaps are in elements, behind each row, each channel and each batch."""

    channels_in: int
    channels_out: int
    size: tuple[int, int]
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    batch: int = 1
    w_type: Type = Type.F32
    row_gap: int = 0
    channel_gap: int = 0
    batch_gap: int = 0
    scale: float = 1.0
    bias: bool = False
    upsample: int = 1  # 2: of an image that repeats each pixel two by two

    @property
    def size_out(self) -> tuple[int, int]:
        x, y = (
            (size + 2 * self.pad[i] - self.dilation[i] * (self.kernel[i] - 1) - 1) // self.stride[i] + 1
            for i, size in enumerate(size * self.upsample for size in self.size)
        )
        return x, y

    def data(self, rng: np.random.Generator) -> tuple[NDArray[Any], Array, Array]:
        """w as elements of its type, x and bias, zero-mean with unit variance."""
        w = rng.standard_normal((self.channels_out, self.channels_in, *self.kernel[::-1]), np.float32)
        x = rng.standard_normal((self.batch, self.channels_in, *self.size[::-1]), np.float32)
        return stored(w, self.w_type), x, rng.standard_normal(self.channels_out, np.float32)

    def compute(self, data: tuple[NDArray[Any], Array, Array], run: Run, after: PlaceAfter = nothing_after) -> Array:
        w_values, x_values, bias_values = data
        what = f"{self} {run}"
        with run.guards(run.flush) as arrays:
            w = arrays.copy("w", w_values)
            row = 4 * (self.size[0] + self.row_gap)
            channel = row * self.size[1] + 4 * self.channel_gap
            image = channel * self.channels_in + 4 * self.batch_gap
            x = arrays.strided("x", x_values.shape, (image, channel, row, 4))
            x[...] = x_values
            width, height = self.size_out
            out_image = 4 * (width * height * self.channels_out + self.batch_gap)
            c_strides = (out_image, 4 * width * height, 4 * width, 4)
            c = arrays.strided("c", (self.batch, self.channels_out, height, width), c_strides)
            bias = arrays.copy("bias", bias_values) if self.bias else None
            op = native.Conv2d(
                *(self.batch, self.channels_in, self.channels_out, *self.size, width, height, *self.kernel),
                *(*self.stride, *self.pad, *self.dilation, w.ctypes.data, self.w_type),
                *(x.ctypes.data, row, channel, image, c.ctypes.data, out_image),
                *(self.scale, None if bias is None else bias.ctypes.data, self.upsample == 2, after(arrays)),
            )
            execute("sdgen_conv2d", op, arrays, run, what)
            result: Array = c.copy()
            return result

    def patches(self, x: NDArray[Any]) -> NDArray[Any]:
        """What each output pixel is the product of: [batch][channel and tap][pixel]."""
        (pad_x, pad_y), (stride_x, stride_y), (dilation_x, dilation_y) = self.pad, self.stride, self.dilation
        x = x.repeat(self.upsample, 2).repeat(self.upsample, 3)
        padded = np.pad(x, ((0, 0), (0, 0), (pad_y, pad_y), (pad_x, pad_x)))
        window = (dilation_y * (self.kernel[1] - 1) + 1, dilation_x * (self.kernel[0] - 1) + 1)
        windows = np.lib.stride_tricks.sliding_window_view(padded, window, (2, 3))
        taps = windows[:, :, ::stride_y, ::stride_x, ::dilation_y, ::dilation_x].transpose(0, 1, 4, 5, 2, 3)
        return np.ascontiguousarray(taps).reshape(self.batch, -1, self.size_out[0] * self.size_out[1])

    def reference(self, data: tuple[NDArray[Any], Array, Array]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The exact result, and the sums of the magnitudes of the products summed."""
        w = loaded(data[0], self.w_type).astype(np.float64).reshape(self.channels_out, -1)
        x = self.patches(data[1].astype(np.float64))
        shape = (self.batch, self.channels_out, *self.size_out[::-1])
        exact = (w @ x).reshape(shape) * self.scale
        magnitude = (np.abs(w) @ np.abs(x)).reshape(shape) * abs(self.scale)
        if self.bias:
            exact, magnitude = exact + data[2][:, None, None], magnitude + np.abs(data[2][:, None, None])
        return exact, magnitude

    def bound(self) -> float:
        """The most that the error measure can be, computed directly."""
        # However the sums are ordered, a product passes no more roundings than there are products, and two for scale
        # and bias.
        return chain_bound(self.channels_in * self.kernel[0] * self.kernel[1] + 3)

    def judge(self, data: tuple[NDArray[Any], Array, Array], c: Array) -> Result:
        return Result(c, error_measure(c, *self.reference(data)), self.bound())

    def verify(self, rng: np.random.Generator, run: Run, most: float = CHANCE_ERROR) -> None:
        """Random data, computed and compared with float64."""
        data = self.data(rng)
        self.judge(data, self.compute(data, run)).verify(f"{self} {run}", most)
