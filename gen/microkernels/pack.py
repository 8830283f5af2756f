"""Packing of rows into a panel, a transposition, with conversion to single precision.

Blocks of four elements of each row go through registers: a 4x4 transposition in each 128-bit lane, with rows 0 to 3 in
the low lane and rows 4 to 7 in the high one. Panels wider than a vector are made one vector of rows after the other.
"""

from __future__ import annotations

from gen.contract import PACK
from gen.dsl import Assembler, Contract, Kernel, Memory, Register, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec

OPTIONS = {"align": 32}  # of the loop, bytes

_ELEMENT_SIZE = {"f32": 4, "f16": 2, "bf16": 2}
_BLOCK = 4  # elements of each row: what a 128-bit lane holds


class _Panel:
    """One kernel in the making."""

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.spec = spec
        self.type, self.size = spec.types[0], _ELEMENT_SIZE[spec.types[0]]
        (self.width,) = spec.tile
        self.a = a = Assembler(spec, level, PACK)
        self.v = vector_unit(a)
        self.rows = min(self.width, self.v.lanes)  # of one pass
        self.step = 4 * self.width  # bytes of the panel for one element of each row

        more = a.generals("row[i]", "ends of the rows of a pass, from its second on", self.rows - 1)
        self.ends = (a.argument("src"), *more)
        self.index = a.general("index", "place in the rows, in bytes before their ends")
        self.cursor = a.general("cursor", "place in the panel; the following row before that")

        # Up to four rows, an xmm register holds one element of each.
        self.wide = self.rows > _BLOCK
        self.loaded = a.vectors("x", "four elements of rows i and i + 4", _BLOCK)
        self.paired = a.vectors("y", "elements of rows i and i + 1 in turn", _BLOCK)

    def view(self, register: Register) -> Register:
        """A register by the width that is worked with."""
        return register if self.wide else register.as_kind("xmm")

    def convert(self, dst: Register, src: Register | Memory) -> None:
        """dst = float(src)"""
        if self.type == "f16":
            self.a.VCVTPH2PS(dst, src)
        elif self.type == "bf16":
            # the upper half of a single-precision number
            self.a.VPMOVZXWD(dst, src)
            self.a.VPSLLD(dst, dst, 16)

    def load(self, i: int, place: Memory, high_place: Memory | None) -> None:
        """x[i] = four elements of row i, in the high lane those of row i + 4"""
        a, x, low = self.a, self.view(self.loaded[i]), self.loaded[i].as_kind("xmm")
        if self.type == "f32":
            a.VMOVUPS(low, place)
            if high_place:
                a.VINSERTF128(x, x, high_place, 1)
        elif high_place:
            a.VMOVSD(low, place)
            a.VMOVHPS(low, low, high_place)
            self.convert(x, low)
        else:
            self.convert(low, place)

    def store_exactly(self, displacement: int, register: Register) -> None:
        """cursor[displacement...] = the pass's lanes of the register and nothing behind; clobbers it."""
        a, low, lanes = self.a, register.as_kind("xmm"), self.rows
        if lanes == self.v.lanes:
            self.v.store(at(self.cursor, displacement), register)
            return
        if lanes >= _BLOCK:
            a.VMOVUPS(at(self.cursor, displacement), low)
            displacement, lanes = displacement + 16, lanes - _BLOCK
            if lanes:
                a.VEXTRACTF128(low, register, 1)
        if lanes >= 2:
            a.VMOVLPS(at(self.cursor, displacement), low)
        if lanes == 1:
            a.VMOVSS(at(self.cursor, displacement), low)
        elif lanes == 3:
            a.VEXTRACTPS(at(self.cursor, displacement + 8), low, 2)

    def block(self, mask: Register, index: Register | None, displacement: int) -> None:
        """Four elements of each row; the last ones (no index) without writing behind the panel."""
        a = self.a
        places = [at(end, displacement, index=index) for end in self.ends]
        for i in range(min(self.rows, _BLOCK)):
            self.load(i, places[i], places[i + _BLOCK] if i + _BLOCK < self.rows else None)
        x, y = ([self.view(register) for register in registers] for registers in (self.loaded, self.paired))
        if self.width == 1:
            a.VMOVUPS(at(self.cursor), x[0])
            return
        for i in (0, 2):
            pair = [x[min(i + j, self.rows - 1)] for j in (0, 1)]
            a.VUNPCKLPS(y[i], *pair)
            a.VUNPCKHPS(y[i + 1], *pair)
        for half in (0, 1):
            a.VUNPCKLPD(x[2 * half], y[half], y[half + 2])
            a.VUNPCKHPD(x[2 * half + 1], y[half], y[half + 2])
        lanes = self.v.lanes if self.wide else _BLOCK
        for p, register in enumerate(x):
            a.VANDPS(register, register, self.view(mask))
            # A store may go beyond its element's place, into that of the next one, which is stored later.
            if index is None and self.width < lanes and self.width * p + lanes > self.width * _BLOCK:
                self.store_exactly(self.step * p, register)
            elif self.wide:
                self.v.store(at(self.cursor, self.step * p), register)
            else:
                a.VMOVUPS(at(self.cursor, self.step * p), register)

    def single(self, mask: Register) -> None:
        """One element of each row."""
        a, x = self.a, self.loaded[0]
        low, high = x.as_kind("xmm"), self.loaded[1].as_kind("xmm")
        for register in (low, high):
            a.VXORPS(register, register, register)
        for i, end in enumerate(self.ends):
            place = at(end, index=self.index)
            if self.type == "f32":
                half = low if i < _BLOCK else high
                a.VINSERTPS(half, half, place, i % _BLOCK << 4)
            else:
                a.VPINSRW(low, low, place, i)
        if self.type == "f32":
            a.VINSERTF128(x, x, high, 1)
        else:
            self.convert(x, low)
        a.VANDPS(x, x, mask)
        self.store_exactly(0, x)

    def follow(self, i: int, current: Register, following: Register) -> None:
        """following = the end of row i + 1, or of row i where that is the last"""
        a = self.a
        a.LEA(self.cursor, at(current, index=a.argument("src_stride")))
        a.MOV(following, current)
        a.CMP(a.argument("rows"), i + 1)
        a.CMOVA(following, self.cursor)

    def one_pass(self) -> None:
        """As many rows as a vector has lanes, all of their elements."""
        a, k, rows = self.a, self.a.argument("k"), self.a.argument("rows")
        few, last, done = a.label("few"), a.label("last"), a.label("pass_done")

        a.comment("row[i] = end of row min(i, rows - 1); mask[i] = i < rows")
        for i in range(self.rows - 1):
            self.follow(i, self.ends[i], self.ends[i + 1])
        a.MOV(self.index, rows)
        mask = self.v.tail_mask("mask", self.index, self.cursor)

        a.MOV(self.cursor, a.argument("dst"))
        a.MOV(self.index, k)
        a.SHL(self.index, self.size.bit_length() - 1)
        a.NEG(self.index)
        a.CMP(k, _BLOCK)
        a.JB(few)
        a.JE(last)

        a.comment("dst[p][i] = float(row[i][p]), p from index to index + 3, while more than four are left")
        again = a.label("block")
        a.place(again, self.spec.option("align", OPTIONS["align"]))
        self.block(mask, self.index, 0)
        a.ADD(self.cursor, self.step * _BLOCK)
        a.ADD(self.index, self.size * _BLOCK)
        a.CMP(self.index, -self.size * _BLOCK)
        a.JL(again)

        a.comment("the last four elements, those again that are done already")
        a.ADD(self.index, self.size * _BLOCK)
        a.IMUL(self.index, self.index, self.step // self.size)
        a.SUB(self.cursor, self.index)
        a.place(last)
        self.block(mask, None, -self.size * _BLOCK)
        a.JMP(done)

        a.comment("fewer than four elements, one by one")
        a.place(few)
        a.TEST(k, k)
        a.JZ(done)
        one = a.label("element")
        a.place(one)
        self.single(mask)
        a.ADD(self.cursor, self.step)
        a.ADD(self.index, self.size)
        a.JNZ(one)
        a.place(done)

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a, src, rows, dst = self.a, *(self.a.argument(name) for name in ("src", "rows", "dst"))
        a.comment("src = end of row 0")
        a.LEA(src, at(src, index=a.argument("k"), scale=self.size))
        if self.width == self.rows:
            self.one_pass()
        else:
            passes = a.general("passes", "vectors of rows that are left")
            a.MOV(passes.as_kind("r32"), self.width // self.rows)
            with a.loop("pass", passes, align=1):
                self.one_pass()
                a.comment(f"rows = max(rows - {self.rows}, 0), from there on")
                self.follow(self.rows - 1, self.ends[-1], src)
                a.XOR(self.cursor.as_kind("r32"), self.cursor.as_kind("r32"))
                a.SUB(rows, self.rows)
                a.CMOVB(rows, self.cursor)
                a.ADD(dst, self.v.bytes)
        a.ret()
        return a.finish(
            Contract(
                formula=(f"dst[p][i] = i < rows ? float(src[i][p]) : 0,  p < k, i < {self.width}",),
                extents=(
                    f"src: `rows` rows of k elements ({self.type}), src_stride bytes apart, aligned to nothing;",
                    f"1 <= rows <= {self.width}; src_stride may be negative or odd; k may be 0.",
                    f"dst: [k][{self.width}] without gaps, aligned to 4 bytes. Nothing else is read or written.",
                ),
            ),
            "gen/microkernels/pack.py",
        )


def build(spec: KernelSpec) -> Kernel:
    """The kernel that packs `spec.types` into panels of `spec.tile` = (width,).

    The width is at most the level's lanes, or a multiple of them.
    """
    return _Panel(spec, LEVELS[spec.level]).kernel()


KERNELS = tuple(
    KernelSpec("pack", (type_,), (width,), "avx2") for type_ in _ELEMENT_SIZE for width in (1, 2, 3, 4, 5, 6, 16)
)

FAMILY = Family(
    macro="SDGEN_PACK_KERNEL",
    columns=("type", "width", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], *spec.tile, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
