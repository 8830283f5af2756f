"""Vector operations that loop skeletons are written in; one class per instruction set.

A skeleton knows lanes, registers and formulas. What loads, multiplies or masks is asked of the vector unit, so that
another instruction set is another unit and not another skeleton.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from gen.dsl.assembler import Assembler
from gen.dsl.errors import DslError
from gen.dsl.operands import Memory, Register


class VectorUnit(ABC):
    """Operations on vectors of `lanes` single-precision numbers."""

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

    @abstractmethod
    def load(self, dst: Register, src: Memory) -> None:
        """dst = src, aligned to nothing"""

    @abstractmethod
    def store(self, dst: Memory, src: Register) -> None:
        """dst = src, aligned to nothing"""

    @abstractmethod
    def broadcast(self, dst: Register, src: Memory) -> None:
        """dst[lane] = src for every lane"""

    @abstractmethod
    def fma(self, acc: Register, x: Register, y: Register | Memory) -> None:
        """acc += x * y, rounded once"""

    @abstractmethod
    def add(self, dst: Register, x: Register, y: Register | Memory) -> None:
        """dst = x + y"""

    @abstractmethod
    def multiply(self, dst: Register, x: Register, y: Register | Memory) -> None:
        """dst = x * y"""

    @abstractmethod
    def tail_mask(self, name: str, count: Register, scratch: Register) -> Register:
        """A new mask of the lanes below `count`, any unsigned number; clobbers both registers."""

    @abstractmethod
    def load_masked(self, dst: Register, mask: Register, src: Memory) -> None:
        """dst = src where the mask is set, else 0; other lanes are not read"""

    @abstractmethod
    def store_masked(self, dst: Memory, mask: Register, src: Register) -> None:
        """dst = src where the mask is set; other lanes are not written"""


class Avx2(VectorUnit):
    """AVX2 with FMA: ymm registers; masks are vectors of 0 and -1."""

    def zero(self, dst: Register) -> None:
        low = dst.as_kind("xmm")
        self.a.VXORPS(low, low, low)

    def load(self, dst: Register, src: Memory) -> None:
        self.a.VMOVUPS(dst, src)

    def store(self, dst: Memory, src: Register) -> None:
        self.a.VMOVUPS(dst, src)

    def broadcast(self, dst: Register, src: Memory) -> None:
        self.a.VBROADCASTSS(dst, src)

    def fma(self, acc: Register, x: Register, y: Register | Memory) -> None:
        self.a.VFMADD231PS(acc, x, y)

    def add(self, dst: Register, x: Register, y: Register | Memory) -> None:
        self.a.VADDPS(dst, x, y)

    def multiply(self, dst: Register, x: Register, y: Register | Memory) -> None:
        self.a.VMULPS(dst, x, y)

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

    def load_masked(self, dst: Register, mask: Register, src: Memory) -> None:
        self.a.VMASKMOVPS(dst, mask, src)

    def store_masked(self, dst: Memory, mask: Register, src: Register) -> None:
        self.a.VMASKMOVPS(dst, mask, src)


_UNITS: dict[str, type[VectorUnit]] = {"avx2": Avx2}


def vector_unit(assembler: Assembler) -> VectorUnit:
    """The vector unit of the assembler's level."""
    name = assembler.level.name
    if name not in _UNITS:
        raise DslError(f"{assembler.spec.name}: level {name} has no vector unit")
    return _UNITS[name](assembler)
