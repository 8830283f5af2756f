"""Operations of sdgen.h as data: what to compute, its float64 result, and a run of it between guard pages."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import TINY, UNIT, chain_bound, error_measure
from tests.guarded import Flush, Guards, guards
from tests.sdgen_native import Level, Type

Array = NDArray[np.float32]

# The most that the error measure may be for zero-mean data in a layer of a model, of hundreds of products.
MATMUL_ERROR = 2.4e-7
CONV2D_ERROR = 2.1e-7

# The same for any single chain. Its partial sums grow as the square root of their number p, so that its error has a
# standard deviation near UNIT sqrt(sum of p / 3) where the magnitudes add up to 0.64 k: 0.65 UNIT at any length.
CHANCE_ERROR = 10 * UNIT

# The same for attention, in units of the mean of v's magnitudes: a score is of a magnitude up to 6, rounded a few
# times, and its error is a relative one of the key's weight.
ATTENTION_ERROR = 1e-6

LOG2_E = math.log2(math.e)

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
    store: int | None = None  # its address
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


def plan_of(run: Run) -> native.Plan:
    """What an operation is computed with."""
    return native.Plan(
        *(native.sdgen_kernels(run.tile.level), run.blocking or default_blocking()),
        *(run.tile.columns, run.winograd, run.store),
    )


def execute(name: str, op: Any, arrays: Guards, run: Run, what: str) -> None:
    """Checks and computes an operation with exactly the working memory that it asks for."""
    check, size_of = getattr(native, f"{name}_check"), getattr(native, f"{name}_work_size")
    assert check(ctypes.byref(op)) is None, f"{what}: {check(ctypes.byref(op)).decode()}"
    plan = plan_of(run)
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


# The same of what is done to a convolution's input.
PlaceBefore = Callable[[Guards], native.Before]


def nothing_before(_arrays: Guards) -> native.Before:
    """It is convolved as it is."""
    return native.Before()


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
    """Pairs are (x, y); gaps are in elements, behind each row, each channel and each batch; of tokens, behind each
    token (row_gap) and each batch."""

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
    tokens: bool = False  # the channels of a pixel are side by side

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

    def compute(
        self,
        data: tuple[NDArray[Any], Array, Array],
        run: Run,
        after: PlaceAfter = nothing_after,
        before: PlaceBefore = nothing_before,
        in_place: bool = False,
        sums: list[NDArray[np.float64]] | None = None,
    ) -> Array:
        """In place: the output is written to where x was, whose channels are no fewer. Where sums are wanted they are
        appended."""
        w_values, x_values, bias_values = data
        what = f"{self} {run}"
        with run.guards(run.flush) as arrays:
            w = arrays.copy("w", w_values)
            row = 4 * (self.size[0] + self.row_gap)
            channel = row * self.size[1] + 4 * self.channel_gap
            image = channel * self.channels_in + 4 * self.batch_gap
            x_strides = (image, channel, row, 4)
            if self.tokens:
                token = 4 * (self.channels_in + self.row_gap)
                image = token * self.size[0] * self.size[1] + 4 * self.batch_gap
                x_strides = (image, 4, token * self.size[0], token)
            x = arrays.strided("x", x_values.shape, x_strides)
            x[...] = x_values
            width, height = self.size_out
            out_image = 4 * (width * height * self.channels_out + self.batch_gap)
            c_strides = (out_image, 4 * width * height, 4 * width, 4)
            if in_place:
                c, out_image = x[:, : self.channels_out], image
            else:
                c = arrays.strided("c", (self.batch, self.channels_out, height, width), c_strides)
            bias = arrays.copy("bias", bias_values) if self.bias else None
            op = native.Conv2d(
                *(self.batch, self.channels_in, self.channels_out, *self.size, width, height, *self.kernel),
                *(*self.stride, *self.pad, *self.dilation, w.ctypes.data, self.w_type),
                *(x.ctypes.data, row, channel, image, c.ctypes.data, out_image),
                *(self.scale, None if bias is None else bias.ctypes.data, self.upsample == 2, after(arrays)),
                before=before(arrays),
                x_pixel_stride=token if self.tokens else 0,
            )
            plan, address = ctypes.byref(plan_of(run)), ctypes.byref(op)
            assert not in_place or native.sdgen_conv2d_overwrites(plan, address)
            if sums is not None:
                pieces = native.sdgen_conv2d_sum_pieces(plan, address)
                partial = arrays.array("sums", (self.batch, self.channels_out, pieces, 2), np.float64)
                op.sums = partial.ctypes.data
            execute("sdgen_conv2d", op, arrays, run, what)
            if sums is not None:
                sums.append(partial.copy())
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


def attention_tiles() -> list[Tile]:
    """Those of the levels that run here, and each width of panels that a level has several of."""
    tiles = [Tile(level) for level in native.native_levels()]
    for level in native.native_levels():
        scores = [kernel for kernel in native.kernels() if kernel.operation == "scores" and kernel.level == level]
        widths = sorted({kernel.columns for kernel in scores})
        tiles += [Tile(level, columns) for columns in widths if len(widths) > 1]
    return tiles


@dataclass
class AttentionData:
    """Elements of the operation's types: q [batch][head][query][p], k and v [batch][head][key][p], and the mask
    [batch][head][query][key]."""

    q: Array
    k: NDArray[Any]
    v: NDArray[Any]
    mask: NDArray[Any] | None = None
    sinks: Array | None = None


@dataclass(frozen=True)
class Layout:
    """Where the rows of an array [batch][head][token][element] lie; gaps are in elements."""

    heads_inside: bool = False  # within a token, as a linear layer writes them
    gap: int = 0  # behind each row
    outer_gap: int = 0  # behind each head, or each token where heads are inside
    backward: bool = False  # the last token first

    def strides(self, shape: tuple[int, ...], itemsize: int) -> tuple[int, int, int, int]:
        _, heads, tokens, elements = shape
        row = elements + self.gap
        if self.heads_inside:
            head, token = row, heads * row + self.outer_gap
            batch = tokens * token
        else:
            head, token = tokens * row + self.outer_gap, row
            batch = heads * head
        return batch * itemsize, head * itemsize, (-token if self.backward else token) * itemsize, itemsize


TIGHT = Layout()


@dataclass(frozen=True)
class Attention:
    """Masks are data: what an operation has of it shows in AttentionData."""

    queries: int
    keys: int
    depth: int
    value_depth: int = 0  # 0: as the depth
    heads: int = 1
    batch: int = 1
    k_type: Type = Type.F32
    v_type: Type = Type.F32
    k_repeat: tuple[int, int] = (1, 1)  # heads, batches
    v_repeat: tuple[int, int] = (1, 1)
    mask_type: Type = Type.F16
    q_layout: Layout = TIGHT
    k_layout: Layout = TIGHT
    v_layout: Layout = TIGHT
    c_layout: Layout = TIGHT
    mask_layout: Layout = TIGHT
    scale: float = 0  # 0: that of unit variance
    max_bias: float = 0
    softcap: float = 0

    def __str__(self) -> str:
        """What is not as it is by default."""
        told = ((f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default)
        return f"Attention({', '.join(f'{name}={value}' for name, value in told)})"

    @property
    def values(self) -> int:
        return self.value_depth or self.depth

    @property
    def factor(self) -> np.float32:
        return np.float32(self.scale or self.depth**-0.5)

    def data(
        self, rng: np.random.Generator, mask: NDArray[Any] | None = None, sinks: Array | None = None
    ) -> AttentionData:
        """q, k and v of zero mean and unit variance; the mask's numbers, which are made elements of its type."""
        k_heads, k_batch = (-(-n // r) for n, r in zip((self.heads, self.batch), self.k_repeat, strict=True))
        v_heads, v_batch = (-(-n // r) for n, r in zip((self.heads, self.batch), self.v_repeat, strict=True))
        return AttentionData(
            rng.standard_normal((self.batch, self.heads, self.queries, self.depth), np.float32),
            stored(rng.standard_normal((k_batch, k_heads, self.keys, self.depth), np.float32), self.k_type),
            stored(rng.standard_normal((v_batch, v_heads, self.keys, self.values), np.float32), self.v_type),
            None if mask is None else stored(mask.astype(np.float32), self.mask_type),
            sinks,
        )

    def compute(self, data: AttentionData, run: Run) -> Array:
        with run.guards(run.flush) as arrays:

            def placed(name: str, values: NDArray[Any], layout: Layout) -> NDArray[Any]:
                strides = layout.strides(values.shape, values.itemsize)
                array = arrays.strided(name, values.shape, strides, values.dtype)
                array[...] = values
                return array

            q, k = placed("q", data.q, self.q_layout), placed("k", data.k, self.k_layout)
            v = placed("v", data.v, self.v_layout)
            c_shape = (self.batch, self.heads, self.queries, self.values)
            c = arrays.strided("c", c_shape, self.c_layout.strides(c_shape, 4))
            op = native.Attention(
                *(self.queries, self.keys, self.heads, self.batch, self.depth, self.values),
                scale=self.factor,
                max_bias=self.max_bias,
                softcap=self.softcap,
                **self._array("q", q),
                **self._array("k", k),
                **self._array("v", v),
                **self._array("c", c),
            )
            op.k_type, op.v_type, op.mask_type = self.k_type, self.v_type, self.mask_type
            op.k_repeat, op.v_repeat = self.k_repeat, self.v_repeat
            if data.mask is not None:
                mask = placed("mask", data.mask, self.mask_layout)
                for name, value in self._array("mask", mask).items():
                    setattr(op, name, value)
                op.mask_batch, op.mask_heads = mask.shape[:2]
            if data.sinks is not None:
                op.sinks = arrays.copy("sinks", data.sinks).ctypes.data
            execute("sdgen_attention", op, arrays, run, f"{self} {run}")
            result: Array = c.copy()
            return result

    @staticmethod
    def _array(name: str, array: NDArray[Any]) -> dict[str, int]:
        batch, head, token, _ = array.strides
        strides = {f"{name}_batch_stride": batch, f"{name}_head_stride": head, f"{name}_stride": token}
        return {name: array.ctypes.data, **strides}

    def slopes(self) -> NDArray[np.float64]:
        """ALiBi's, by the rule of its authors' program: those of the next lower power of two, then every second one of
        twice as many."""
        if self.max_bias <= 0:
            return np.ones(self.heads)
        power = 2 ** int(math.log2(self.heads))
        first = 2.0 ** (-self.max_bias / power * np.arange(1, power + 1))
        more = 2.0 ** (-self.max_bias / (2 * power) * np.arange(1, 2 * power + 1, 2))
        return np.concatenate([first, more])[: self.heads]

    def repeated(self, elements: NDArray[Any], kind: Type, repeat: tuple[int, int]) -> NDArray[np.float64]:
        """k or v for every batch and head."""
        values = loaded(elements, kind).astype(np.float64)
        values = values.repeat(repeat[0], 1).repeat(repeat[1], 0)
        return values[: self.batch, : self.heads]

    def judge(self, data: AttentionData, c: Array) -> AttentionResult:
        """The errors of c by query, and the bound of each.

        In units of log2, a score's own error is that of its chains and of its scale, of x as it is rounded with and
        without its bias, and of a shift, which is no larger than the scores are. All weights of a query have relative
        errors of 2^(the largest of those), of 2^x, and of the sums they pass through: chains over a block of keys, and
        few roundings for each block, when it is added, when sums are rescaled (with 2^x of the C library, within one
        unit), and when parts are joined."""
        q = data.q.astype(np.float64)
        k = np.swapaxes(self.repeated(data.k, self.k_type, self.k_repeat), 2, 3)
        v = self.repeated(data.v, self.v_type, self.v_repeat)
        factor = float(self.factor)
        s, off = q @ k * factor, np.abs(q) @ np.abs(k) * abs(factor)
        off *= chain_bound(min(self.depth, 24) + math.ceil(self.depth / 10) + 2)
        if self.softcap:
            # tanh's slope is at most 1, and the C library's tanh is within two units.
            off += 3 * UNIT * np.abs(s)
            s = self.softcap * np.tanh(s / self.softcap)
            off += 6 * UNIT * np.abs(s)
        if data.mask is not None:
            mask = loaded(data.mask, self.mask_type).astype(np.float64)
            mask = mask[np.arange(self.batch) % len(mask)][:, np.arange(self.heads) % mask.shape[1]]
            with np.errstate(invalid="ignore"):
                bias = self.slopes()[:, None, None] * mask
            s = s + bias
            off += 4 * UNIT * np.abs(np.where(np.isinf(bias), 0, bias))
        kept = ~np.isneginf(s)
        largest = np.max(np.abs(s), -1, keepdims=True, where=kept, initial=0)
        moved = np.where(largest * LOG2_E > 31, largest, 0)
        off += 2 * UNIT * (np.where(kept, np.abs(s), 0) + moved)
        off = np.max(off, -1, keepdims=True, where=kept, initial=0)

        top = np.max(s, -1, keepdims=True, where=kept, initial=-np.inf)
        top = np.where(np.isneginf(top), 0, top)
        weights = np.where(kept, np.exp(np.where(kept, s - top, 0)), 0)
        total = weights.sum(-1, keepdims=True)
        if data.sinks is not None:
            total = total + np.exp(np.minimum(data.sinks.astype(np.float64)[:, None, None] - top, 700))
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        exact, magnitude = weights @ v, weights @ np.abs(v)

        blocks = math.ceil(self.keys / (60 if self.keys <= 512 else 240)) * 2
        sums = chain_bound(min(self.keys, 60 if self.keys <= 512 else 240) + 8 * blocks)
        wrong = np.exp(np.minimum(off, 100)) * (1 + 2.0**-22)
        bound = wrong**2 * ((1 + sums) / (1 - sums)) * (1 + 3 * UNIT) - 1
        error = np.maximum(np.abs(c - exact) - TINY, 0)
        measure = np.divide(error, magnitude, out=np.where(error <= 0, 0.0, np.inf), where=magnitude > 0)
        return AttentionResult(c, exact, magnitude, measure, bound)

    def verify(
        self, rng: np.random.Generator, run: Run, mask: NDArray[Any] | None = None, sinks: Array | None = None
    ) -> float:
        """Random data, computed and compared with float64; the largest error."""
        data = self.data(rng, mask, sinks)
        return self.judge(data, self.compute(data, run)).verify(f"{self} {run}")


@dataclass(frozen=True)
class AttentionResult:
    """What came out; errors are in units of the mean of the magnitudes of v with a query's weights."""

    c: Array
    exact: NDArray[np.float64]
    magnitude: NDArray[np.float64]
    errors: NDArray[np.float64]
    bound: NDArray[np.float64]  # by query

    @property
    def error(self) -> float:
        return float(np.max(np.where(np.isfinite(self.c), self.errors, np.inf)))

    def verify(self, what: str, most: float = ATTENTION_ERROR) -> float:
        """Within the bounds, and within what the data leads to expect; the largest error."""
        limit = np.minimum(self.bound, most)
        wrong = np.argwhere(~(self.errors <= limit))
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            pytest.fail(
                f"{what}: {len(wrong)} wrong, the first at {at}: {self.c[at]!r}, exactly {self.exact[at]!r}: "
                f"error {self.errors[at]:.3g}, allowed {np.broadcast_to(limit, self.errors.shape)[at]:.3g}"
            )
        return self.error
