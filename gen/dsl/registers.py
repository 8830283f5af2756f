"""Which registers a kernel holds, and what for."""

from __future__ import annotations

from gen.dsl.errors import DslError, RegisterBudgetError
from gen.dsl.kernel import RegisterUse
from gen.dsl.operands import Register

ARGUMENTS = tuple(Register("r64", number) for number in (7, 6, 2, 1, 8, 9))
CALLEE_SAVED = tuple(Register("r64", number) for number in (3, 5, 12, 13, 14, 15))
_GENERAL = (*ARGUMENTS, *(Register("r64", number) for number in (0, 10, 11)), *CALLEE_SAVED)


class RegisterFile:
    """The registers of one kind, handed out by name, lowest first, and taken back by `release`."""

    def __init__(self, kernel: str, what: str, registers: tuple[Register, ...]) -> None:
        self._kernel = kernel
        self._what = what
        self._free = list(registers)
        self._order = {register: place for place, register in enumerate(registers)}
        self._live: dict[Register, RegisterUse] = {}
        self.used: list[Register] = []
        self.map: list[RegisterUse] = []

    def __contains__(self, register: Register) -> bool:
        return register in self._order

    def allocate(self, name: str, why: str, count: int) -> tuple[Register, ...]:
        """`count` registers for one purpose; raises RegisterBudgetError when there are not enough."""
        if count > len(self._free):
            raise RegisterBudgetError(self._complaint(name, why, count))
        return self._take(name, why, tuple(self._free[:count]))

    def take(self, name: str, why: str, register: Register) -> Register:
        """One register in particular, which is free."""
        return self._take(name, why, (register,))[0]

    def release(self, register: Register) -> None:
        """Gives a register back."""
        del self._live[register]
        self._free.append(register)
        self._free.sort(key=lambda free: self._order[free])

    def is_live(self, register: Register) -> bool:
        """Whether the register is held now."""
        return register in self._live

    def free_count(self) -> int:
        """How many registers are left."""
        return len(self._free)

    def _take(self, name: str, why: str, registers: tuple[Register, ...]) -> tuple[Register, ...]:
        use = RegisterUse(_ranges(registers, self._order), name, why)
        for register in registers:
            if self.is_live(register):
                raise DslError(
                    f"{self._kernel}: {register} asked for as {name}, but held as {self._live[register].name}"
                )
            self._free.remove(register)
            self._live[register] = use
            if register not in self.used:
                self.used.append(register)
        self.map.append(use)
        return registers

    def _complaint(self, name: str, why: str, count: int) -> str:
        uses: dict[RegisterUse, int] = {}
        for use in self._live.values():
            uses[use] = uses.get(use, 0) + 1
        live = "".join(f"\n  {held:2} {use.name}: {use.why}" for use, held in uses.items())
        return (
            f"{self._kernel}: {len(self._live) + count} {self._what} registers asked for, {len(self._order)} exist\n"
            f"  {count:2} {name}: {why}  <- asked for now, {len(self._free)} left{live}"
        )


def general_registers(kernel: str) -> RegisterFile:
    """The general-purpose registers: arguments, scratch, callee-saved. rsp is never handed out."""
    return RegisterFile(kernel, "general-purpose", _GENERAL)


def vector_registers(kernel: str, kind: str, count: int) -> RegisterFile:
    """The vector registers of a level."""
    return RegisterFile(kernel, "vector", tuple(Register(kind, number) for number in range(count)))


def _ranges(registers: tuple[Register, ...], order: dict[Register, int]) -> str:
    """The registers as text; neighbours as `first-last`."""
    runs: list[list[Register]] = []
    for register in registers:
        if runs and register.kind != "r64" and order[register] == order[runs[-1][-1]] + 1:
            runs[-1].append(register)
        else:
            runs.append([register])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
