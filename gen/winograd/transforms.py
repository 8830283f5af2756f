"""From a matrix to straight-line code: y = M x for vectors x[0], x[1], ... of registers.

Points come in pairs +-a, so that the rows of B^T and G come in pairs whose elements differ in sign at most, and so do
the columns of A^T. Both kinds of pairs are found here; what they share is computed once.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gen.dsl import Assembler, Memory, Register, VectorUnit
from gen.winograd.matrices import Matrix, to_float32


@dataclass(frozen=True)
class Step:
    """value[target] = value[left] + factor * value[right], rounded once; without `left`, factor * value[right]."""

    target: int
    left: int | None
    factor: Fraction
    right: int

    @property
    def operands(self) -> tuple[int, ...]:
        """The values that it takes."""
        return (self.right,) if self.left is None else (self.left, self.right)

    @property
    def constant(self) -> Fraction | None:
        """The constant that has to be in a register: multiply-adds exist for either sign."""
        if self.left is None:
            return self.factor
        return abs(self.factor) if abs(self.factor) != 1 else None


@dataclass(frozen=True)
class Program:
    """Straight-line code. The values are numbered, inputs first; `outputs[i]` is the number of y[i]."""

    inputs: int
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @property
    def constants(self) -> list[Fraction]:
        """The constants that it needs, in order."""
        return list(dict.fromkeys(c for step in self.steps if (c := step.constant) is not None))


class _Builder:
    """A program in the making."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.steps: list[Step] = []

    def step(self, left: int | None, factor: Fraction, right: int) -> int:
        """A new value: left + factor * right."""
        self.steps.append(Step(self.inputs + len(self.steps), left, factor, right))
        return self.steps[-1].target

    def sum(self, terms: Mapping[int, Fraction]) -> int:
        """The value of the sum of factor * value over the terms."""
        rest = dict(terms)
        first = max((value for value in rest if rest[value] == 1), default=None)
        if first is None:
            value, factor = rest.popitem()
            total = self.step(None, factor, value)
        else:
            total = first
            del rest[first]
        for value in sorted(rest, reverse=True):
            total = self.step(total, rest[value], value)
        return total


def program(matrix: Matrix) -> Program:
    """Code for y = M x."""
    builder = _Builder(len(matrix[0]))
    rows = [{value: factor for value, factor in enumerate(row) if factor} for row in matrix]
    for p, q in _column_pairs(matrix):
        # f x[p] + f x[q] = f (x[p] + x[q]), f x[p] - f x[q] = f (x[p] - x[q])
        plus, minus = (builder.step(p, Fraction(sign), q) for sign in (1, -1))
        for row in rows:
            if p in row:
                factor, other = row.pop(p), row.pop(q)
                row[plus if factor == other else minus] = factor
    outputs: dict[int, int] = {}
    for i, row in enumerate(rows):
        if i in outputs:
            continue
        partner = next((j for j in range(i + 1, len(rows)) if _is_row_pair(row, rows[j])), None)
        if partner is None:
            outputs[i] = builder.sum(row)
            continue
        # y[i] = even + f odd, y[partner] = even - f odd
        even = {value: factor for value, factor in row.items() if rows[partner][value] == factor}
        odd = {value: factor for value, factor in row.items() if value not in even}
        f = next(f for f in (*sorted(odd.values(), reverse=True), Fraction(1)) if _exact(x / f for x in odd.values()))
        even_sum, odd_sum = builder.sum(even), builder.sum({value: factor / f for value, factor in odd.items()})
        outputs[i], outputs[partner] = (builder.step(even_sum, factor, odd_sum) for factor in (f, -f))
    return Program(builder.inputs, tuple(builder.steps), tuple(outputs[i] for i in range(len(rows))))


def _exact(values: Iterable[Fraction]) -> bool:
    """Whether single precision holds them."""
    return all(value == to_float32(value) for value in values)


def _column_pairs(matrix: Matrix) -> list[tuple[int, int]]:
    """Columns that differ in sign only, where more rows than two have them."""
    columns = list(zip(*matrix, strict=True))
    return [
        (p, q)
        for p in range(len(columns))
        for q in range(p + 1, len(columns))
        if list(map(abs, columns[p])) == list(map(abs, columns[q])) and sum(map(bool, columns[p])) > 2
    ]


def _is_row_pair(row: Mapping[int, Fraction], other: Mapping[int, Fraction]) -> bool:
    """Whether two rows differ in sign only, and in the sign of some elements but not of all."""
    same = {row[value] == other.get(value) for value in row}
    return row.keys() == other.keys() and all(abs(row[v]) == abs(other[v]) for v in row) and same == {True, False}


def row_groups(matrix: Matrix) -> list[tuple[int, ...]]:
    """The rows in order, those of a pair, which follow one another, together."""
    groups: list[tuple[int, ...]] = []
    rows = [{value: factor for value, factor in enumerate(row) if factor} for row in matrix]
    while (i := sum(map(len, groups))) < len(rows):
        paired = i + 1 < len(rows) and _is_row_pair(rows[i], rows[i + 1])
        groups.append((i, i + 1) if paired else (i,))
    return groups


def formulas(matrix: Matrix, y: str, x: str) -> tuple[str, ...]:
    """y = M x as text, a line for each row."""
    lines = []
    for i, row in enumerate(matrix):
        terms: list[str] = []
        for j, factor in enumerate(row):
            if factor:
                sign = ("-" if factor < 0 else "") if not terms else (" - " if factor < 0 else " + ")
                terms.append(f"{sign}{abs(factor)} {x}{j}" if abs(factor) != 1 else f"{sign}{x}{j}")
        lines.append(f"{y}{i} = {''.join(terms)}")
    return tuple(lines)


class Constants:
    """The constants of some programs, each in every lane of a register."""

    def __init__(self, v: VectorUnit, programs: Sequence[Program]) -> None:
        values = list(dict.fromkeys(value for program in programs for value in program.constants))
        words = tuple(struct.unpack("<I", struct.pack("<f", value))[0] for value in values)
        self._registers = {value: v.a.vector(f"[{value}]", "constant") for value in values}
        table = v.a.constant("constants", words, 4) if words else None
        for place, register in enumerate(self._registers.values()):
            v.broadcast(register, Memory(symbol=table, displacement=4 * place))

    def __getitem__(self, value: Fraction) -> Register:
        return self._registers[value]


Load = Callable[[int], Register]
Store = Callable[[int, Register], None]


def emit(a: Assembler, code: Program, constants: Constants, load: Load, store: Store | None = None) -> list[Register]:
    """Writes the code down.

    load(i) gives the register of x[i], when it is first needed; it is given back after its last use. store(i, y) gets
    rid of y[i] when it is known. Without `store`, the registers of y are returned, and stay held.
    """
    uses = Counter(code.outputs)
    for step in code.steps:
        uses.update(step.operands)
    held: dict[int, Register] = {}

    def value(number: int) -> Register:
        if number not in held:
            held[number] = load(number)
        return held[number]

    def finish(number: int) -> None:
        for i, output in enumerate(code.outputs):
            if store and output == number:
                store(i, value(number))
                uses[number] -= 1
                if not uses[number]:
                    a.release(held[number])

    for step in code.steps:
        registers = [value(number) for number in step.operands]
        uses.subtract(step.operands)
        dead = [number for number in step.operands if not uses[number]]
        # The result takes the place of an operand that is not needed any more.
        target = held[dead[0]] if dead else a.vector("value", "of a transform")
        _emit_step(a, step, target, registers, constants)
        a.release(*(held[number] for number in dead[1:]))
        held[step.target] = target
        finish(step.target)
    for number in range(code.inputs):
        finish(number)
    return [] if store else [value(number) for number in code.outputs]


def _emit_step(a: Assembler, step: Step, target: Register, registers: Sequence[Register], constants: Constants) -> None:
    """The instructions of a step: target = left + factor * right; the target may be one of those."""
    if step.left is None:
        a.VMULPS(target, registers[0], constants[step.factor])
    elif step.constant is None:
        (a.VADDPS if step.factor > 0 else a.VSUBPS)(target, *registers)
    else:
        left, right = registers
        factor = constants[step.constant]
        if target == right:
            (a.VFMADD213PS if step.factor > 0 else a.VFNMADD213PS)(target, factor, left)
        else:
            if target != left:
                a.VMOVAPS(target, left)
            (a.VFMADD231PS if step.factor > 0 else a.VFNMADD231PS)(target, right, factor)
