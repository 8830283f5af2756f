"""A function of each element of a run, of which a scale, a vector of weights and others are taken beforehand.

Which of the optional operands there are is asked once; each combination has loops of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product

from gen.contract import MAP_KERNEL, MAP_RUN
from gen.dsl import Assembler, Contract, Kernel, Label, Memory, Register, at, vector_unit
from gen.elementwise.functions import FUNCTIONS, Scratch
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec

OPTIONS = {
    "vectors": 0,  # of a pass of the loop, in turn; 0: as many as registers allow, 2 with AVX2 and 4 with AVX-512
    "align": 32,  # of the loop, bytes
}

_PREFIX = "map_"
_OPERANDS = ("weight", "addend", "factor")


@dataclass(frozen=True)
class _Operands:
    """Which of the optional operands there are."""

    weight: bool
    addend: bool
    factor: bool

    @property
    def name(self) -> str:
        """For labels."""
        return "_".join(name for name in _OPERANDS if getattr(self, name)) or "plain"


class _Map:
    """One kernel in the making."""

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.spec = spec
        self.a = a = Assembler(spec, level, MAP_KERNEL)
        self.v = vector_unit(a)
        self.vectors = spec.option("vectors", OPTIONS["vectors"]) or level.vector_registers // 8
        self.align = spec.option("align", OPTIONS["align"])
        function, self.formula = FUNCTIONS[spec.operation.removeprefix(_PREFIX)]
        run = a.argument("run")
        self.ends = {
            name: a.general(
                f"{name}_end", f"end of {name}, or NULL where it is" if name in _OPERANDS else f"end of {name}"
            )
            for name in ("x", "y", *_OPERANDS)
        }
        self.index = a.general("index", "the place in all of them, in elements before their ends")
        self.left, self.spare = a.generals("left", "elements that are left, for the mask", 2)
        self.scale, self.shift = a.vector("scale", "scale"), a.vector("shift", "shift")
        for name, register in self.ends.items():
            a.MOV(register, at(run, MAP_RUN.offset(name)))
        a.MOV(self.index, at(run, MAP_RUN.offset("n")))
        self.v.broadcast(self.scale, at(run, MAP_RUN.offset("scale")))
        self.v.broadcast(self.shift, at(run, MAP_RUN.offset("shift")))
        self.function = function(self.v, [at(run, MAP_RUN.offset("parameter") + 4 * i) for i in range(2)])
        self.t = a.vectors("t", "as in the formula", self.vectors)
        self.scratch = [self.scratch_of_a_vector() for _ in range(self.vectors)]

    def scratch_of_a_vector(self) -> Scratch:
        """What its function asks for; two vectors at least, for the optional operands."""
        vectors = self.a.vectors(
            "scratch", "a vector's own: operands, and what its function needs", max(2, self.function.scratch)
        )
        masks = self.v.masks("kept", "of a vector's function", 1) if self.function.masks else (None,)
        return Scratch(vectors, masks[0])

    def place(self, name: str, displacement: int) -> Memory:
        """A vector of x, y or an operand, so many bytes after the index."""
        return at(self.ends[name], displacement, index=self.index, scale=4)

    def load(self, dst: Register, name: str, displacement: int, mask: Register | None) -> None:
        """dst = a vector of x or of an operand, or what the mask holds of it"""
        if mask is None:
            self.v.load(dst, self.place(name, displacement))
        else:
            self.v.load_masked(dst, mask, self.place(name, displacement))

    def step(self, operands: _Operands, vector: int = 0, displacement: int = 0, mask: Register | None = None) -> None:
        """A vector, so many bytes after the index."""
        a, v, t, scratch = self.a, self.v, self.t[vector], self.scratch[vector]
        operand, other = scratch.vectors[:2]
        self.load(t, "x", displacement, mask)
        a.VFMADD213PS(t, self.scale, self.shift)
        if operands.weight:
            self.load(operand, "weight", displacement, mask)
        if operands.addend:
            self.load(other, "addend", displacement, mask)
        if operands.weight and operands.addend:
            a.VFMADD213PS(t, operand, other)
        elif operands.weight:
            v.multiply(t, t, operand)
        elif operands.addend:
            v.add(t, t, other)
        self.function(t, Scratch(scratch.vectors[: self.function.scratch], scratch.mask))
        if operands.factor:
            self.load(operand, "factor", displacement, mask)
            v.multiply(t, t, operand)
        if mask is None:
            v.store(self.place("y", displacement), t)
        else:
            v.store_masked(self.place("y", displacement), mask, t)

    def loops(self, operands: _Operands, done: Label) -> None:
        """Passes of whole vectors, then what is left, masked."""
        a, elements = self.a, self.v.lanes * self.vectors
        rest = a.label(f"{operands.name}_rest")
        given = " and ".join(name for name in _OPERANDS if getattr(operands, name)) or "no operand"
        a.comment(f"with {given}: {elements} elements a pass")
        a.ADD(self.index, elements)
        a.JG(rest)
        with a.repeat(f"{operands.name}_pass", "JLE", self.align):
            places = [self.v.bytes * (vector - self.vectors) for vector in range(self.vectors)]
            a.interleave([partial(self.step, operands, *vector) for vector in enumerate(places)])
            a.ADD(self.index, elements)
        a.comment(f"the elements that are left, up to {self.v.lanes} at a time")
        a.place(rest)
        a.SUB(self.index, elements)
        a.JZ(done)
        with a.repeat(f"{operands.name}_part", "JL", 1):
            a.MOV(self.left, self.index)
            a.NEG(self.left)
            mask = self.v.tail_mask("mask", self.left, self.spare)
            self.step(operands, mask=mask)
            a.release(mask)
            a.ADD(self.index, self.v.lanes)
        a.JMP(done)

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a = self.a
        done = a.label("done")
        choices = [_Operands(*given) for given in product((False, True), repeat=3)]
        labels = {choice: a.label(choice.name) for choice in choices}
        a.TEST(self.index, self.index)
        a.JZ(done)
        a.comment("which operands there are")
        self.branch(labels, {})
        for choice in choices:
            a.place(labels[choice])
            a.comment("places become ends")
            for name, register in self.ends.items():
                if name not in _OPERANDS or getattr(choice, name):
                    a.LEA(register, at(register, index=self.index, scale=4))
            a.NEG(self.index)
            self.loops(choice, done)
        a.place(done)
        a.ret()
        return a.finish(
            Contract(
                formula=(
                    "t = x[i] * scale + shift;  t = t * weight[i] + addend[i], each where it is not NULL",
                    f"y[i] = f(t), times factor[i] where factor is not NULL;  f(t) = {self.formula}",
                ),
                extents=(
                    "i < n, n >= 0. All aligned to 4 bytes. y may be any of the other arrays,",
                    "and overlaps none of them otherwise.",
                ),
            ),
            "gen/elementwise/map.py",
        )

    def branch(self, labels: dict[_Operands, Label], known: dict[str, bool]) -> None:
        """Jumps to the loops for the operands that there are, some of which are known."""
        a = self.a
        if len(known) == len(_OPERANDS):
            a.JMP(labels[_Operands(**known)])
            return
        name = _OPERANDS[len(known)]
        absent = a.label("_".join(("without", name, *(f"{k}{int(given)}" for k, given in known.items()))))
        a.TEST(self.ends[name], self.ends[name])
        a.JZ(absent)
        self.branch(labels, {**known, name: True})
        a.place(absent)
        self.branch(labels, {**known, name: False})


def build(spec: KernelSpec) -> Kernel:
    """The kernel of the function that `spec.operation` names behind map_."""
    return _Map(spec, LEVELS[spec.level]).kernel()


KERNELS = tuple(
    KernelSpec(_PREFIX + function, ("f32",), (), level) for level in ("avx2", "avx512") for function in FUNCTIONS
)

FAMILY = Family(
    macro="SDGEN_MAP_KERNEL",
    columns=("function", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.operation.removeprefix(_PREFIX), spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
