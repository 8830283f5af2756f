"""Shared libraries of kernels: how they are built and what is found in them."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gen import isa, registry
from gen.dsl import Kernel
from gen.family import Family
from gen.native import compiler
from gen.native.arrays import NativeError
from gen.native.kernels import NativeKernel, native_kernel
from gen.spec import KernelSpec


class Row(ctypes.Structure):
    """struct sdgen_kernel_row of sdgen.h, of which name and function are looked at."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("operation", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("rows", ctypes.c_int),
        ("columns", ctypes.c_int),
        ("per_round", ctypes.c_int),
        ("level", ctypes.c_int),
        ("features", ctypes.c_uint32),
        ("function", ctypes.c_void_p),
    ]


# Kernels are hidden symbols; these two functions, which libsdgen.so has as well, lead to them.
_TABLE = """
#include <stddef.h>

struct sdgen_kernel_row {{
    const char *name, *operation, *type;
    int rows, columns, per_round, level;
    unsigned features;
    void (*function)(void);
}};
{prototypes}
static const struct sdgen_kernel_row rows[] = {{
{rows}
}};
size_t sdgen_kernel_count(void) {{ return sizeof rows / sizeof *rows; }}
const struct sdgen_kernel_row *sdgen_kernel_row(size_t index) {{ return &rows[index]; }}
"""


class Kernels(Mapping[str, NativeKernel]):
    """The kernels of a library by name; one that was asked for with options also by its name without them."""

    def __init__(self, where: str, kernels: Mapping[str, NativeKernel], aliases: Mapping[str, str]) -> None:
        self._where, self._kernels, self._aliases = where, dict(kernels), dict(aliases)

    def __getitem__(self, name: str) -> NativeKernel:
        try:
            return self._kernels[self._aliases.get(name, name)]
        except KeyError:
            near = registry.closest(name, list(self))
            raise NativeError(f"{self._where} has no kernel {name!r}; {near}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._kernels or name in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)


def build(kernels: str | Iterable[str | KernelSpec], *, path: Path | str | None = None, **options: int) -> Kernels:
    """Builds kernels, by name or description, or one by its name, with options other than the default where given.

    The library is written to `path` where that is given, else to nowhere that lasts. Raises UnknownKernelError for a
    name or an option that does not exist, DslError for a kernel that cannot be made, NativeError where the C compiler
    is missing or fails.
    """
    named = [kernels] if isinstance(kernels, str) else kernels
    asked = [(name, name if isinstance(name, KernelSpec) else registry.find(name, options)) for name in named]
    if not asked:
        raise NativeError("no kernel is named that should be built")
    built = {spec.name: _made(spec) for _, spec in asked}
    with tempfile.TemporaryDirectory(prefix="sdgen-") as folder:
        place = Path(folder, "kernels.so") if path is None else Path(path)
        compile_kernels(list(built.values()), Path(folder), place)
        library = _open(place)
        found = _found(library, {name: kernel.spec for name, kernel in built.items()})
    return Kernels("the library", found, {name: spec.name for name, spec in asked if isinstance(name, str)})


def load(path: Path | str | None = None) -> Kernels:
    """The kernels of a library that `build` or `make native` made; without a path, all that this processor can run."""
    if path is None:
        specs, extensions = registry.specs(isa.native_levels()), isa.native_extensions()
        return build(spec.name for spec in specs if extensions.issuperset(spec.extensions))
    library = _open(Path(path))
    return Kernels(str(path), _found(library, {}), {})


def compile_kernels(kernels: Iterable[Kernel], folder: Path, library: Path) -> None:
    """Builds a shared library of kernels, in a folder that holds its sources afterwards."""
    sources, prototypes, rows = [], [], []
    for kernel in kernels:
        name = kernel.spec.name
        sources.append(folder / f"{name}.S")
        sources[-1].write_text(registry.assembly(kernel))
        prototypes.append(f'__attribute__((visibility("hidden"))) void {name}(void);')
        rows.append(f'    {{.name = "{name}", .function = {name}}},')
    table = folder / "table.c"
    table.write_text(_TABLE.format(prototypes="\n".join(prototypes), rows="\n".join(rows)))
    compiler.shared_library(library, [*sources, table])


def open_library(path: Path, specs: Iterable[KernelSpec]) -> dict[str, NativeKernel]:
    """The kernels of a library that holds those of these descriptions."""
    return _found(_open(path), {spec.name: spec for spec in specs})


def family_of(spec: KernelSpec) -> Family:
    """The family that makes kernels of this operation and these types, of whatever tile; raises NativeError."""
    for family in registry.FAMILIES:
        if any((known.operation, known.types) == (spec.operation, spec.types) for known in family.kernels):
            return family
    raise NativeError(f"{spec.name}: no family makes kernels of {spec.operation}")


def _made(spec: KernelSpec) -> Kernel:
    return family_of(spec).build(spec)


def _open(path: Path) -> ctypes.CDLL:
    if not path.is_file():
        raise NativeError(f"{path}: there is no such library; `make native` builds build/native/libsdgen.so")
    try:
        library = ctypes.CDLL(str(path.resolve()))
        library.sdgen_kernel_count.restype = ctypes.c_size_t
        library.sdgen_kernel_row.restype = ctypes.POINTER(Row)
        library.sdgen_kernel_row.argtypes = (ctypes.c_size_t,)
    except (OSError, AttributeError) as error:
        raise NativeError(f"{path} is no library of kernels: {error}") from error
    return library


def _found(library: ctypes.CDLL, specs: Mapping[str, KernelSpec]) -> dict[str, NativeKernel]:
    """The kernels of a library that are generated ones: its forms in C have no description."""
    known = dict(specs) or {spec.name: spec for spec in registry.specs(isa.LEVELS)}
    found = {}
    for index in range(library.sdgen_kernel_count()):
        row = library.sdgen_kernel_row(index).contents
        name = row.name.decode()
        spec = known.get(name) or _with_options(name, known)
        if spec:
            found[name] = native_kernel(spec, row.function)
    return found


def _with_options(name: str, known: Mapping[str, KernelSpec]) -> KernelSpec | None:
    """The description of a kernel that was built with options other than the default, from its name."""
    for plain, spec in known.items():
        if name.startswith(f"{plain}_"):
            values, rest = {}, name[len(plain) :]
            for option in sorted(family_of(spec).options):
                head = f"_{option}"
                digits = rest[len(head) :].partition("_")[0]
                if rest.startswith(head) and digits.isdecimal():
                    values[option] = int(digits)
                    rest = rest[len(head) + len(digits) :]
            if values and not rest:
                return spec.with_options(**values)
    return None
