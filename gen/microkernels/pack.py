"""Packing of rows into a panel, a transposition, with conversion to single precision.

A pass goes along eight rows; panels that are wider are made pass by pass. Elements go through registers in blocks of
16 bytes of a row: a 4x4 transposition in each 128-bit lane, with rows 0 to 3 and rows 4 to 7 in lanes of their own. How
a block is taken in and given out, and what happens at the ends of the rows, is another class for each instruction set.
AVX-512 makes panels of a multiple of 16 rows another way: sixteen rows a pass, a cache line of each at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

from gen.contract import PACK
from gen.dsl import Assembler, Contract, Kernel, Label, Memory, Register, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec

# Panels of 64 rows at AVX-512, measured on one core of a Zen 5 with others busy: ns for 16 numbers, the matrix in L3,
# then in memory; AVX2's panels of 16 rows take 1.0 and 2.4, 1.1 and 2.0, 1.3 and 3.3.
#                                              f16          bf16         f32
#   eight rows a pass, half lines stored       1.23  4.1    1.20  2.2    1.54  3.7
#   sixteen rows, whole lines                  0.81  2.5    0.80  1.9    1.16  3.1
#   the same, the next sixteen prefetched      0.80  1.6    0.80  1.4    1.24  2.3
# In L1 they take 0.72 and 0.46, 0.50 and 0.30, 0.61 and 0.34: beyond it the transposition is hidden. So to load rows
# i and i + 4 into halves of a register, which spares a quarter of its shuffles, gains nothing; nor does it to prefetch
# the panel. To prefetch into L2 only is 5 to 25% slower than into L1.
OPTIONS = {
    "align": 32,  # of the loop, bytes
    "prefetch": 1,  # 1: the next sixteen rows while these are packed, 0: nothing; only passes of sixteen rows ever do
}

_ELEMENT_SIZE = {"f32": 4, "f16": 2, "bf16": 2}
_PASS = 8  # rows of a pass, as many as there are registers for their addresses
_LINE = 64  # bytes
_LINE_ROWS = 16  # rows of a pass that writes whole cache lines
_LANE = 16  # bytes
_BLOCK = 4  # rows or single-precision numbers that a 128-bit lane holds


def _finished(a: Assembler) -> Kernel:
    (type_,), (width,) = a.spec.types, a.spec.tile
    return a.finish(
        Contract(
            formula=(f"dst[p][i] = i < rows ? float(src[i][p]) : 0,  p < k, i < {width}",),
            extents=(
                f"src: `rows` rows of k elements ({type_}), src_stride bytes apart, aligned to nothing;",
                f"1 <= rows <= {width}; src_stride may be negative or odd; k may be 0.",
                f"dst: [k][{width}] without gaps, aligned to 4 bytes. Nothing else is read or written.",
            ),
        ),
        "gen/microkernels/pack.py",
    )


def _load_helper(a: Assembler, helper: Register) -> None:
    """helper = what splits dwords into their two elements, f16 or bf16"""
    if a.spec.types[0] == "f16":
        words = (*range(0, 32, 2), *range(1, 32, 2))
        packed = tuple(low | high << 16 for low, high in zip(words[::2], words[1::2], strict=True))
        a.VMOVUPS(helper, Memory(symbol=a.constant("even_then_odd", packed, 4 * a.level.lanes)))
    else:
        a.VPBROADCASTD(helper, Memory(symbol=a.constant("high_half", (0xFFFF0000,), 4)))


class _Panel(ABC):
    """One kernel in the making."""

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.spec = spec
        self.type, self.size = spec.types[0], _ELEMENT_SIZE[spec.types[0]]
        (self.width,) = spec.tile
        self.a = a = Assembler(spec, level, PACK)
        self.v = vector_unit(a)
        self.rows = min(self.width, _PASS)  # of one pass
        self.step = 4 * self.width  # bytes of the panel for one element of each row

        more = a.generals("row[i]", "ends of the rows of a pass, from its second on", self.rows - 1)
        self.ends = (a.argument("src"), *more)
        self.index = a.general("index", "place in the rows, in bytes before their ends")
        self.cursor = a.general("cursor", "place in the panel; the following row before that")

    @abstractmethod
    def prepare(self) -> None:
        """What stays the same from pass to pass; src is the end of row 0."""

    @abstractmethod
    def transfer(self) -> None:
        """All elements of a pass; row[i] are the ends of its rows, `rows` the number of those that exist."""

    def follow(self, i: int, current: Register, following: Register) -> None:
        """following = the end of row i + 1, or of row i where that is the last"""
        a = self.a
        a.LEA(self.cursor, at(current, index=a.argument("src_stride")))
        a.MOV(following, current)
        a.CMP(a.argument("rows"), i + 1)
        a.CMOVA(following, self.cursor)

    def one_pass(self) -> None:
        """As many rows as a pass has, all of their elements."""
        self.a.comment("row[i] = end of row min(i, rows - 1); mask[i] = i < rows")
        for i in range(self.rows - 1):
            self.follow(i, self.ends[i], self.ends[i + 1])
        self.transfer()

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a, src, rows, dst = self.a, *(self.a.argument(name) for name in ("src", "rows", "dst"))
        a.comment("src = end of row 0")
        a.LEA(src, at(src, index=a.argument("k"), scale=self.size))
        self.prepare()
        if self.width == self.rows:
            self.one_pass()
        else:
            passes = a.general("passes", "passes that are left")
            a.MOV(passes.as_kind("r32"), self.width // self.rows)
            with a.loop("pass", passes, align=1):
                self.one_pass()
                a.comment(f"rows = max(rows - {self.rows}, 0), from there on")
                self.follow(self.rows - 1, self.ends[-1], src)
                a.XOR(self.cursor.as_kind("r32"), self.cursor.as_kind("r32"))
                a.SUB(rows, self.rows)
                a.CMOVB(rows, self.cursor)
                a.ADD(dst, 4 * self.rows)
        a.ret()
        return _finished(a)


class _Overlapping(_Panel):
    """AVX2: the last block of the rows overlaps the one before; rows shorter than a block go element by element.

    Types of two bytes are converted as they are loaded, four elements of a row at a time.
    """

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        super().__init__(spec, level)
        # Up to four rows, an xmm register holds one element of each.
        self.wide = self.rows > _BLOCK
        self.loaded = self.a.vectors("x", "four elements of rows i and i + 4", _BLOCK)
        self.paired = self.a.vectors("y", "elements of rows i and i + 1 in turn", _BLOCK)

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
            displacement, lanes = displacement + _LANE, lanes - _BLOCK
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

    def prepare(self) -> None:
        pass

    def transfer(self) -> None:
        a, k = self.a, self.a.argument("k")
        few, last, done = a.label("few"), a.label("last"), a.label("pass_done")
        a.MOV(self.index, a.argument("rows"))
        mask = self.v.tail_mask("mask", self.index, self.cursor)

        a.MOV(self.cursor, a.argument("dst"))
        a.MOV(self.index, k)
        a.SHL(self.index, self.size.bit_length() - 1)
        a.NEG(self.index)
        a.CMP(k, _BLOCK)
        a.JB(few)
        a.JE(last)

        a.comment("dst[p][i] = float(row[i][p]), p from index to index + 3, while more than four are left")
        with a.repeat("block", "JL", self.spec.option("align", OPTIONS["align"])):
            self.block(mask, self.index, 0)
            a.ADD(self.cursor, self.step * _BLOCK)
            a.ADD(self.index, self.size * _BLOCK)
            a.CMP(self.index, -self.size * _BLOCK)

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
        with a.repeat("element", "JNZ", align=1):
            self.single(mask)
            a.ADD(self.cursor, self.step)
            a.ADD(self.index, self.size)
        a.place(done)


class _Masked(_Panel):
    """AVX-512: whole blocks while the rows last, then masked lanes."""

    block: int  # elements of a row that are taken in at a time

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        super().__init__(spec, level)
        self.left = self.a.mask("left", "elements of a row beyond whole blocks")

    @abstractmethod
    def begin_pass(self) -> None:
        """What the pass needs; `cursor` is free."""

    @abstractmethod
    def whole(self) -> None:
        """A block of each row, which ends at row[i] + index."""

    @abstractmethod
    def rest(self, done: Label) -> None:
        """The elements that are left, which begin at row[i] + index; jumps to `done` at its end or goes there."""

    def prepare(self) -> None:
        a, bits = self.a, self.cursor
        a.comment(f"left[e] = e < k mod {self.block}")
        a.MOV(self.index, a.argument("k"))
        a.AND(self.index, self.block - 1)
        a.MOV(bits, -1)
        a.BZHI(bits, bits, self.index)
        a.KMOVD(self.left, bits.as_kind("r32"))

    def transfer(self) -> None:
        a, size = self.a, self.size * self.block
        rest, done = a.label("rest"), a.label("pass_done")
        self.begin_pass()
        a.MOV(self.cursor, a.argument("dst"))
        a.MOV(self.index, a.argument("k"))
        a.SHL(self.index, self.size.bit_length() - 1)
        a.NEG(self.index)
        a.ADD(self.index, size)
        a.JG(rest)
        a.comment(f"dst[p][i] = float(row[i][p]), {self.block} elements of each row at a time")
        with a.repeat("block", "JLE", self.spec.option("align", OPTIONS["align"])):
            self.whole()
            a.ADD(self.cursor, self.step * self.block)
            a.ADD(self.index, size)

        a.comment("the elements that are left")
        a.place(rest)
        a.SUB(self.index, size)
        a.JZ(done)
        self.rest(done)
        a.place(done)


class _MaskedRow(_Masked):
    """A single row: nothing to transpose, a vector of elements at a time."""

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        super().__init__(spec, level)
        self.block = self.v.lanes
        self.x = self.a.vector("x", "elements")

    def begin_pass(self) -> None:
        pass

    def convert(self, src: Memory | Register) -> None:
        """x = float(src)"""
        if self.type == "f32":
            self.a.VMOVUPS(self.x, src)
        elif self.type == "f16":
            self.a.VCVTPH2PS(self.x, src)
        else:
            # the upper half of a single-precision number
            self.a.VPMOVZXWD(self.x, src)
            self.a.VPSLLD(self.x, self.x, 16)

    def whole(self) -> None:
        self.convert(at(self.ends[0], -self.size * self.block, index=self.index))
        self.v.store(at(self.cursor), self.x)

    def rest(self, done: Label) -> None:
        half, place = self.x.as_kind("ymm"), at(self.ends[0], index=self.index)
        if self.type == "f32":
            self.v.load_masked(self.x, self.left, place)
        else:
            self.a.VMOVDQU16(half.masked(self.left, zeroing=True), place)
            self.convert(half)
        self.v.store_masked(at(self.cursor), self.left, self.x)


class _MaskedRows(_Masked):
    """Several rows.

    A register holds a place of 16 bytes of rows i and i + 4 in neighbouring lanes, and the places that follow in the
    lanes behind: 64 bytes are taken in at a time. Types of two bytes are transposed in pairs of elements that lie side
    by side and converted as they are given out.
    """

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        super().__init__(spec, level)
        a = self.a
        self.halves = -(-self.rows // _BLOCK)  # lanes that the rows take
        self.places = self.v.bytes // _LANE // self.halves
        self.part = _LANE // self.size  # elements of a row in a place
        self.block = self.part * self.places
        self.kind = ("xmm", "ymm")[self.halves - 1]  # what holds one place of all rows
        self.x = a.vectors("x", "places of rows i and i + 4, then of all rows", _BLOCK)
        self.y = a.vectors("y", "places of rows i and i + 1, then of all rows", _BLOCK)
        self.lane = a.vector("lane", "on its way into or out of a register").as_kind(self.kind)
        self.helper = a.vector("helper", "for the conversion") if self.size == 2 else None
        self.now = a.mask("now", "elements of a row that are left")
        self.existing = a.mask("mask", "rows that exist, of each place")
        self.exact = a.mask("exact", "rows of the pass") if self.width < _BLOCK * self.halves else None

    def prepare(self) -> None:
        super().prepare()
        a, scratch = self.a, self.cursor.as_kind("r32")
        if self.exact:
            a.comment(f"exact[i] = i < {self.rows}")
            a.MOV(scratch, (1 << self.rows) - 1)
            a.KMOVD(self.exact, scratch)
        if self.helper:
            _load_helper(a, self.helper)

    def begin_pass(self) -> None:
        # once for each place
        a, bits = self.a, self.cursor
        a.MOV(bits, (1 << _BLOCK * self.halves) - 1)
        a.BZHI(bits, bits, a.argument("rows"))
        a.IMUL(bits, bits, (0x1111, 0x0101)[self.halves - 1])
        a.KMOVD(self.existing, bits.as_kind("r32"))

    def load(self, i: int) -> None:
        """x[i] = every place of the block, of rows i and i + 4"""
        a, x, start = self.a, self.x[i], -self.size * self.block
        if self.halves == 1:
            self.v.load(x, at(self.ends[i], start, index=self.index))
            return
        for place in range(self.places):
            for half, end in enumerate(self.ends[i::_BLOCK]):
                source = at(end, start + _LANE * place, index=self.index)
                if place or half:
                    a.VINSERTF32X4(x, x, source, self.halves * place + half)
                else:
                    a.VMOVUPS(x.as_kind("xmm"), source)

    def load_rest(self, i: int) -> None:
        """x[i] = a place of the elements that are left, of rows i and i + 4"""
        a, x = self.a, self.x[i].as_kind(self.kind)
        move = a.VMOVUPS if self.size == 4 else a.VMOVDQU16
        for half, end in enumerate(self.ends[i::_BLOCK]):
            low = (self.lane if half else x).as_kind("xmm")
            move(low.masked(self.now, zeroing=True), at(end, index=self.index))
            if half:
                a.VINSERTF32X4(x, x, low, half)

    def transpose(self, kind: str) -> None:
        """x[q] = dword q of each place, rows side by side; rows that do not exist become 0"""
        a = self.a
        x, y = ([register.as_kind(kind) for register in registers] for registers in (self.x, self.y))
        for i in (0, 2):
            pair = [x[min(i + j, self.rows - 1)] for j in (0, 1)]
            a.VUNPCKLPD(y[i], *pair)
            a.VUNPCKHPD(y[i + 1], *pair)
        for q, register in enumerate(x):
            a.VSHUFPS(register.masked(self.existing, zeroing=True), y[q // 2], y[q // 2 + 2], (0x88, 0xDD)[q % 2])

    def convert(self) -> tuple[Register, ...]:
        """The elements of a place in single precision; each register holds one of every place."""
        a = self.a
        if self.helper is None:
            return self.x
        for even, odd in zip(self.y, self.x, strict=True):
            if self.type == "f16":
                a.VPERMW(even, self.helper, odd)
                a.VEXTRACTF64X4(odd.as_kind("ymm"), even, 1)
                a.VCVTPH2PS(even, even.as_kind("ymm"))
                a.VCVTPH2PS(odd, odd.as_kind("ymm"))
            else:
                # the upper half of a single-precision number
                a.VPSLLD(even, odd, 16)
                a.VPANDD(odd, odd, self.helper)
        return tuple(register for pair in zip(self.y, self.x, strict=True) for register in pair)

    def store(self, p: int, register: Register, place: int, exactly: bool) -> None:
        """cursor[p] = a place of the register; unless `exactly`, the following elements' place is written as well."""
        a, dst = self.a, at(self.cursor, self.step * p, size=_LANE * self.halves)
        extract = a.VEXTRACTF32X4 if self.halves == 1 else a.VEXTRACTF64X4
        if exactly and self.exact:
            # Extraction to memory is no masked move: it may fault on lanes that are not written.
            if place:
                extract(self.lane, register, place)
            a.VMOVUPS(dst.masked(self.exact), self.lane if place else register.as_kind(self.kind))
        elif place:
            extract(dst, register, place)
        else:
            a.VMOVUPS(dst, register.as_kind(self.kind))

    def whole(self) -> None:
        for i in range(min(self.rows, _BLOCK)):
            self.load(i)
        self.transpose(self.x[0].kind)
        elements = self.convert()
        for p in range(self.block):
            # A store may go beyond its element's place, into that of the next one, which is stored later.
            last = self.width * p + _BLOCK * self.halves > self.width * self.block
            self.store(p, elements[p % self.part], p // self.part, exactly=last)

    def rest(self, done: Label) -> None:
        a = self.a
        a.KMOVD(self.now, self.left)
        with a.repeat("place", "JL"):
            for i in range(min(self.rows, _BLOCK)):
                self.load_rest(i)
            self.transpose(self.kind)
            for p, register in enumerate(self.convert()):
                if p:
                    a.CMP(self.index, -self.size * p)
                    a.JGE(done)
                self.store(p, register, 0, exactly=True)
            a.KSHIFTRD(self.now, self.now, self.part)
            a.ADD(self.cursor, self.step * self.part)
            a.ADD(self.index, _LANE)


class _Lines:
    """AVX-512, panels of a multiple of 16 rows: sixteen of them a pass, so that whole cache lines are written.

    Of each row 64 bytes are taken in at a time, sixteen dwords; those of types of two bytes are pairs of elements and
    converted as they are given out. There are no registers for the addresses of sixteen rows: they are reached from
    rows 0 and 8 by multiples of the stride, and a row that does not exist is a register of zeros.
    """

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.spec = spec
        self.type, self.size = spec.types[0], _ELEMENT_SIZE[spec.types[0]]
        (self.width,) = spec.tile
        self.a = a = Assembler(spec, level, PACK)
        self.v = vector_unit(a)
        self.step = 4 * self.width  # bytes of the panel for one element of each row
        self.block = _LINE // self.size  # elements of a row that are taken in at a time
        self.x = a.vectors("x", "dwords of a row, then one dword of all rows", _LINE_ROWS)
        self.y = a.vectors("y", "on the way", _BLOCK)
        self.helper = a.vector("helper", "for the conversion") if self.size == 2 else None
        self.now = a.mask("now", "elements of a row that are left")
        self.multiples = a.generals("stride[n]", "3, 5 and 7 times src_stride", 3)
        self.here = a.generals("here[h]", "places in rows 0 and 8 of the pass", 2)
        self.ahead = a.generals("ahead[h]", "those of the next pass, or panel; scratch", 2)
        self.cursor = a.general("cursor", "place in the panel")
        self.left = a.general("left", "elements of a row that are left")

    def row(self, bases: tuple[Register, ...], i: int) -> Memory:
        """Row i, the bases being rows 0 and 8."""
        one, (three, five, seven) = self.a.argument("src_stride"), self.multiples
        steps = (None, 1), (one, 1), (one, 2), (three, 1), (one, 4), (five, 1), (three, 2), (seven, 1)
        index, scale = steps[i % _PASS]
        return at(bases[i // _PASS], index=index, scale=scale)

    def load(self) -> None:
        """x[i] = the next dwords of row i"""
        for i, x in enumerate(self.x):
            self.v.load(x, self.row(self.here, i))
        if self.spec.option("prefetch", OPTIONS["prefetch"]):
            for i in range(_LINE_ROWS):
                self.a.PREFETCHT0(self.row(self.ahead, i))

    def load_part(self) -> None:
        """x[i] = what is left of row i, up to sixteen dwords, then zeros; 0 where there is no such row"""
        a, (bits, count) = self.a, self.ahead
        loaded = a.label("loaded")
        move = a.VMOVUPS if self.size == 4 else a.VMOVDQU16
        a.MOV(bits, self.block)
        a.MOV(count, self.left)
        a.CMP(count, bits)
        a.CMOVA(count, bits)
        a.MOV(bits, -1)
        a.BZHI(bits, bits, count)
        a.KMOVD(self.now, bits.as_kind("r32"))
        for x in self.x:
            self.v.zero(x)
        for i, x in enumerate(self.x):
            a.CMP(a.argument("rows"), i)
            a.JE(loaded)
            move(x.masked(self.now, zeroing=True), self.row(self.here, i))
        a.place(loaded)

    def transpose(self) -> None:
        """x[q] = dword q of every row"""
        a, y = self.a, self.y
        for first in range(0, _LINE_ROWS, _BLOCK):
            # Four rows: x[e] = dword e of each lane's four, the rows side by side.
            x = self.x[first : first + _BLOCK]
            for i in (0, 2):
                a.VUNPCKLPS(y[i], x[i], x[i + 1])
                a.VUNPCKHPS(y[i + 1], x[i], x[i + 1])
            for half in (0, 1):
                a.VUNPCKLPD(x[2 * half], y[half], y[half + 2])
                a.VUNPCKHPD(x[2 * half + 1], y[half], y[half + 2])
        even, odd = 0x88, 0xDD  # lanes of both operands
        for e in range(_BLOCK):
            # The same of all rows: x[l] = lane l of each.
            x = self.x[e::_BLOCK]
            for i in (0, 2):
                a.VSHUFF32X4(y[i], x[i], x[i + 1], even)
                a.VSHUFF32X4(y[i + 1], x[i], x[i + 1], odd)
            for parity in (0, 1):
                a.VSHUFF32X4(x[parity], y[parity], y[parity + 2], even)
                a.VSHUFF32X4(x[parity + 2], y[parity], y[parity + 2], odd)

    def store(self, done: Label | None = None) -> None:
        """cursor = the elements in single precision, where `done` is given as many as are left; goes there then."""
        a = self.a

        def give(p: int, register: Register) -> None:
            if done and p:
                a.CMP(self.left, p)
                a.JE(done)
            self.v.store(at(self.cursor, self.step * p), register)

        for q, x in enumerate(self.x):
            y = self.y[q % _BLOCK]
            if self.helper is None:
                give(q, x)
            elif self.type == "f16":
                a.VPERMW(y, self.helper, x)
                a.VCVTPH2PS(x, y.as_kind("ymm"))
                give(2 * q, x)
                a.VEXTRACTF64X4(y.as_kind("ymm"), y, 1)
                a.VCVTPH2PS(y, y.as_kind("ymm"))
                give(2 * q + 1, y)
            else:
                # the upper half of a single-precision number
                a.VPSLLD(y, x, 16)
                give(2 * q, y)
                a.VPANDD(x, x, self.helper)
                give(2 * q + 1, x)

    def advance(self, bases: tuple[Register, ...]) -> None:
        """One block further."""
        for base in bases:
            self.a.ADD(base, _LINE)
        self.a.ADD(self.cursor, self.step * self.block)
        self.a.SUB(self.left, self.block)

    def one_pass(self) -> None:
        """Sixteen rows, all of their elements; src becomes the row behind."""
        a, src, stride, rows = self.a, *(self.a.argument(name) for name in ("src", "src_stride", "rows"))
        rest, part, done = a.label("rest"), a.label("part"), a.label("pass_done")
        a.comment("here[h] = row 8 h, ahead[h] = row 16 + 8 h; src = row 16")
        a.MOV(self.here[0], src)
        for base, following in pairwise((*self.here, *self.ahead)):
            a.LEA(following, at(base, index=stride, scale=_PASS))
        a.MOV(src, self.ahead[0])
        a.MOV(self.cursor, a.argument("dst"))
        a.MOV(self.left, a.argument("k"))
        a.CMP(rows, _LINE_ROWS)
        a.JB(part)
        a.SUB(self.left, self.block)
        a.JB(rest)
        a.comment(f"dst[p][i] = float(src[i][p]), {self.block} elements of each row at a time")
        with a.repeat("block", "JAE", self.spec.option("align", OPTIONS["align"])):
            self.load()
            self.transpose()
            self.store()
            self.advance((*self.here, *self.ahead))

        a.comment("the elements that are left, all of them where rows are missing")
        a.place(rest)
        a.ADD(self.left, self.block)
        a.place(part)
        a.TEST(self.left, self.left)
        a.JZ(done)
        with a.repeat("part_block", "JA"):
            self.load_part()
            self.transpose()
            self.store(done)
            self.advance(self.here)
        a.place(done)

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a, stride, rows = self.a, self.a.argument("src_stride"), self.a.argument("rows")
        a.comment("stride[n] = 3, 5 and 7 src_stride")
        three, five, seven = self.multiples
        a.LEA(three, at(stride, index=stride, scale=2))
        a.LEA(five, at(stride, index=stride, scale=4))
        a.LEA(seven, at(three, index=stride, scale=4))
        if self.helper:
            _load_helper(a, self.helper)
        if self.width == _LINE_ROWS:
            self.one_pass()
        else:
            passes = a.general("passes", "passes that are left")
            a.MOV(passes.as_kind("r32"), self.width // _LINE_ROWS)
            with a.loop("pass", passes, align=1):
                self.one_pass()
                a.comment(f"rows = max(rows - {_LINE_ROWS}, 0), from there on")
                a.XOR(self.cursor.as_kind("r32"), self.cursor.as_kind("r32"))
                a.SUB(rows, _LINE_ROWS)
                a.CMOVB(rows, self.cursor)
                a.ADD(a.argument("dst"), _LINE)
        a.ret()
        return _finished(a)


def build(spec: KernelSpec) -> Kernel:
    """The kernel that packs `spec.types` into panels of `spec.tile` = (width,), at most 8 or a multiple of 8."""
    kind: type[_Panel | _Lines] = _Overlapping
    if spec.level != "avx2":
        (width,) = spec.tile
        kind = _Lines if width % _LINE_ROWS == 0 else _MaskedRow if width == 1 else _MaskedRows
    return kind(spec, LEVELS[spec.level]).kernel()


# The rows and the columns of the products' tiles.
_WIDTHS = {
    "avx2": (1, 2, 3, 4, 5, 6, 16),
    "avx512": (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48, 64),
}

KERNELS = tuple(
    KernelSpec("pack", (type_,), (width,), level)
    for level, widths in _WIDTHS.items()
    for type_ in _ELEMENT_SIZE
    for width in widths
)

FAMILY = Family(
    macro="SDGEN_PACK_KERNEL",
    columns=("type", "width", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], *spec.tile, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
