"""Which registers a kernel holds, and what for."""

from __future__ import annotations

from collections import Counter

from gen.dsl.errors import DslError, RegisterBudgetError
from gen.dsl.kernel import RegisterUse
from gen.dsl.operands import Register

ARGUMENTS = tuple(Register("r64", number) for number in (7, 6, 2, 1, 8, 9))
CALLEE_SAVED = tuple(Register("r64", number) for number in (3, 5, 12, 13, 14, 15))
STACK_POINTER, FRAME_POINTER = Register("r64", 4), Register("r64", 5)
_GENERAL = (*ARGUMENTS, *(Register("r64", number) for number in (0, 10, 11)), *CALLEE_SAVED)


class RegisterFile:
    """The registers of one kind, handed out by name, lowest first, and taken back by `release`."""

    def __init__(self, kernel: str, what: str, registers: tuple[Register, ...]) -> None:
        self._kernel = kernel
        self._what = what
        self._order = {register: place for place, register in enumerate(registers)}
        self._live: dict[Register, tuple[str, str]] = {}
        self._uses: dict[tuple[str, str], list[str]] = {}
        self.used: set[Register] = set()

    @property
    def free(self) -> tuple[Register, ...]:
        """The registers that are left."""
        return tuple(register for register in self._order if register not in self._live)

    @property
    def map(self) -> tuple[RegisterUse, ...]:
        """What registers were held for, in the order in which they were asked for."""
        return tuple(RegisterUse(", ".join(runs), name, why) for (name, why), runs in self._uses.items())

    def is_live(self, register: Register) -> bool:
        """Whether the register is held now."""
        return register in self._live

    def allocate(self, name: str, why: str, count: int) -> tuple[Register, ...]:
        """`count` registers for one purpose; raises RegisterBudgetError when there are not enough."""
        free = self.free
        if count > len(free):
            raise RegisterBudgetError(self._complaint(name, why, count))
        return self.take(name, why, free[:count])

    def take(self, name: str, why: str, registers: tuple[Register, ...]) -> tuple[Register, ...]:
        """These registers in particular, which are free."""
        for register in registers:
            self._live[register] = (name, why)
            self.used.add(register)
        if registers:
            runs = self._uses.setdefault((name, why), [])
            runs += [run for run in self._runs(registers) if run not in runs]
        return registers

    def release(self, register: Register) -> None:
        """Gives a register back."""
        if register not in self._live:
            raise DslError(f"{self._kernel}: {register} is given back but not held")
        del self._live[register]

    def _complaint(self, name: str, why: str, count: int) -> str:
        uses = Counter(self._live.values())
        live = "".join(f"\n  {held:2} {use}: {reason}" for (use, reason), held in uses.items())
        asked = len(self._live) + count
        return (
            f"{self._kernel}: {asked} {self._what} registers asked for at once, {len(self._order)} exist{live}\n"
            f"  {count:2} {name}: {why}  <- asked for last"
        )

    @staticmethod
    def _runs(registers: tuple[Register, ...]) -> list[str]:
        """The registers as text; neighbours, but for general-purpose ones, as `first-last`."""
        runs: list[list[Register]] = []
        for register in registers:
            if runs and register.file != "general" and register.number == runs[-1][-1].number + 1:
                runs[-1].append(register)
            else:
                runs.append([register])
        return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def general_registers(kernel: str) -> RegisterFile:
    """The general-purpose registers: arguments, scratch, callee-saved. rsp is handed out with a frame only."""
    return RegisterFile(kernel, "general-purpose", _GENERAL)


def vector_registers(kernel: str, kind: str, count: int) -> RegisterFile:
    """The vector registers of a level."""
    return RegisterFile(kernel, "vector", tuple(Register(kind, number) for number in range(count)))


def mask_registers(kernel: str) -> RegisterFile:
    """The mask registers; k0 stands for no mask in most places and is never handed out."""
    return RegisterFile(kernel, "mask", tuple(Register("k", number) for number in range(1, 8)))


def tile_registers(kernel: str) -> RegisterFile:
    """The tile registers."""
    return RegisterFile(kernel, "tile", tuple(Register("tmm", number) for number in range(8)))
