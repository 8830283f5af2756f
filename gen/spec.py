"""What a kernel is: its operation, types, tile, level and options, and the one name that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class KernelSpec:
    """A kernel, described.

    `types` and `tile` are as the name shows them, e.g. ("f32",) and (6, 16). `options` holds the choices that differ
    from the family's defaults (unrolling, prefetch distances), sorted by name; they change speed, never results.
    `extensions` are those that the kernel needs beside its level's, by PeachPy's names.
    """

    operation: str
    types: tuple[str, ...]
    tile: tuple[int, ...]
    level: str
    options: tuple[tuple[str, int], ...] = ()
    extensions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The kernel's name: its symbol, its file, its test and its benchmark."""
        tile = "x".join(map(str, self.tile))
        options = (f"{key}{value}" for key, value in self.options)
        return "_".join(part for part in (self.operation, *self.types, tile, self.level, *options) if part)

    def with_options(self, **options: int) -> KernelSpec:
        """The same kernel with other options."""
        return replace(self, options=tuple(sorted({**dict(self.options), **options}.items())))

    def option(self, name: str, default: int) -> int:
        """The value of an option."""
        return dict(self.options).get(name, default)
