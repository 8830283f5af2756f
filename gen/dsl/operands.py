"""Operands: registers, memory and immediates, as GNU as writes them and as PeachPy takes them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

_QWORDS = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{i}" for i in range(8, 16)))
_DWORDS = ("eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", *(f"r{i}d" for i in range(8, 16)))

_PEACHPY_REGISTERS = {
    "r64": "GeneralPurposeRegister64",
    "r32": "GeneralPurposeRegister32",
    "xmm": "XMMRegister",
    "ymm": "YMMRegister",
    "zmm": "ZMMRegister",
    "k": "KRegister",
}

_SIZE_NAMES = {1: "byte", 2: "word", 4: "dword", 8: "qword", 16: "xmmword", 32: "ymmword", 64: "zmmword"}


@functools.cache
def x86_64() -> Any:
    """PeachPy's module of the instruction set. To import it takes a second, so only what builds kernels does."""
    import peachpy.x86_64

    return peachpy.x86_64


@dataclass(frozen=True)
class Mask:
    """An AVX-512 mask on an operand: lanes whose bit is 0 keep their value, or become 0 where it is zeroing."""

    register: Register
    zeroing: bool = False

    def __str__(self) -> str:
        return f"{{{self.register}}}" + ("{z}" if self.zeroing else "")

    def peachpy(self) -> Any:
        """The mask as PeachPy takes it."""
        mask = self.register.peachpy()
        return mask.z if self.zeroing else mask


@dataclass(frozen=True)
class Register:
    """A physical register: its kind (r64, r32, xmm, ymm, zmm, k, tmm), its number, the mask on it if any."""

    kind: str
    number: int
    mask: Mask | None = None

    def __str__(self) -> str:
        if self.kind == "r64":
            name = _QWORDS[self.number]
        elif self.kind == "r32":
            name = _DWORDS[self.number]
        else:
            name = f"{self.kind}{self.number}"
        return name + (str(self.mask) if self.mask else "")

    @property
    def file(self) -> str:
        """The register file: registers of one file and number are parts of one another."""
        return {"r64": "general", "r32": "general", "k": "mask", "tmm": "tile"}.get(self.kind, "vector")

    def as_kind(self, kind: str) -> Register:
        """The same register by another width, e.g. `xmm` for the low half of a ymm register."""
        return Register(kind, self.number)

    def masked(self, register: Register, zeroing: bool = False) -> Register:
        """The register under an AVX-512 mask."""
        return replace(self, mask=Mask(register, zeroing))

    def peachpy(self) -> Any:
        """The register as PeachPy takes it."""
        register = getattr(x86_64().registers, _PEACHPY_REGISTERS[self.kind])(self.number)
        return register(self.mask.peachpy()) if self.mask else register


@dataclass(frozen=True)
class Memory:
    """A memory operand: [base + index*scale + displacement], or [rip + symbol + displacement].

    `size` in bytes is needed where the other operands do not say it. `broadcast` is the number of lanes that one
    element is spread over (AVX-512).
    """

    base: Register | None = None
    index: Register | None = None
    scale: int = 1
    displacement: int = 0
    size: int | None = None
    symbol: str | None = None
    mask: Mask | None = None
    broadcast: int | None = None

    def __str__(self) -> str:
        parts = ["rip"] if self.symbol else []
        parts += [str(part) for part in (self.base, self.symbol) if part is not None]
        if self.index is not None:
            parts.append(f"{self.index}*{self.scale}" if self.scale > 1 else str(self.index))
        address = "+".join(parts) + (f"{self.displacement:+d}" if self.displacement else "")
        text = f"[{address}]"
        if self.size is not None:
            text = f"{_SIZE_NAMES[self.size]} ptr {text}"
        if self.broadcast is not None:
            text += f"{{1to{self.broadcast}}}"
        return text + (str(self.mask) if self.mask else "")

    @property
    def registers(self) -> tuple[Register, ...]:
        """The registers that make the address, and the mask."""
        mask = self.mask.register if self.mask else None
        return tuple(register for register in (self.base, self.index, mask) if register is not None)

    def masked(self, register: Register) -> Memory:
        """The operand under an AVX-512 mask."""
        return replace(self, mask=Mask(register))

    def peachpy(self) -> Any:
        """The operand as PeachPy takes it; a symbol's place is not known yet and stands as 0."""
        module = x86_64().operand
        if self.symbol:
            return module.MemoryOperand(module.RIPRelativeOffset(0), self.size, broadcast=self.broadcast)
        address = module.MemoryAddress(
            self.base.peachpy() if self.base else None,
            self.index.peachpy() if self.index else None,
            self.scale if self.index else None,
            self.displacement,
        )
        operand = module.MemoryOperand(address, self.size, broadcast=self.broadcast)
        return operand(self.mask.peachpy()) if self.mask else operand


Operand = Register | Memory | int


def at(
    base: Register, displacement: int = 0, *, index: Register | None = None, scale: int = 1, size: int | None = None
) -> Memory:
    """The memory operand [base + index*scale + displacement]; displacement in bytes."""
    return Memory(base, index, scale, displacement, size)


def to_peachpy(operand: Operand) -> Any:
    """An operand as PeachPy takes it."""
    return operand if isinstance(operand, int) else operand.peachpy()
