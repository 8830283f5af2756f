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
    """The kernel for panels of `spec.tile` = (width,) pixels, width a multiple of the level's lanes."""
    (width,) = spec.tile
    a = Assembler(spec, LEVELS[spec.level], PACK_PATCHES)
    v = vector_unit(a)
    channels, patches, channel_stride, dst, dst_stride = (a.argument(name) for _, name in PACK_PATCHES.parameters)
    groups = v.lanes // _GROUP  # of a vector
    count = 2 * width // _GROUP
    where = "addresses of the segments" if groups == 1 else "where lane 0 of a vector would be for the segments"
    segments = a.generals("segment[s]", where, count)
    masks = v.masks("mask[s]", "lanes of the segments", count)
    values = a.vectors("value", "lanes of a vector's segments", 2)
    step = a.general("step", "channel_stride, or 0 where no segment has lanes")
    any_segment = a.general("any", "a segment that has lanes")
    two, done = a.label("two"), a.label("done")

    a.TEST(channels, channels)
    a.JZ(done)

    a.comment("any = some segment with lanes; where none has, this structure, again and again")
    a.MOV(any_segment, patches)
    a.XOR(step.as_kind("r32"), step.as_kind("r32"))
    for s, (segment, mask) in enumerate(zip(segments, masks, strict=True)):
        lane = s // 2 % groups * _GROUP
        v.mask_from_words(mask, at(patches, PATCHES.offset("mask") + 4 * _GROUP * s), lane, values[0])
        a.MOV(segment, at(patches, PATCHES.offset("segment") + 8 * s))
        if lane:
            a.SUB(segment, 4 * lane)
        v.test_masks([mask], values[0])
        a.CMOVNZ(any_segment, segment)
        a.CMOVNZ(step, channel_stride)

    a.comment("segments without lanes may point anywhere: harmless, but slow where no memory is; read `any` instead")
    for segment, mask in zip(segments, masks, strict=True):
        v.test_masks([mask], values[0])
        a.CMOVZ(segment, any_segment)
    a.release(any_segment)

    a.release(patches)
    offset = a.general("offset", "place of the channel in the segments: c step")
    a.comment("offset = 0")
    a.XOR(offset.as_kind("r32"), offset.as_kind("r32"))

    def copy(role: str, segments_of_a_group: int) -> None:
        """dst[c] = the first segments of each group, or both"""
        with a.loop(role, channels):
            for vector in range(width // v.lanes):
                every = range(2 * groups * vector, 2 * groups * (vector + 1), 3 - segments_of_a_group)
                for s in every:
                    place = at(segments[s], index=offset)
                    if s == every[0]:
                        v.load_masked(values[0], masks[s], place)
                    else:
                        v.merge_masked(values[0], masks[s], place, values[1])
                v.store(at(dst, v.bytes * vector), values[0])
            a.ADD(offset, step)
            a.ADD(dst, dst_stride)

    a.comment("does any group have lanes in its second segment?")
    v.test_masks(masks[1::2], values[0])
    a.JNZ(two)

    if (groups, count) == (2, 4):
        apart = a.label("apart")
        a.comment("no, and a row of the image holds all lanes: dst[c][l] = segment[0][c][l] or 0")
        a.CMP(segments[0], segments[2])
        a.JNE(apart)
        v.join_masks(masks[0], masks[2])
        with a.loop("one_row", channels):
            v.load_masked(values[0], masks[0], at(segments[0], index=offset))
            v.store(at(dst), values[0])
            a.ADD(offset, step)
            a.ADD(dst, dst_stride)
        a.ret()
        a.place(apart)

    a.comment("no: dst[c][8 g + l] = segment[2 g][c][l] or 0")
    copy("one_segment", 1)
    a.place(done)
    a.ret()

    a.comment("yes: dst[c][8 g + l] = segment[2 g][c][l] or segment[2 g + 1][c][l] or 0")
    a.place(two)
    copy("two_segments", 2)
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


KERNELS = tuple(KernelSpec("pack_patches", ("f32",), (16,), level) for level in ("avx2", "avx512"))

FAMILY = Family(
    macro="SDGEN_PACK_PATCHES_KERNEL",
    columns=("type", "width", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], *spec.tile, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
