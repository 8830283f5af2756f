"""Packing of image patches: neighbours of the flattened output image, for one tap of a convolution."""

from __future__ import annotations

from gen.contract import PACK_PATCHES, PATCHES
from gen.dsl import Assembler, Contract, Kernel, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS
from gen.spec import KernelSpec

OPTIONS: dict[str, int] = {}

_GROUP = 8  # lanes that have two segments of their own


def build(spec: KernelSpec) -> Kernel:
    """The kernel for panels of `spec.tile` = (width,) pixels, width a multiple of 8."""
    (width,) = spec.tile
    a = Assembler(spec, LEVELS[spec.level], PACK_PATCHES)
    v = vector_unit(a)
    channels, patches, channel_stride, dst, dst_stride = (a.argument(name) for _, name in PACK_PATCHES.parameters)
    segments = a.generals("segment[s]", "addresses of the segments", 2 * width // _GROUP)
    masks = a.vectors("mask[s]", "lanes of the segments", len(segments))
    values = a.vectors("value", "lanes of a group's two segments", 2)
    step = a.general("step", "channel_stride, or 0 where no segment has lanes")
    any_segment = a.general("any", "a segment that has lanes")
    two, done = a.label("two"), a.label("done")

    a.TEST(channels, channels)
    a.JZ(done)

    a.comment("any = some segment with lanes; where none has, this structure, again and again")
    a.MOV(any_segment, patches)
    a.XOR(step.as_kind("r32"), step.as_kind("r32"))
    for s, (segment, mask) in enumerate(zip(segments, masks, strict=True)):
        v.load(mask, at(patches, PATCHES.offset("mask") + 4 * _GROUP * s))
        a.MOV(segment, at(patches, PATCHES.offset("segment") + 8 * s))
        a.VPTEST(mask, mask)
        a.CMOVNZ(any_segment, segment)
        a.CMOVNZ(step, channel_stride)

    a.comment("segments without lanes may point anywhere: harmless, but slow where no memory is; read `any` instead")
    for segment, mask in zip(segments, masks, strict=True):
        a.VPTEST(mask, mask)
        a.CMOVZ(segment, any_segment)
    a.release(any_segment)

    a.release(patches)
    offset = a.general("offset", "place of the channel in the segments: c step")
    a.comment("offset = 0")
    a.XOR(offset.as_kind("r32"), offset.as_kind("r32"))

    def advance() -> None:
        a.ADD(offset, step)
        a.ADD(dst, dst_stride)

    a.comment("does any group have lanes in its second segment?")
    a.VORPS(values[0], masks[1], masks[-1])
    for mask in masks[3:-1:2]:
        a.VORPS(values[0], values[0], mask)
    a.VPTEST(values[0], values[0])
    a.JNZ(two)

    a.comment("no: dst[c][8 g + l] = segment[2 g][c][l] or 0")
    with a.loop("one_segment", channels):
        for group in range(len(segments) // 2):
            v.load_masked(values[0], masks[2 * group], at(segments[2 * group], index=offset))
            v.store(at(dst, 4 * _GROUP * group), values[0])
        advance()
    a.place(done)
    a.ret()

    a.comment("yes: dst[c][8 g + l] = segment[2 g][c][l] or segment[2 g + 1][c][l] or 0")
    a.place(two)
    with a.loop("two_segments", channels):
        for group in range(len(segments) // 2):
            for value, s in zip(values, (2 * group, 2 * group + 1), strict=True):
                v.load_masked(value, masks[s], at(segments[s], index=offset))
            a.VORPS(values[0], *values)
            v.store(at(dst, 4 * _GROUP * group), values[0])
        advance()
    a.ret()
    return a.finish(
        Contract(
            formula=(
                "dst[c][8 g + l] = mask[2 g][l] ? segment[2 g][c][l] : mask[2 g + 1][l] ? segment[2 g + 1][c][l] : 0",
                "where segment[s][c] = segment[s] + c * channel_stride bytes",
            ),
            extents=(
                f"patches: {len(segments)} segments and masks are used; masks are 0 or -1. Segments are read only in",
                "the lanes of their mask, and may be NULL where they have none.",
                f"dst: `channels` rows of {width} elements, dst_stride bytes apart. All aligned to 4 bytes.",
                "Nothing else is read or written.",
            ),
        ),
        "gen/microkernels/pack_patches.py",
    )


KERNELS = (KernelSpec("pack_patches", ("f32",), (16,), "avx2"),)

FAMILY = Family(
    macro="SDGEN_PACK_PATCHES_KERNEL",
    columns=("type", "width", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], *spec.tile, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
