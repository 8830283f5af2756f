"""Vector operations that loop skeletons are written in; one class per instruction set.

A skeleton knows lanes, registers and formulas. What loads, multiplies or masks is asked of the vector unit, so that
another instruction set is another unit and not another skeleton.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from gen.dsl.assembler import Assembler
from gen.dsl.errors import DslError
from gen.dsl.operands import Memory, Register

_NOT_LESS = 0x15  # VCMPPS's predicate: not less than, or not comparable, without an exception for quiet NaNs


def _word(value: float) -> int:
    """The bits of a number that is one of single precision."""
    (word,) = struct.unpack("<I", struct.pack("<f", value))
    return int(word)


def _role(value: float) -> str:
    return f"constant_{_word(value):08x}"


class VectorUnit(ABC):
    """Operations on vectors of `lanes` single-precision numbers.

    What has the same name in AVX and AVX-512 is here.
    """

    def __init__(self, assembler: Assembler) -> None:
        self.a = assembler
        self.lanes = assembler.level.lanes

    @property
    def bytes(self) -> int:
        """The size of a vector."""
        return 4 * self.lanes

    @abstractmethod
    def zero(self, dst: Register) -> None:
        """dst = 0"""

    def load(self, dst: Register, src: Memory) -> None:
        """dst = src, aligned to nothing"""
        self.a.VMOVUPS(dst, src)

    def store(self, dst: Memory, src: Register) -> None:
        """dst = src, aligned to nothing"""
        self.a.VMOVUPS(dst, src)

    def load_widened(self, dst: Register, src: Memory, type_: str) -> None:
        """dst = float(src), aligned to nothing, elements of type f32, f16 or bf16"""
        if type_ == "f32":
            self.load(dst, src)
        else:
            self.widen(dst, src, type_)

    def widen(self, dst: Register, src: Register | Memory, type_: str) -> None:
        """dst = float(src), elements of type f16 or bf16; src may be the lower half of dst"""
        if type_ == "f16":
            self.a.VCVTPH2PS(dst, src)
        else:
            # the upper half of a single-precision number
            self.a.VPMOVZXWD(dst, src)
            self.a.VPSLLD(dst, dst, 16)

    def broadcast(self, dst: Register, src: Memory) -> None:
        """dst[lane] = src for every lane"""
        self.a.VBROADCASTSS(dst, src)

    def fma(self, acc: Register, x: Register, y: Register | Memory) -> None:
        """acc += x * y, rounded once"""
        self.a.VFMADD231PS(acc, x, y)

    def add(self, dst: Register, x: Register, y: Register | Memory) -> None:
        """dst = x + y"""
        self.a.VADDPS(dst, x, y)

    def multiply(self, dst: Register, x: Register, y: Register | Memory) -> None:
        """dst = x * y"""
        self.a.VMULPS(dst, x, y)

    def divide(self, dst: Register, x: Register, y: Register | Memory) -> None:
        """dst = x / y"""
        self.a.VDIVPS(dst, x, y)

    def minimum(self, dst: Register, x: Register, y: Register | Memory) -> None:
        """dst = x < y ? x : y, so y where either is NaN"""
        self.a.VMINPS(dst, x, y)

    def maximum(self, dst: Register, x: Register, y: Register | Memory) -> None:
        """dst = x > y ? x : y, so y where either is NaN"""
        self.a.VMAXPS(dst, x, y)

    @abstractmethod
    def constant(self, value: float) -> Memory:
        """An operand of arithmetic that is this number in every lane"""

    @abstractmethod
    def load_constant(self, dst: Register, value: float) -> None:
        """dst = this number in every lane"""

    @abstractmethod
    def fold(self, dst: Register, scratch: Register) -> None:
        """dst[lane] = the sum of all lanes that are `lane` modulo 8, for the lanes below 8"""

    # Masks: registers of whatever kind the instruction set has for them.

    @abstractmethod
    def tail_mask(self, name: str, count: Register, scratch: Register) -> Register:
        """A new mask of the lanes below `count`, any unsigned number; clobbers both registers."""

    @abstractmethod
    def masks(self, name: str, why: str, count: int) -> tuple[Register, ...]:
        """Registers for masks."""

    @abstractmethod
    def mask_from_words(self, mask: Register, src: Memory, lane: int, scratch: Register) -> None:
        """mask = words of src, 8 of 0 or -1, for the lanes from `lane` on; the other lanes are not in the mask"""

    @abstractmethod
    def test_masks(self, masks: Sequence[Register], scratch: Register) -> None:
        """Sets the zero flag where no lane is in any of the masks."""

    @abstractmethod
    def join_masks(self, mask: Register, other: Register) -> None:
        """mask = the lanes of both"""

    @abstractmethod
    def load_masked(self, dst: Register, mask: Register, src: Memory) -> None:
        """dst = src where the mask is set, else 0; other lanes are not read"""

    @abstractmethod
    def merge_masked(self, dst: Register, mask: Register, src: Memory, scratch: Register) -> None:
        """dst = src where the mask is set, where dst is 0; other lanes stay and are not read"""

    @abstractmethod
    def store_masked(self, dst: Memory, mask: Register, src: Register) -> None:
        """dst = src where the mask is set; other lanes are not written"""

    @abstractmethod
    def maximum_where(self, dst: Register, mask: Register, x: Register) -> None:
        """dst = the larger of dst and x where the mask is set, dst where x is NaN; other lanes stay; clobbers x"""

    @abstractmethod
    def not_less(self, mask: Register, x: Register, y: Register | Memory) -> None:
        """mask = the lanes where x is not less than y, or either is NaN"""

    @abstractmethod
    def keep(self, dst: Register, mask: Register) -> None:
        """dst = dst where the mask is set, else 0"""

    @abstractmethod
    def add_integers_where(self, dst: Register, mask: Register, x: Register, y: Register) -> None:
        """dst = x + y, as 32-bit integers, where the mask is set, else 0"""


class Avx2(VectorUnit):
    """AVX2 with FMA: ymm registers; masks are vectors of 0 and -1."""

    def zero(self, dst: Register) -> None:
        low = dst.as_kind("xmm")
        self.a.VXORPS(low, low, low)

    def constant(self, value: float) -> Memory:
        return Memory(symbol=self.a.constant(_role(value), (_word(value),) * self.lanes, self.bytes))

    def load_constant(self, dst: Register, value: float) -> None:
        self.a.VMOVAPS(dst, self.constant(value))

    def fold(self, dst: Register, scratch: Register) -> None:
        pass

    def tail_mask(self, name: str, count: Register, scratch: Register) -> Register:
        # mask = table[lanes - min(count, lanes)...]; the table holds `lanes` words -1, then as many words 0
        table = self.a.constant("tail_masks", (0xFFFFFFFF,) * self.lanes + (0,) * self.lanes, self.bytes)
        mask = self.a.vector(name, "lanes that exist")
        self.a.MOV(scratch, self.lanes)
        self.a.CMP(count, scratch)
        self.a.CMOVA(count, scratch)
        self.a.SUB(scratch, count)
        self.a.LEA(count, Memory(symbol=table))
        self.a.VMOVUPS(mask, Memory(count, scratch, 4))
        return mask

    def masks(self, name: str, why: str, count: int) -> tuple[Register, ...]:
        return self.a.vectors(name, why, count)

    def mask_from_words(self, mask: Register, src: Memory, lane: int, scratch: Register) -> None:
        if lane:
            raise DslError(f"{self.a.spec.name}: there is no lane {lane} for a mask of {self.lanes}")
        self.load(mask, src)

    def test_masks(self, masks: Sequence[Register], scratch: Register) -> None:
        every = masks[0]
        for mask in masks[1:]:
            self.a.VORPS(scratch, every, mask)
            every = scratch
        self.a.VPTEST(every, every)

    def join_masks(self, mask: Register, other: Register) -> None:
        self.a.VORPS(mask, mask, other)

    def load_masked(self, dst: Register, mask: Register, src: Memory) -> None:
        self.a.VMASKMOVPS(dst, mask, src)

    def merge_masked(self, dst: Register, mask: Register, src: Memory, scratch: Register) -> None:
        self.load_masked(scratch, mask, src)
        self.a.VORPS(dst, dst, scratch)

    def store_masked(self, dst: Memory, mask: Register, src: Register) -> None:
        self.a.VMASKMOVPS(dst, mask, src)

    def maximum_where(self, dst: Register, mask: Register, x: Register) -> None:
        self.maximum(x, x, dst)
        self.a.VBLENDVPS(dst, dst, x, mask)

    def not_less(self, mask: Register, x: Register, y: Register | Memory) -> None:
        self.a.VCMPPS(mask, x, y, _NOT_LESS)

    def keep(self, dst: Register, mask: Register) -> None:
        self.a.VANDPS(dst, dst, mask)

    def add_integers_where(self, dst: Register, mask: Register, x: Register, y: Register) -> None:
        self.a.VPADDD(dst, x, y)
        self.a.VANDPS(dst, dst, mask)


class Avx512(VectorUnit):
    """AVX-512 F, VL, BW and DQ: zmm registers, masks in mask registers."""

    def zero(self, dst: Register) -> None:
        self.a.VPXORD(dst, dst, dst)

    def constant(self, value: float) -> Memory:
        return Memory(symbol=self.a.constant(_role(value), (_word(value),), 4), size=4, broadcast=self.lanes)

    def load_constant(self, dst: Register, value: float) -> None:
        self.broadcast(dst, replace(self.constant(value), broadcast=None))

    def fold(self, dst: Register, scratch: Register) -> None:
        low, high = dst.as_kind("ymm"), scratch.as_kind("ymm")
        self.a.VEXTRACTF64X4(high, dst, 1)
        self.a.VADDPS(low, low, high)

    def tail_mask(self, name: str, count: Register, scratch: Register) -> Register:
        # mask = 2^min(count, lanes) - 1
        mask = self.a.mask(name, "lanes that exist")
        self.a.MOV(scratch, self.lanes)
        self.a.CMP(count, scratch)
        self.a.CMOVA(count, scratch)
        self.a.MOV(scratch, -1)
        self.a.BZHI(scratch, scratch, count)
        self.a.KMOVW(mask, scratch.as_kind("r32"))
        return mask

    def masks(self, name: str, why: str, count: int) -> tuple[Register, ...]:
        return self.a.masks(name, why, count)

    def mask_from_words(self, mask: Register, src: Memory, lane: int, scratch: Register) -> None:
        words = scratch.as_kind("ymm")
        self.a.VMOVUPS(words, src)
        self.a.VPMOVD2M(mask, words)
        if lane:
            self.a.KSHIFTLW(mask, mask, lane)

    def test_masks(self, masks: Sequence[Register], scratch: Register) -> None:
        if len(masks) > 2:
            raise DslError(f"{self.a.spec.name}: {len(masks)} masks are tested at once, two can be")
        self.a.KORTESTW(masks[0], masks[-1])

    def join_masks(self, mask: Register, other: Register) -> None:
        self.a.KORW(mask, mask, other)

    def load_masked(self, dst: Register, mask: Register, src: Memory) -> None:
        self.a.VMOVUPS(dst.masked(mask, zeroing=True), src)

    def merge_masked(self, dst: Register, mask: Register, src: Memory, scratch: Register) -> None:
        self.a.VMOVUPS(dst.masked(mask), src)

    def store_masked(self, dst: Memory, mask: Register, src: Register) -> None:
        self.a.VMOVUPS(replace(dst, size=self.bytes).masked(mask), src)

    def maximum_where(self, dst: Register, mask: Register, x: Register) -> None:
        self.maximum(dst.masked(mask), x, dst)

    def not_less(self, mask: Register, x: Register, y: Register | Memory) -> None:
        self.a.VCMPPS(mask, x, y, _NOT_LESS)

    def keep(self, dst: Register, mask: Register) -> None:
        self.a.VMOVAPS(dst.masked(mask, zeroing=True), dst)

    def add_integers_where(self, dst: Register, mask: Register, x: Register, y: Register) -> None:
        self.a.VPADDD(dst.masked(mask, zeroing=True), x, y)


_UNITS: dict[str, type[VectorUnit]] = {"avx2": Avx2, "avx512": Avx512}


def vector_unit(assembler: Assembler) -> VectorUnit:
    """The vector unit of the assembler's level."""
    name = assembler.level.name
    if name not in _UNITS:
        raise DslError(f"{assembler.spec.name}: level {name} has no vector unit")
    return _UNITS[name](assembler)
