"""Packing of rows that stay rows, with conversion to single precision.

Rows that fill the panel take plain loads. Of the others nothing behind the last element is read: AVX-512 masks single
elements of any size, AVX2 those of four bytes, so pairs of two-byte elements, to which the last one is added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from gen.contract import PACK_ROWS
from gen.dsl import Assembler, Contract, Kernel, Memory, Register, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec

OPTIONS = {"align": 32}  # of the loops, bytes

_ELEMENT_SIZE = {"f32": 4, "f16": 2, "bf16": 2}
_UNROLL = 4  # rows of a pass


class _Rows(ABC):
    """One kernel in the making."""

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.type, self.size = spec.types[0], _ELEMENT_SIZE[spec.types[0]]
        (self.width,) = spec.tile
        self.align = spec.option("align", OPTIONS["align"])
        self.a = a = Assembler(spec, level, PACK_ROWS)
        self.v = vector_unit(a)
        self.src, self.stride, self.dst = (a.argument(name) for name in ("src", "src_stride", "dst"))
        self.triple = a.general("triple", "three times src_stride; columns when the masks are made")
        self.count = a.general("count", "passes that are left; scratch")
        self.x = a.vectors("x", "a row", self.width // self.v.lanes)

    @abstractmethod
    def prepare_part(self) -> None:
        """The masks of `columns` elements; `triple` and `count` are free."""

    @abstractmethod
    def load_part(self) -> None:
        """x = the `columns` elements at src, then zeros"""

    def load(self, index: Register | None = None, scale: int = 1) -> None:
        """x = the `width` elements at src + index * scale"""
        for vector, register in enumerate(self.x):
            place = at(self.src, self.size * self.v.lanes * vector, index=index, scale=scale)
            self.v.load_widened(register, place, self.type)

    def store(self, i: int = 0) -> None:
        """dst[i] = x"""
        for vector, register in enumerate(self.x):
            self.v.store(at(self.dst, 4 * self.width * i + self.v.bytes * vector), register)

    def next_row(self) -> None:
        """The pointers, one row further."""
        self.a.ADD(self.src, self.stride)
        self.a.ADD(self.dst, 4 * self.width)

    def whole_rows(self) -> None:
        """All rows, of `width` elements: passes of several, then single ones."""
        a, k = self.a, self.a.argument("k")
        rest, done = a.label("rest"), a.label("whole_done")
        a.LEA(self.triple, at(self.stride, index=self.stride, scale=2))
        a.MOV(self.count, k)
        a.SHR(self.count, _UNROLL.bit_length() - 1)
        a.JZ(rest)
        with a.loop("pass", self.count, self.align):
            for i, (index, scale) in enumerate(((None, 1), (self.stride, 1), (self.stride, 2), (self.triple, 1))):
                self.load(index, scale)
                self.store(i)
            a.LEA(self.src, at(self.src, index=self.stride, scale=_UNROLL))
            a.ADD(self.dst, 4 * self.width * _UNROLL)
        a.place(rest)
        a.AND(k, _UNROLL - 1)
        a.JZ(done)
        with a.loop("row", k, align=1):
            self.load()
            self.store()
            self.next_row()
        a.place(done)

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a, k = self.a, self.a.argument("k")
        part, done = a.label("part"), a.label("done")
        a.CMP(a.argument("columns"), self.width)
        a.JNE(part)
        a.comment(f"dst[p] = float(src[p]), {self.width} elements")
        self.whole_rows()
        a.place(done)
        a.ret()
        a.place(part)
        a.comment("dst[p] = float(src[p]), `columns` elements, then zeros")
        a.TEST(k, k)
        a.JZ(done)
        self.prepare_part()
        with a.loop("part_row", k, self.align):
            self.load_part()
            self.store()
            self.next_row()
        a.ret()
        return a.finish(
            Contract(
                formula=(f"dst[p][i] = i < columns ? float(src[p][i]) : 0,  p < k, i < {self.width}",),
                extents=(
                    f"src: k rows of `columns` elements ({self.type}), src_stride bytes apart, aligned to nothing;",
                    f"1 <= columns <= {self.width}; src_stride may be negative or odd; k may be 0.",
                    f"dst: [k][{self.width}] without gaps, aligned to 4 bytes. Nothing else is read or written.",
                ),
            ),
            "gen/attention/rows.py",
        )


class _MaskedWords(_Rows):
    """Masks of elements of four bytes: a register each at AVX2."""

    def prepare_part(self) -> None:
        a, v = self.a, self.v
        masks = []
        for vector in range(len(self.x)):
            a.MOV(self.triple, a.argument("columns"))
            if vector:
                a.XOR(self.count.as_kind("r32"), self.count.as_kind("r32"))
                a.SUB(self.triple, v.lanes * vector)
                a.CMOVB(self.triple, self.count)
            masks.append(v.tail_mask(f"mask{vector}", self.triple, self.count))
        self.masks = masks

    def load_part(self) -> None:
        for vector, (register, mask) in enumerate(zip(self.x, self.masks, strict=True)):
            self.v.load_masked(register, mask, at(self.src, self.v.bytes * vector))


class _MaskedHalves(_Rows):
    """AVX-512, elements of two bytes."""

    def prepare_part(self) -> None:
        self.a.MOV(self.triple, self.a.argument("columns"))
        self.mask = self.v.tail_mask("mask", self.triple, self.count)

    def load_part(self) -> None:
        (x,) = self.x
        half = x.as_kind("ymm")
        self.a.VMOVDQU16(half.masked(self.mask, zeroing=True), at(self.src))
        self.v.widen(x, half, self.type)


class _MaskedPairs(_Rows):
    """AVX2, elements of two bytes: the pairs under a mask, and the last element in every place, but for its own masked.

    Where it belongs to a pair it is there already, and is the same.
    """

    def prepare_part(self) -> None:
        a, columns = self.a, self.a.argument("columns")
        a.MOV(self.triple, columns)
        a.SHR(self.triple, 1)
        self.pairs = self.v.tail_mask("pairs", self.triple, self.count)
        self.place = a.vector("place", "that of the last element")
        self.last = a.vector("last", "the last element of a row")
        # place = table[width + 1 - columns...]; the table's one -1 is number `width`.
        words = self.width // 2
        table = a.constant("last_element", (0,) * words + (0xFFFF,) + (0,) * (words - 1), self.v.bytes)
        a.MOV(self.count, self.width + 1)
        a.SUB(self.count, columns)
        a.LEA(self.triple, Memory(symbol=table))
        a.VMOVDQU(self.place, at(self.triple, index=self.count, scale=self.size))

    def load_part(self) -> None:
        a, (low, high) = self.a, self.x
        a.VPMASKMOVD(low, self.pairs, at(self.src))
        a.VPBROADCASTW(self.last, at(self.src, -self.size, index=a.argument("columns"), scale=self.size))
        a.VPAND(self.last, self.last, self.place)
        a.VPOR(low, low, self.last)
        a.VEXTRACTI128(high.as_kind("xmm"), low, 1)
        for register in self.x:
            self.v.widen(register, register.as_kind("xmm"), self.type)


def build(spec: KernelSpec) -> Kernel:
    """The kernel that packs rows of `spec.types` into panels of `spec.tile` = (width,), which is 16."""
    kind: type[_Rows] = _MaskedWords
    if spec.types[0] != "f32":
        kind = _MaskedPairs if spec.level == "avx2" else _MaskedHalves
    return kind(spec, LEVELS[spec.level]).kernel()


KERNELS = tuple(
    KernelSpec("pack_rows", (type_,), (16,), level) for level in ("avx2", "avx512") for type_ in _ELEMENT_SIZE
)

FAMILY = Family(
    macro="SDGEN_PACK_ROWS_KERNEL",
    columns=("type", "width", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], *spec.tile, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
