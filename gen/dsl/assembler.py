"""The assembler: takes instructions one by one, checks them, and gives the finished kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gen.contract import Signature
from gen.dsl import encodings
from gen.dsl.errors import DslError, LevelError
from gen.dsl.kernel import Constant, Contract, Instruction, Kernel, Loop
from gen.dsl.operands import Memory, Operand, Register, to_peachpy, x86_64
from gen.dsl.registers import (
    ARGUMENTS,
    CALLEE_SAVED,
    FRAME_POINTER,
    STACK_POINTER,
    RegisterFile,
    general_registers,
    mask_registers,
    tile_registers,
    vector_registers,
)
from gen.isa import Level
from gen.spec import KernelSpec


@dataclass(frozen=True)
class Label:
    """A place in the code; local to its file."""

    name: str

    def __str__(self) -> str:
        return self.name


class _Return:
    """Stands for a return until it is known which registers must be restored."""


_RETURN = _Return()


class Assembler:
    """Takes one kernel down.

    Instructions are methods under their names in capitals, `a.VADDPS(x, y, z)`, in Intel's order of operands. The
    arguments of the kernel are held in their registers from the start, under their names.
    """

    def __init__(self, spec: KernelSpec, level: Level, signature: Signature) -> None:
        self.spec = spec
        self.level = level
        self._signature = signature
        self._items: list[Instruction | str | _Return] = []
        self._loops: list[tuple[str, int, int]] = []  # role, range of the items
        self._labels: set[str] = set()
        self._placed: set[str] = set()
        self._constants: dict[tuple[int, ...], Constant] = {}
        self._frame_size = 0
        self._general = general_registers(spec.name)
        self._vectors = vector_registers(spec.name, level.vector_kind, level.vector_registers)
        self._masks = mask_registers(spec.name)
        self._tiles = tile_registers(spec.name)
        self._arguments = {
            name: self._general.take(name, "argument", (register,))[0]
            for (_, name), register in zip(signature.parameters, ARGUMENTS, strict=False)
        }

    # Registers

    def argument(self, name: str) -> Register:
        """The register that an argument arrives in; it may be changed."""
        return self._arguments[name]

    def general(self, name: str, why: str) -> Register:
        """A general-purpose register; callee-saved ones are saved and restored without being asked."""
        return self._general.allocate(name, why, 1)[0]

    def generals(self, name: str, why: str, count: int) -> tuple[Register, ...]:
        """Several general-purpose registers for one purpose."""
        return self._general.allocate(name, why, count)

    def vector(self, name: str, why: str) -> Register:
        """A vector register of the level's full width."""
        return self._vectors.allocate(name, why, 1)[0]

    def vectors(self, name: str, why: str, count: int) -> tuple[Register, ...]:
        """Several vector registers for one purpose."""
        return self._vectors.allocate(name, why, count)

    def mask(self, name: str, why: str) -> Register:
        """A mask register (AVX-512)."""
        return self._masks.allocate(name, why, 1)[0]

    def masks(self, name: str, why: str, count: int) -> tuple[Register, ...]:
        """Several mask registers for one purpose."""
        return self._masks.allocate(name, why, count)

    def tiles(self, name: str, why: str, count: int) -> tuple[Register, ...]:
        """Several tile registers for one purpose (AMX)."""
        return self._tiles.allocate(name, why, count)

    def frame(self, why: str, size: int) -> Register:
        """Memory of the stack, aligned to 64 bytes, as long as the kernel runs; the register that points at it.

        Asked for once, while rbp is free.
        """
        self._general.take("frame", "the stack pointer without the frame", (FRAME_POINTER,))
        self._frame_size = size
        return self._general.take("stack", why, (STACK_POINTER,))[0]

    def free_vectors(self) -> int:
        """How many vector registers are left."""
        return len(self._vectors.free)

    def release(self, *registers: Register) -> None:
        """Gives registers back for other uses."""
        for register in registers:
            self._file(register).release(register)

    def _file(self, register: Register) -> RegisterFile:
        files = {"general": self._general, "vector": self._vectors, "mask": self._masks, "tile": self._tiles}
        return files[register.file]

    # Instructions

    def __getattr__(self, mnemonic: str) -> Callable[..., None]:
        if not mnemonic.isupper():
            raise AttributeError(mnemonic)

        def emit(*operands: Operand | Label) -> None:
            self._items.append(self._instruction(mnemonic, operands))

        return emit

    def _instruction(self, mnemonic: str, operands: tuple[Operand | Label, ...]) -> Instruction:
        text = f"{mnemonic.lower()} {', '.join(map(str, operands))}".rstrip()
        where = f"{self.spec.name}: {text}"
        plain = [operand for operand in operands if not isinstance(operand, Label)]
        for register in _registers(plain):
            self._check_held(register, where)
        if encodings.knows(mnemonic):
            try:
                text, encoding, extensions = encodings.assemble(mnemonic, plain)
            except SyntaxError as error:
                raise DslError(f"{where}: {error}") from error
            self._check_level(mnemonic, extensions, where)
            return Instruction(text, encoding, extensions)
        kind = getattr(x86_64(), mnemonic, None)
        if not (isinstance(kind, type) and issubclass(kind, x86_64().instructions.Instruction)):
            raise DslError(f"{where}: PeachPy knows no instruction {mnemonic}")
        if issubclass(kind, x86_64().generic.BranchInstruction):
            return Instruction(text, None, frozenset())
        try:
            instruction = kind(*map(to_peachpy, plain))
        except (SyntaxError, TypeError, ValueError) as error:
            raise DslError(f"{where}: {error}") from error
        extensions = frozenset(extension.name for extension in instruction.isa_extensions)
        self._check_level(mnemonic, extensions, where)
        # PeachPy takes immediates from 128 to 255 of IMUL for bytes, which are signed.
        known = mnemonic != "IMUL" and all(_has_known_encoding(operand) for operand in plain)
        return Instruction(text, bytes(instruction.encode()) if known else None, extensions)

    def _check_level(self, mnemonic: str, extensions: frozenset[str], where: str) -> None:
        for name in sorted(extensions - self.level.extensions):
            raise LevelError(f"{where}: {mnemonic} needs {name}, which level {self.level.name} does not have")

    def _check_held(self, register: Register, where: str) -> None:
        whole = {"general": "r64", "vector": self.level.vector_kind}.get(register.file, register.kind)
        if not self._file(register).is_live(register.as_kind(whole)):
            raise DslError(f"{where}: {register} is used but not held")

    # Places and loops

    def label(self, role: str) -> Label:
        """A label to be placed later; its name is its role, so each role is used once."""
        if role in self._labels:
            raise DslError(f"{self.spec.name}: two labels are called {role}")
        self._labels.add(role)
        return Label(f".L{role}")

    def place(self, label: Label, align: int = 1) -> None:
        """Puts a label here, at a multiple of `align` bytes."""
        if align < 1 or align & (align - 1):
            raise DslError(f"{self.spec.name}: {label} cannot be aligned to {align} bytes, which is no power of two")
        if align > 1:
            self._items.append(f"\t.p2align {align.bit_length() - 1}")
        self._placed.add(label.name)
        self._items.append(f"{label}:")

    @contextmanager
    def repeat(self, role: str, branch: str, align: int = 32) -> Iterator[None]:
        """Repeats the block, at least once, as long as the branch at its end is taken."""
        top = self.label(role)
        self.place(top, align)
        start = len(self._items)
        yield
        getattr(self, branch)(top)
        self._loops.append((role, start, len(self._items)))

    @contextmanager
    def loop(self, role: str, counter: Register, align: int = 32) -> Iterator[None]:
        """Repeats the block `counter` times, at least once; the counter ends as 0."""
        with self.repeat(role, "JNZ", align):
            yield
            self.SUB(counter, 1)

    def ret(self) -> None:
        """Returns to the caller: registers restored, upper halves of the vector registers cleared."""
        self._items.append(_RETURN)

    def comment(self, *lines: str) -> None:
        """A comment above the instructions that follow, most often the formula that they compute."""
        self._items.append("")
        self._items.extend(f"\t/* {line} */" for line in lines)

    def interleave(self, blocks: Sequence[Callable[[], None]]) -> None:
        """Blocks of equally many instructions, the first of each, then the second of each, and so on.

        The processor holds only so many instructions that wait for others; those of one long chain leave it less to do
        than those of several.
        """
        start = len(self._items)
        streams = []
        for block in blocks:
            block()
            streams.append(self._items[start:])
            del self._items[start:]
        self._items.extend(item for items in zip(*streams, strict=True) for item in items)

    # Constants

    def constant(self, role: str, words: tuple[int, ...], alignment: int) -> str:
        """The label of read-only 32-bit words; equal ones are stored once, under the first role given."""
        found = self._constants.setdefault(words, Constant(f".L{role}", words, alignment))
        return found.label

    # The whole

    def finish(self, contract: Contract, source: str) -> Kernel:
        """The finished kernel."""
        missing = {f".L{role}" for role in self._labels} - self._placed
        if missing:
            raise DslError(f"{self.spec.name}: labels never placed: {', '.join(sorted(missing))}")
        saved = [register for register in CALLEE_SAVED if register in self._general.used]
        items = [*self._prologue(saved)]
        for item in self._items:
            items.extend(self._epilogue(saved) if isinstance(item, _Return) else [item])
        return Kernel(
            spec=self.spec,
            signature=self._signature,
            contract=contract,
            body=tuple(f"\t{item.text}" if isinstance(item, Instruction) else item for item in items),
            instructions=tuple(item for item in items if isinstance(item, Instruction)),
            loops=tuple(self._inner_loops()),
            constants=tuple(self._constants.values()),
            register_map=(*self._general.map, *self._vectors.map, *self._masks.map, *self._tiles.map),
            source=source,
        )

    def _inner_loops(self) -> Iterator[Loop]:
        for role, start, end in self._loops:
            if not any(start < other < end for _, other, _ in self._loops):
                yield Loop(role, tuple(item for item in self._items[start:end] if isinstance(item, Instruction)))

    def _prologue(self, saved: list[Register]) -> Iterator[Instruction | str]:
        for register in saved:
            yield self._frame_instruction("PUSH", register)
            yield "\t.cfi_adjust_cfa_offset 8"
            yield f"\t.cfi_rel_offset {register}, 0"
        if self._frame_size:
            yield self._frame_instruction("MOV", FRAME_POINTER, STACK_POINTER)
            yield f"\t.cfi_def_cfa_register {FRAME_POINTER}"
            yield self._frame_instruction("SUB", STACK_POINTER, self._frame_size)
            yield self._frame_instruction("AND", STACK_POINTER, -64)

    def _epilogue(self, saved: list[Register]) -> Iterator[Instruction | str]:
        yield ""
        if saved:
            yield "\t.cfi_remember_state"
        if self._frame_size:
            yield self._frame_instruction("MOV", STACK_POINTER, FRAME_POINTER)
            yield f"\t.cfi_def_cfa_register {STACK_POINTER}"
        for register in reversed(saved):
            yield self._frame_instruction("POP", register)
            yield "\t.cfi_adjust_cfa_offset -8"
            yield f"\t.cfi_restore {register}"
        if self._vectors.used:
            yield self._frame_instruction("VZEROUPPER")
        yield self._frame_instruction("RET")
        if saved:
            yield "\t.cfi_restore_state"

    def _frame_instruction(self, mnemonic: str, *operands: Register | int) -> Instruction:
        # The saved registers need not be held any more where the kernel returns.
        instruction = getattr(x86_64(), mnemonic)(*map(to_peachpy, operands))
        text = f"{mnemonic.lower()} {', '.join(map(str, operands))}".rstrip()
        extensions = frozenset(extension.name for extension in instruction.isa_extensions)
        return Instruction(text, bytes(instruction.encode()), extensions)


def _has_known_encoding(operand: Operand) -> bool:
    """Whether PeachPy can tell the bytes: not before a symbol has its place.

    Nor for a broadcast with a displacement, which PeachPy scales by the vector's size where the element's is meant.
    """
    return not (isinstance(operand, Memory) and (operand.symbol or (operand.broadcast and operand.displacement)))


def _registers(operands: list[Operand]) -> Iterator[Register]:
    for operand in operands:
        if isinstance(operand, Memory):
            yield from operand.registers
        elif isinstance(operand, Register):
            yield operand
            if operand.mask:
                yield operand.mask.register
