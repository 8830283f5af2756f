"""Which variants a sweep has: tiles, options of the family, and parameters of the workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from gen import registry
from gen.dsl import DslError
from gen.family import Family
from gen.isa import LEVELS
from gen.native.objects import family_of
from gen.spec import KernelSpec
from gen.sweep.errors import SweepError
from gen.sweep.workloads import WORKLOADS, Workload

# What is tried of each option where nothing else is asked for, beside the family's default.
CHOICES = {
    "unroll": (1, 2, 4, 8),
    "align": (16, 32, 64),
    "prefetch_a": (0, 256, 512),
    "prefetch_b": (0, 512, 1024),
    "prefetch": (0, 1),
    "vectors": (1, 2, 3, 4),
}

# Of the families whose tiles may be others than those of their tables, those tried where none is named.
TILES = {
    ("gemm", "avx2"): ((6, 16), (5, 16), (4, 24)),
    ("gemm", "avx512"): ((6, 32), (6, 64), (8, 48)),
    ("gemm16", "avx2"): ((6, 16), (5, 16), (4, 24)),
    ("gemm16", "avx512"): ((6, 32), (6, 64), (8, 48)),
    ("scores", "avx2"): ((6, 16),),
    ("scores", "avx512"): ((6, 32), (6, 64)),
}

_MOST = 2**31 - 1


@dataclass(frozen=True)
class Variant:
    """A kernel and the parameters of what it is timed with."""

    spec: KernelSpec
    parameters: tuple[tuple[str, int], ...]

    @property
    def options(self) -> dict[str, int]:
        """Every option of the family, with the value that the kernel has."""
        return {**family_of(self.spec).options, **dict(self.spec.options)}

    @property
    def is_default(self) -> bool:
        """Whether the kernel is as it is built for the runtime."""
        return not self.spec.options and self.spec in registry.specs([self.spec.level])

    @property
    def label(self) -> str:
        """The kernel's name and the parameters."""
        return " ".join((self.spec.name, *(f"{name}={value}" for name, value in self.parameters)))


def parse_tiles(text: str) -> tuple[tuple[int, ...], ...]:
    """Tiles as `--tile` takes them: 6x16,4x24."""
    parts = [tile.split("x") for tile in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) < 1000 for tile in parts for part in tile):
        raise SweepError(f"--tile {text}: tiles are ROWSxCOLUMNS, or WIDTH alone, with commas between them: 6x16,4x24")
    return tuple(tuple(map(int, tile)) for tile in parts)


def variants(
    name: str, levels: Iterable[str], settings: Mapping[str, Sequence[int]], tiles: Sequence[tuple[int, ...]]
) -> list[Variant]:
    """The variants of a kernel, or of an operation's kernels; raises SweepError where the arguments make no sense.

    `settings` are values of options and parameters in place of those that are tried otherwise; likewise `tiles`.
    """
    found: dict[Variant, None] = {}  # each once, in order
    for plain in _plain(name, tuple(levels), tiles):
        family, workload = family_of(plain), workload_of(plain)
        _check(name, family, workload, settings)
        axes = {option: _values(option, family, settings) for option in family.options}
        parameters = {key: tuple(settings.get(key, (default,))) for key, default in workload.parameters.items()}
        for values in product(*parameters.values()):
            chosen = tuple(zip(parameters, values, strict=True))
            for options in product(*axes.values()):
                pairs = zip(axes, options, strict=True)
                others = {key: value for key, value in pairs if value != family.options[key]}
                found.setdefault(Variant(plain.with_options(**others), chosen))
    return sorted(found, key=lambda variant: not variant.is_default)  # the defaults first


def workload_of(spec: KernelSpec) -> Workload:
    """What a kernel is checked and timed with."""
    return WORKLOADS["map" if spec.operation.startswith("map_") else spec.operation]


def operations() -> list[str]:
    """The operations that can be swept."""
    names = dict.fromkeys(spec.operation for family in registry.FAMILIES for spec in family.kernels if family.options)
    return [name for name in names if name in WORKLOADS or name.startswith("map_")]


def _values(option: str, family: Family, settings: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """The values of an option, the default first unless others were asked for."""
    default = family.options[option]
    return tuple(settings[option]) if option in settings else tuple(dict.fromkeys((default, *CHOICES[option])))


def _check(name: str, family: Family, workload: Workload, settings: Mapping[str, Sequence[int]]) -> None:
    known = {**family.options, **workload.parameters}
    for key, values in settings.items():
        if key not in known:
            there = ", ".join(f"{option} ({default})" for option, default in known.items())
            raise SweepError(f"{name} has no option {key!r}; there are, with their defaults: {there}")
        least = 1 if key in workload.parameters or key == "align" else 0
        for value in values:
            if not least <= value <= workload.most.get(key, _MOST):
                most = workload.most.get(key, _MOST)
                raise SweepError(f"--set {key}={value}: the value has to be from {least} to {most}")
            if key == "align" and value & (value - 1):
                raise SweepError(f"--set align={value}: the value has to be a power of two")


def _plain(name: str, levels: tuple[str, ...], tiles: Sequence[tuple[int, ...]]) -> list[KernelSpec]:
    """The kernels with default options: one by name, or those of an operation, with its types or without."""
    every = [spec for spec in registry.specs(LEVELS) if spec.operation in operations()]
    named = [spec for spec in every if spec.name == name]
    if named and named[0].level not in levels:
        raise SweepError(f"{name} is of level {named[0].level}, but asked for is {', '.join(levels)}")
    found = named or [spec for spec in every if name in _family_names(spec)]
    if not found:
        exists = any(name in (spec.name, *_family_names(spec)) for spec in registry.specs(LEVELS))
        what = f"{name} has no options to vary" if exists else f"unknown kernel or family {name!r}"
        there = f"{_families(every)}, and the kernels of `python -m gen list` whose names begin so"
        raise SweepError(f"{what}; with options to vary there are {there}")
    kinds = dict.fromkeys((spec.operation, spec.types, spec.level) for spec in found if spec.level in levels)
    if not named or tiles:
        found = [
            KernelSpec(operation, types, tile, level)
            for operation, types, level in kinds
            for tile in tiles or TILES.get((operation, level)) or _table(operation, types, level)
        ]
    if not tiles:
        return found
    faults = {spec: _fault_of_tile(spec) for spec in found}
    for tile in tiles:  # which some of the kinds may have, if not all
        of_tile = [fault for spec, fault in faults.items() if spec.tile == tile]
        if all(of_tile):
            raise SweepError(f"--tile {_shown(tile)}: {'; '.join(dict.fromkeys(of_tile))}")
    return [spec for spec, fault in faults.items() if not fault]


def _family_names(spec: KernelSpec) -> tuple[str, str]:
    """What names the kernels of an operation, and those of one with the same types."""
    return spec.operation, "_".join((spec.operation, *spec.types))


def _families(specs: Iterable[KernelSpec]) -> str:
    """The names of operations, with what their types may add to them in brackets: dot[_f32|_f16]."""
    found: dict[str, dict[str, None]] = {}
    for spec in specs:
        operation, with_types = _family_names(spec)
        found.setdefault(operation, {})[with_types.removeprefix(operation)] = None
    return ", ".join(f"{operation}[{'|'.join(ends)}]" for operation, ends in found.items())


def _table(operation: str, types: tuple[str, ...], level: str) -> tuple[tuple[int, ...], ...]:
    specs = registry.specs([level])
    return tuple(spec.tile for spec in specs if (spec.operation, spec.types) == (operation, types))


def _shown(*tiles: tuple[int, ...]) -> str:
    return ", ".join("x".join(map(str, tile)) for tile in tiles)


def _fault_of_tile(spec: KernelSpec) -> str:
    """Why a kernel cannot have its tile, and which it can have; "" where it can."""
    what = f"{spec.operation} of {spec.level}"
    if (spec.operation, spec.level) not in TILES:
        allowed = _table(spec.operation, spec.types, spec.level)
        return "" if spec.tile in allowed else f"{what} has tiles {_shown(*allowed) or 'of no kind'}"
    lanes = LEVELS[spec.level].lanes
    tiles = f"it has ROWSxCOLUMNS with columns a multiple of {lanes}, like {_shown(*TILES[spec.operation, spec.level])}"
    if len(spec.tile) != 2 or spec.tile[1] % lanes:
        return f"{what} has no such tile: {tiles}"
    if spec.operation == "gemm16" and spec.tile[0] > 16:
        return f"{what} takes its rows from a panel of 16: {tiles}"
    try:
        family_of(spec).build(spec)
    except DslError as error:
        return f"{what} has no such tile, because {str(error).splitlines()[0]}: {tiles}"
    return ""
