"""A family of kernels: one skeleton, a table of the shapes made from it, and its row format in kernels.inc."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gen.dsl import Kernel
from gen.spec import KernelSpec


@dataclass(frozen=True)
class Family:
    """A family of kernels.

    `build` makes a kernel from its description. `macro` and `columns` are the macro of kernels.inc and the names of its
    arguments, `row` gives their values. `options` are the choices that a description may override, with their defaults.
    """

    macro: str
    columns: tuple[str, ...]
    build: Callable[[KernelSpec], Kernel]
    row: Callable[[KernelSpec], tuple[str | int, ...]]
    kernels: tuple[KernelSpec, ...]
    options: Mapping[str, int]

    @property
    def name(self) -> str:
        """What the names of its kernels begin with."""
        first, *others = dict.fromkeys(spec.operation for spec in self.kernels)
        return f"{first.partition('_')[0]}_..." if others else first

    @property
    def summary(self) -> str:
        """What its kernels do: the first line of the module that makes them."""
        return (inspect.getdoc(inspect.getmodule(self.build)) or "").partition("\n")[0]

    def line(self, spec: KernelSpec) -> str:
        """A kernel's line of kernels.inc."""
        return f"{self.macro}({', '.join(map(str, self.row(spec)))})"
