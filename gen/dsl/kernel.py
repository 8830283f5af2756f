"""A finished kernel: what the writer, the lists and the tests take."""

from __future__ import annotations

from dataclasses import dataclass

from gen.contract import Signature
from gen.spec import KernelSpec


@dataclass(frozen=True)
class Contract:
    """What the banner says besides the prototype: the formula, the extents of the arrays, notes. Lines of text."""

    formula: tuple[str, ...]
    extents: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Instruction:
    """An instruction as written; `encoding` is PeachPy's or that of encodings.py, None where it is not known."""

    text: str
    encoding: bytes | None
    extensions: frozenset[str]


@dataclass(frozen=True)
class Constant:
    """A constant of the read-only section: its label and its 32-bit words."""

    label: str
    words: tuple[int, ...]
    alignment: int


@dataclass(frozen=True)
class RegisterUse:
    """A line of the register map."""

    registers: str
    name: str
    why: str


@dataclass(frozen=True)
class Loop:
    """A loop that holds no other: the role of its label, and its instructions in the order of the file."""

    role: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel ready to be written. `body` holds the lines of the function, `source` the Python file it comes from."""

    spec: KernelSpec
    signature: Signature
    contract: Contract
    body: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    loops: tuple[Loop, ...]
    constants: tuple[Constant, ...]
    register_map: tuple[RegisterUse, ...]
    source: str

    @property
    def extensions(self) -> tuple[str, ...]:
        """The extensions that the instructions need, sorted."""
        return tuple(sorted({name for instruction in self.instructions for name in instruction.extensions}))

    @property
    def prototype(self) -> str:
        """The C prototype."""
        return self.signature.prototype(self.spec.name)
