"""Transposition of lanes into rows, each with a factor.

Blocks of 8 x 8 go through registers: rows 0 to 3 and 4 to 7 of the block in 128-bit lanes of their own, so that a 4x4
transposition in each lane makes eight neighbours of a row of the result. Rows and lanes beyond whole blocks, which are
few, go element by element.
"""

from __future__ import annotations

from gen.contract import UNPACK, UNPACK_KERNEL
from gen.dsl import Assembler, Contract, Kernel, Memory, Register, at
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec

OPTIONS = {"align": 32}  # of the loops, bytes

_LANE = 4  # numbers
_BYTES = 16  # of a lane


class _Unpack:
    """One kernel in the making; AVX2 and AVX-512 have the same, ymm registers."""

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.align = spec.option("align", OPTIONS["align"])
        (self.width,) = spec.tile
        self.a = a = Assembler(spec, level, UNPACK_KERNEL)
        # Rows 0 to 3 are at the first pointer, with 0 to 3 strides, rows 4 to 7 likewise at the second.
        self.src = a.generals("src", "rows p and p + 4", 2)
        self.dst = a.generals("dst", "rows 0 and 4, at p; to which an element goes", 2)
        self.src_stride = a.general("src_stride", "from row to row")
        self.dst_stride = a.general("dst_stride", "from row to row")
        self.src_triple = a.general("src_triple", "three times that; a factor's place")
        self.dst_triple = a.general("dst_triple", "three times that; the elements of a row that are left")
        self.k = a.general("k", "rows of src that are left")
        self.count = a.general("count", "blocks that are left; the rows of dst that are left")

    def field(self, name: str) -> Memory:
        """A field of the argument."""
        return at(self.a.argument("unpack"), UNPACK.offset(name))

    def row(self, side: str, i: int, displacement: int = 0) -> Memory:
        """Row i of the block, of src or dst."""
        bases, stride, triple = {
            "src": (self.src, self.src_stride, self.src_triple),
            "dst": (self.dst, self.dst_stride, self.dst_triple),
        }[side]
        index, scale = ((None, 1), (stride, 1), (stride, 2), (triple, 1))[i % _LANE]
        return at(bases[i // _LANE], displacement, index=index, scale=scale)

    def half_block(self, half: int) -> None:
        """dst[4 half + j][p] = src[p][4 half + j] * factor[4 half + j], j < 4, p < 8"""
        a = self.a
        for i, x in enumerate(self.x):
            a.VMOVUPS(x.as_kind("xmm"), self.row("src", i, _BYTES * half))
            a.VINSERTF128(x, x, self.row("src", i + _LANE, _BYTES * half), 1)
            a.VMULPS(x, x, self.factors[half])
        for i in (0, 2):
            a.VUNPCKLPS(self.y[i], *self.x[i : i + 2])
            a.VUNPCKHPS(self.y[i + 1], *self.x[i : i + 2])
        for pair in (0, 1):
            a.VUNPCKLPD(self.x[2 * pair], self.y[pair], self.y[pair + 2])
            a.VUNPCKHPD(self.x[2 * pair + 1], self.y[pair], self.y[pair + 2])
        for j, x in enumerate(self.x):
            a.VMOVUPS(self.row("dst", _LANE * half + j), x)

    def blocks(self) -> None:
        """All blocks of eight rows of src, where all rows of dst exist."""
        a = self.a

        def halves(name: str, why: str, count: int) -> tuple[Register, ...]:
            return tuple(register.as_kind("ymm") for register in a.vectors(name, why, count))

        self.x = halves("x", "rows p and p + 4, then a row of dst", _LANE)
        self.y = halves("y", "rows p and p + 1 in turn", _LANE)
        self.factors = halves("factor", "of rows 0 to 3 and 4 to 7, twice", 2)
        a.MOV(self.src_triple, self.field("factor"))
        for half, factor in enumerate(self.factors):
            a.VBROADCASTF128(factor, at(self.src_triple, _BYTES * half))
        for bases, stride, triple in (
            (self.src, self.src_stride, self.src_triple),
            (self.dst, self.dst_stride, self.dst_triple),
        ):
            a.LEA(triple, at(stride, index=stride, scale=2))
            a.LEA(bases[1], at(bases[0], index=stride, scale=_LANE))
        with a.loop("block", self.count, self.align):
            for half in (0, 1):
                self.half_block(half)
            for base in self.src:
                a.LEA(base, at(base, index=self.src_stride, scale=self.width))
            for base in self.dst:
                a.ADD(base, 4 * self.width)

    def elements(self) -> None:
        """All that is left, one by one."""
        a, (src, lane), (dst, place) = self.a, self.src, self.dst
        x = a.vector("element", "on its way").as_kind("xmm")
        factor, left = self.src_triple, self.dst_triple
        a.MOV(factor, self.field("factor"))
        a.MOV(self.count, self.field("rows"))
        with a.loop("row", self.count, align=1):
            a.MOV(lane, src)
            a.MOV(place, dst)
            a.MOV(left, self.k)
            with a.loop("element", left, align=1):
                a.VMOVSS(x, at(lane))
                a.VMULSS(x, x, at(factor))
                a.VMOVSS(at(place), x)
                a.ADD(lane, self.src_stride)
                a.ADD(place, 4)
            a.ADD(src, 4)
            a.ADD(dst, self.dst_stride)
            a.ADD(factor, 4)

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a = self.a
        rest, done = a.label("rest"), a.label("done")
        a.MOV(self.src[0], self.field("src"))
        a.MOV(self.dst[0], self.field("dst"))
        a.MOV(self.src_stride, self.field("src_stride"))
        a.MOV(self.dst_stride, self.field("dst_stride"))
        a.MOV(self.k, self.field("k"))
        a.MOV(self.count, self.field("rows"))
        a.CMP(self.count, self.width)
        a.JNE(rest)
        a.MOV(self.count, self.k)
        a.SHR(self.count, self.width.bit_length() - 1)
        a.JZ(rest)
        a.comment(f"dst[j][p] = src[p][j] * factor[j], {self.width} x {self.width}")
        self.blocks()
        a.AND(self.k, self.width - 1)
        a.comment("dst[j][p] = src[p][j] * factor[j], what is left of `rows` and k, one by one")
        a.place(rest)
        a.TEST(self.k, self.k)
        a.JZ(done)
        self.elements()
        a.place(done)
        a.ret()
        return a.finish(
            Contract(
                formula=("dst[j][p] = src[p][j] * factor[j],  p < k, j < rows",),
                extents=(
                    f"src: k rows, src_stride bytes apart, of {self.width} numbers; factor: [{self.width}].",
                    f"dst: `rows` rows, dst_stride bytes apart, of k numbers; 1 <= rows <= {self.width}; k may be 0.",
                    "All aligned to 4 bytes. Nothing else is read or written.",
                ),
            ),
            "gen/attention/unpack.py",
        )


def build(spec: KernelSpec) -> Kernel:
    """The kernel that unpacks `spec.tile` = (8,) lanes."""
    return _Unpack(spec, LEVELS[spec.level]).kernel()


KERNELS = tuple(KernelSpec("unpack", ("f32",), (8,), level) for level in ("avx2", "avx512"))

FAMILY = Family(
    macro="SDGEN_UNPACK_KERNEL",
    columns=("type", "width", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], *spec.tile, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
