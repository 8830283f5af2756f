"""sdgen_conv2d with every tile that runs here, against float64."""

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
from tests.operations import CONV2D_ERROR, SMALL_BLOCKS, Conv2d, Run, Tile, every_tile, execute, native_tiles
from tests.sdgen_native import Blocking, Level, Type

KERNELS = [(1, 1), (3, 3), (5, 5), (7, 7), (1, 3), (3, 1), (2, 2)]


@every_tile
@pytest.mark.parametrize("taps", KERNELS, ids=str)
def test_strides_paddings_dilations(tile: Tile, taps: tuple[int, int], rng: np.random.Generator) -> None:
    size = (23, 19)
    settings = product(((1, 1), (2, 2), (3, 1), (1, 2)), ((0, 0), (1, 1), (3, 2), (0, 3)), ((1, 1), (2, 1), (3, 3)))
    for index, (stride, pad, dilation) in enumerate(settings):
        if any(size[i] + 2 * pad[i] <= dilation[i] * (taps[i] - 1) for i in range(2)):
            continue
        case = Conv2d(3, 7, size, taps, stride, pad, dilation, w_type=Type(index % 3))
        case.verify(rng, Run(tile, list(Flush)[index % 2], blocking=SMALL_BLOCKS if index % 3 else None))


@every_tile
@pytest.mark.parametrize("flush", Flush)
def test_small_images(tile: Tile, flush: Flush, rng: np.random.Generator) -> None:
    """Widths of 1 to 20, where a group of pixels lies in many rows, in two, or in one."""
    for width, height, kernel in product(range(1, 21), (1, 2, 3, 5), ((3, 3), (1, 1), (2, 2))):
        pad = (kernel[0] // 2, kernel[1] // 2)
        blocking = SMALL_BLOCKS if (width + height) % 2 else None
        Conv2d(2, 5, (width, height), kernel, pad=pad).verify(rng, Run(tile, flush, blocking=blocking))
        Conv2d(2, 5, (width, height), kernel, (2, 2), pad).verify(rng, Run(tile, flush, blocking=blocking))


@every_tile
def test_output_narrower_than_its_image(tile: Tile, rng: np.random.Generator) -> None:
    """Output rows of 1 to 9 pixels, without padding: the image's rows are longer."""
    for width_out, height in product(range(1, 10), (3, 4, 9)):
        Conv2d(3, 4, (width_out + 2, height)).verify(rng, Run(tile))
        Conv2d(3, 4, (width_out + 4, height + 2), (5, 5), row_gap=1).verify(rng, Run(tile, Flush.START))


@every_tile
@pytest.mark.parametrize("size", [(5, 7), (28, 40), (65, 64), (76, 76), (150, 100)], ids=str)
def test_odd_sizes(tile: Tile, size: tuple[int, int], rng: np.random.Generator) -> None:
    for pad, bias in ((1, False), (0, True)):
        Conv2d(20, 17, size, pad=(pad, pad), w_type=Type.F16, bias=bias).verify(rng, Run(tile, threads=2))


@every_tile
def test_channels(tile: Tile, rng: np.random.Generator) -> None:
    for channels in (*range(1, 20), 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 130):
        case = Conv2d(channels, 9, (11, 6), pad=(1, 1), w_type=Type(channels % 3))
        case.verify(rng, Run(tile, list(Flush)[channels % 2], blocking=SMALL_BLOCKS if channels % 2 else None))
        Conv2d(3, channels, (11, 6), pad=(1, 1)).verify(rng, Run(tile, list(Flush)[channels % 2]))


@every_tile
@pytest.mark.parametrize("flush", Flush)
def test_batches_gaps_scale_bias(tile: Tile, flush: Flush, rng: np.random.Generator) -> None:
    for batch, (row_gap, channel_gap, batch_gap), scale, bias in product(
        (1, 3), ((0, 0, 0), (3, 0, 1), (0, 5, 2), (9, 70, 11)), (1.0, -0.3), (False, True)
    ):
        for stride, blocking in (((1, 1), None), ((2, 1), SMALL_BLOCKS)):
            case = Conv2d(
                *(5, 7, (13, 6), (3, 3), stride, (1, 1)),
                batch=batch,
                scale=scale,
                bias=bias,
                row_gap=row_gap,
                channel_gap=channel_gap,
                batch_gap=batch_gap,
            )
            case.verify(rng, Run(tile, flush, threads=2, blocking=blocking))


@pytest.mark.slow
@every_tile
@pytest.mark.parametrize("flush", Flush)
def test_tokens(tile: Tile, flush: Flush, rng: np.random.Generator) -> None:
    """The same bits as from an image, however many threads there are."""
    settings = product(((1, 1), (5, 1), (13, 7), (16, 20)), (1, 3), ((0, 0), (3, 5)), (1.0, -0.3), (False, True))
    for index, (size, batch, (row_gap, batch_gap), scale, bias) in enumerate(settings):
        case = Conv2d(
            *(1 + 13 * index % 67, 1 + 7 * index % 41, size, (1, 1)),
            batch=batch,
            w_type=Type(index % 3),
            row_gap=row_gap,
            batch_gap=batch_gap,
            scale=scale,
            bias=bias,
            tokens=True,
        )
        data = case.data(rng)
        blocking = SMALL_BLOCKS if index % 2 else None
        expected = replace(case, tokens=False).compute(data, Run(tile, flush, blocking=blocking))
        for threads in (1, 2, 4):
            run = Run(tile, flush, threads=threads, slow=threads - 2, blocking=blocking)
            c = case.compute(data, run)
            assert not first_difference(c, expected), f"{case} {run}"
        case.judge(data, expected).verify(f"{case}")


@pytest.mark.slow
@every_tile
@pytest.mark.parametrize("size", [(64, 64), (32, 32), (8, 8)], ids=str)
def test_layers(tile: Tile, size: tuple[int, int], rng: np.random.Generator) -> None:
    """Convolutions like those of a UNet and of a decoder, with fewer channels to write."""
    for case in (
        Conv2d(320, 64, size, pad=(1, 1), w_type=Type.F16, bias=True),
        Conv2d(320, 33, size, (3, 3), (2, 2), (1, 1), w_type=Type.F16),
        Conv2d(128, 48, size, pad=(1, 1)),
        Conv2d(32, 128, size, pad=(1, 1)),
        Conv2d(640, 40, size, (1, 1), w_type=Type.F16),
    ):
        case.verify(rng, Run(tile, threads=2), CONV2D_ERROR)


@every_tile
@pytest.mark.parametrize(
    "channels_in, channels_out, taps",
    [
        (4, 320, 3),
        (4, 512, 3),
        (8, 128, 3),
        (16, 128, 3),
        (21, 128, 3),
        (190, 128, 1),
        (320, 128, 1),
        (320, 4, 3),
    ],
)
def test_accuracy(tile: Tile, channels_in: int, channels_out: int, taps: int, rng: np.random.Generator) -> None:
    """Short sums, of which the worst of hundreds of thousands counts: the first and the last layer, steps between."""
    pad = (taps // 2, taps // 2)
    case = Conv2d(channels_in, channels_out, (64, 64), (taps, taps), pad=pad, w_type=Type(channels_in % 3))
    case.verify(rng, Run(tile, threads=2), CONV2D_ERROR)


THREAD_CASES = [
    Conv2d(1, 1, (1, 1), (1, 1)),
    Conv2d(17, 40, (31, 22), pad=(1, 1), bias=True),
    Conv2d(6, 3, (50, 9), (5, 5), pad=(2, 2), batch=3, w_type=Type.F16),
    Conv2d(6, 70, (15, 9), stride=(2, 2), pad=(1, 1), scale=0.5, w_type=Type.BF16),
]


@every_tile
@pytest.mark.parametrize("case", THREAD_CASES, ids=str)
def test_threads_do_not_change_the_result(tile: Tile, case: Conv2d, rng: np.random.Generator) -> None:
    data = case.data(rng)
    for blocking in (SMALL_BLOCKS, None):
        alone = case.compute(data, Run(tile, blocking=blocking))
        for threads in (2, 3, 4, 7):
            for slow in (-1, 0, threads - 1):
                run = Run(tile, threads=threads, slow=slow, blocking=blocking)
                assert not first_difference(case.compute(data, run), alone), f"{run}"


@pytest.mark.parametrize("case", THREAD_CASES, ids=str)
def test_tiles_and_blocks_do_not_change_the_result(case: Conv2d, rng: np.random.Generator) -> None:
    """Each element is the same chain of sums as long as kc is the same."""
    data = case.data(rng)
    expected = case.compute(data, Run(Tile(Level.C), blocking=Blocking(24, 18, 48, 1)))
    for tile, mc, nc, packed in product(native_tiles(), (1, 6, 500), (1, 33, 512), (1, 3000, 10**8)):
        run = Run(tile, threads=2, blocking=Blocking(24, mc, nc, packed))
        assert not first_difference(case.compute(data, run), expected), f"{run}"


@every_tile
@pytest.mark.parametrize("w_type", Type)
def test_constant_image_is_exact(tile: Tile, w_type: Type) -> None:
    """2.5 x 1.5 summed over 32 channels and the 4, 6 or 9 taps that lie in the image: 480, 720 and 1080, exactly."""
    case = Conv2d(32, 32, (28, 40), pad=(1, 1), w_type=w_type)
    elements = {Type.F32: np.float32(2.5), Type.F16: np.float16(2.5), Type.BF16: np.uint16(0x4020)}
    w = np.full((32, 32, 3, 3), elements[w_type])
    x = np.full((1, 32, 40, 28), 1.5, np.float32)
    expected = np.full((40, 28), 1080.0, np.float32)
    expected[[0, -1], :] = expected[:, [0, -1]] = 720
    for y, column in product((0, -1), (0, -1)):
        expected[y, column] = 480
    for threads in (1, 2):
        c = case.compute((w, x, np.zeros(32, np.float32)), Run(tile, threads=threads))
        assert np.all(c == expected)


@every_tile
def test_large_activations(tile: Tile, rng: np.random.Generator) -> None:
    """Activations beyond the range of F16, with the largest weights that it has."""
    case = Conv2d(40, 9, (12, 10), pad=(1, 1), w_type=Type.F16)
    w, x, bias = case.data(rng)
    data = (np.sign(w) * np.float16(65504), np.sign(x) * np.float32(1e5), bias)
    result = case.judge(data, case.compute(data, Run(tile)))
    assert np.all(np.isfinite(result.c))
    assert result.error <= result.bound


@every_tile
def test_denormals_are_kept(tile: Tile) -> None:
    case = Conv2d(3, 4, (9, 5), (1, 1))
    w = np.ones((4, 3, 1, 1), np.float32)
    x = np.full((1, 3, 5, 9), 2.0**-149, np.float32)
    assert np.all(case.compute((w, x, np.zeros(4, np.float32)), Run(tile)) == np.float32(3 * 2.0**-149))


@every_tile
@pytest.mark.parametrize("stride", [(1, 1), (2, 1)], ids=str)
def test_nan_stays_where_it_is_read(tile: Tile, stride: tuple[int, int], rng: np.random.Generator) -> None:
    case = Conv2d(4, 5, (21, 9), stride=stride, pad=(1, 1))
    w, x, bias = case.data(rng)
    x[0, 2, 4, 10] = np.nan
    c = case.compute((w, x, bias), Run(tile))[0]
    width, height = case.size_out
    finite = np.ones((5, height, width), bool)
    finite[:, 3:6, [ox for ox in range(width) if abs(ox * stride[0] - 10) <= 1]] = False
    assert np.array_equal(np.isfinite(c), finite)


@every_tile
@pytest.mark.parametrize(
    "stride, taps, winograd", [((1, 1), 1, 0), ((2, 1), 1, 0), *(((1, 1), 3, m) for m in (2, 3, 4))]
)
def test_strides_past_32_bits(tile: Tile, stride: tuple[int, int], taps: int, winograd: int) -> None:
    """Channels more than 2^31 bytes apart and batches more than 2^32, in memory of which few pages are touched."""
    width, height, channels, batch = 13, 4, 3, 2
    channel, image = 2**31 + 4096, 2**33
    size = image + 2 * channel + 4096
    case = Conv2d(channels, 2, (width, height), (taps, taps), stride, (taps // 2, taps // 2), batch=batch)
    base = native.test_map(size)
    assert base
    try:
        w = np.arange(2 * channels * taps * taps, dtype=np.float32).reshape(2, channels, taps, taps)
        x = np.arange(batch * channels * height * width, dtype=np.float32).reshape(batch, channels, height, width)
        for b, i in product(range(batch), range(channels)):
            ctypes.memmove(base + b * image + i * channel, x[b, i].tobytes(), 4 * width * height)
        c = np.full((batch, 2, case.size_out[1], case.size_out[0]), np.nan, np.float32)
        op = native.Conv2d(
            *(batch, channels, 2, width, height, *case.size_out, taps, taps, *stride, *case.pad, 1, 1),
            *(w.ctypes.data, Type.F32, base, 4 * width, channel, image, c.ctypes.data, c[0].nbytes, 1.0, None),
        )
        with guards(Flush.END) as arrays:
            execute("sdgen_conv2d", op, arrays, Run(tile, winograd=winograd), "strides past 32 bits")
        exact, magnitude = case.reference((w, x, np.empty(0, np.float32)))
        assert np.abs(c - exact).max() <= (1e-6 * magnitude.max() if winograd else 0)
    finally:
        native.test_unmap(base, size)


@st.composite
def conv2ds(draw: st.DrawFn) -> tuple[Conv2d, Run, int]:
    def pair(least: int, most: int) -> tuple[int, int]:
        return draw(st.integers(least, most)), draw(st.integers(least, most))

    kernel, dilation, pad = pair(1, 5), pair(1, 3), pair(0, 4)
    smallest = [max(dilation[i] * (kernel[i] - 1) + 1 - 2 * pad[i], 1) for i in range(2)]
    extra = pair(0, 30)
    case = Conv2d(
        draw(st.integers(1, 40)),
        draw(st.integers(1, 20)),
        (smallest[0] + extra[0], smallest[1] + extra[1]),
        kernel,
        stride=pair(1, 3),
        pad=pad,
        dilation=dilation,
        batch=draw(st.integers(1, 3)),
        w_type=draw(st.sampled_from(Type)),
        row_gap=draw(st.integers(0, 20)),
        channel_gap=draw(st.integers(0, 20)),
        batch_gap=draw(st.integers(0, 20)),
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


@given(conv2ds())
def test_random_operations(drawn: tuple[Conv2d, Run, int]) -> None:
    case, run, seed = drawn
    case.verify(np.random.default_rng(seed), run)


# ---- what the check refuses ----


def valid() -> native.Conv2d:
    """An operation that passes its check; the addresses are never used."""
    return native.Conv2d(
        *(2, 3, 4, 10, 8, 10, 8, 3, 3, 1, 1, 1, 1, 1, 1, 4096, Type.F32),
        *(4096, 40, 320, 960, 4096, 1280, 1.0, None),
    )


def set_tokens(op: native.Conv2d, pixel_stride: int) -> None:
    """Makes the kernel one of 1 by 1, which reads tokens."""
    op.kernel_width = op.kernel_height = 1
    op.pad_x = op.pad_y = 0
    op.x_pixel_stride = pixel_stride


WRONG: dict[str, Callable[[native.Conv2d], None]] = {
    **{
        f"{field} is 0": lambda op, field=field: setattr(op, field, 0)  # type: ignore[misc]
        for field in (
            *("batch", "channels_in", "channels_out", "width", "height", "width_out", "height_out", "kernel_width"),
            *("kernel_height", "stride_x", "stride_y", "dilation_x", "dilation_y", "w", "x", "c"),
        )
    },
    "pad_x is negative": lambda op: setattr(op, "pad_x", -1),
    "pad_y is negative": lambda op: setattr(op, "pad_y", -1),
    "width_out does not follow": lambda op: setattr(op, "width_out", 9),
    "height_out does not follow": lambda op: setattr(op, "height_out", 9),
    "the kernel is wider than the padded image": lambda op: setattr(op, "kernel_width", 13),
    "the dilated kernel is higher than the padded image": lambda op: setattr(op, "dilation_y", 5),
    "w_type is unknown": lambda op: setattr(op, "w_type", 3),
    "x is not aligned": lambda op: setattr(op, "x", 4098),
    "x_row_stride is not aligned": lambda op: setattr(op, "x_row_stride", 41),
    "x_channel_stride is not aligned": lambda op: setattr(op, "x_channel_stride", 322),
    "x_batch_stride is not aligned": lambda op: setattr(op, "x_batch_stride", 963),
    "x_pixel_stride is not aligned": lambda op: set_tokens(op, 14),
    "pixels lie apart and the kernel reads several": lambda op: setattr(op, "x_pixel_stride", 12),
    "c is not aligned": lambda op: setattr(op, "c", 4097),
    "c_batch_stride is not aligned": lambda op: setattr(op, "c_batch_stride", 1282),
    "batches of c overlap": lambda op: setattr(op, "c_batch_stride", 1276),
}


def test_check_passes_what_is_right() -> None:
    op = valid()
    assert native.sdgen_conv2d_check(ctypes.byref(op)) is None
    set_tokens(op, 12)
    assert native.sdgen_conv2d_check(ctypes.byref(op)) is None


@pytest.mark.parametrize("wrong", WRONG)
def test_check_refuses(wrong: str) -> None:
    op = valid()
    WRONG[wrong](op)
    message = native.sdgen_conv2d_check(ctypes.byref(op))
    assert message and 5 < len(message) < 100
