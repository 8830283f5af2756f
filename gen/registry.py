"""Every kernel there is, and the files that are made from them."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gen.attention import rows, scores, unpack
from gen.dsl import Kernel
from gen.elementwise import map as elementwise_map
from gen.elementwise import maximum, moments
from gen.errors import UserError
from gen.family import Family
from gen.frames import TEMPLATES
from gen.isa import EXTENSIONS, LEVELS
from gen.microkernels import dot, gemm_f32, nh, pack, pack_patches, probe
from gen.spec import KernelSpec
from gen.winograd import input as winograd_input
from gen.winograd import output as winograd_output
from gen.winograd import weights as winograd_weights
from gen.winograd.header import winograd_header

FAMILIES = (
    gemm_f32.FAMILY,
    gemm_f32.GEMM16_FAMILY,
    dot.FAMILY,
    pack.FAMILY,
    pack_patches.FAMILY,
    winograd_input.FAMILY,
    winograd_weights.FAMILY,
    winograd_output.FAMILY,
    winograd_input.UP_FAMILY,
    winograd_weights.UP_FAMILY,
    winograd_output.UP_FAMILY,
    rows.FAMILY,
    scores.FAMILY,
    unpack.FAMILY,
    elementwise_map.FAMILY,
    moments.FAMILY,
    maximum.FAMILY,
    nh.FAMILY,
    probe.FAMILY,
)

MANIFEST = "manifest.json"
DEPFILE = "kernels.d"

_PACKAGE = Path(__file__).parent
_TOOLS = ("gen.native.", "gen.sweep.")  # what is there to use kernels, and not to write them


class UnknownKernelError(Exception):
    """No kernel has this name, or its family has no such option; the message says what exists."""


def specs(levels: Iterable[str]) -> list[KernelSpec]:
    """The kernels of some levels, in the order of the families' tables."""
    wanted = set(levels)
    return [spec for family in FAMILIES for spec in family.kernels if spec.level in wanted]


def family_of(spec: KernelSpec) -> Family:
    """The family that a kernel of the tables belongs to."""
    return next(family for family in FAMILIES if _plain(spec) in family.kernels)


def find(name: str, options: dict[str, int] | None = None) -> KernelSpec:
    """The kernel of that name, with options other than the default where given; raises UnknownKernelError."""
    for family in FAMILIES:
        for spec in family.kernels:
            if spec.name == name:
                return _with_options(family, spec, options or {})
    near = closest(name, [spec.name for spec in specs(LEVELS)])
    raise UnknownKernelError(f"unknown kernel {name!r}; {near}; `python -m gen list` lists all")


def closest(name: str, names: Sequence[str]) -> str:
    """Says which three of the names are most like one that is none of them."""
    near = difflib.get_close_matches(name, names, 3, 0)
    return f"the closest {'is' if len(near) == 1 else 'are'} {', '.join(near)}"


def build(spec: KernelSpec) -> Kernel:
    """The kernel, assembled."""
    return family_of(spec).build(spec)


def assembly(kernel: Kernel) -> str:
    """The text of the kernel's `.S` file."""
    options = "".join(f" --set {key}={value}" for key, value in kernel.spec.options)
    return TEMPLATES.get_template("kernel.S.j2").render(
        kernel=kernel,
        width=max(len(use.registers) for use in kernel.register_map),
        command=f"python -m gen show {_plain(kernel.spec).name}{options}",
    )


def generate(levels: Sequence[str], out: Path) -> list[Path]:
    """Writes the kernels of some levels, and the lists of them, into a folder; the files whose text changed.

    Files whose text is the same are left alone, except for the depfile, which is written each time: it is what make
    compares with the sources. Kernels that an earlier manifest lists and that are no more are removed. Raises UserError
    where the folder cannot be written to.
    """
    kernels = [build(spec) for spec in specs(levels)]
    files = {f"{kernel.spec.name}.S": assembly(kernel) for kernel in kernels}
    for name in ("kernels.h", "kernels.inc"):
        files[name] = TEMPLATES.get_template(f"{name}.j2").render(
            kernels=kernels,
            families=FAMILIES,
            rows=[family_of(kernel.spec).line(kernel.spec) for kernel in kernels],
        )
    files["winograd.h"] = winograd_header()
    files[MANIFEST] = json.dumps(manifest(kernels, levels), indent=1) + "\n"

    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, not a folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in sorted(_listed(out) - files.keys()):
            (out / name).unlink(missing_ok=True)
        changed = [out / name for name, text in files.items() if _write(out / name, text)]
        (out / DEPFILE).write_text(_depfile(out))
    except OSError as error:
        raise UserError(f"{error.filename or out} cannot be written: {error.strerror}") from error
    return changed


def manifest(kernels: Sequence[Kernel], levels: Sequence[str]) -> dict[str, Any]:
    """What was made, for programs: kernels, sources, and what the levels ask of processor and system."""
    return {
        "levels": {
            name: {
                "xcr0": LEVELS[name].xcr0,
                "cpuid": {
                    extension.name: list(extension.cpuid)
                    for extension in EXTENSIONS.values()
                    if extension.cpuid and extension.name in LEVELS[name].extensions
                },
            }
            for name in levels
        },
        "kernels": [describe(kernel) for kernel in kernels],
        "sources": [path.relative_to(_PACKAGE.parent).as_posix() for path in sources()],
    }


def describe(kernel: Kernel) -> dict[str, Any]:
    """One kernel, for programs."""
    spec = kernel.spec
    return {
        "name": spec.name,
        "operation": spec.operation,
        "types": list(spec.types),
        "tile": list(spec.tile),
        "level": spec.level,
        "options": dict(spec.options),
        "file": f"{spec.name}.S",
        "prototype": kernel.prototype,
        "extensions": list(kernel.extensions),
        "source": kernel.source,
    }


def sources() -> list[Path]:
    """The files of this package that the output depends on: modules imported and templates."""
    names = [name for name in sys.modules if f"{name}.".startswith("gen.") and not f"{name}.".startswith(_TOOLS)]
    modules = [sys.modules[name] for name in names]
    files = {Path(module.__file__) for module in modules if module.__file__}
    return sorted(files | set((_PACKAGE / "templates").glob("*.j2")))


def _plain(spec: KernelSpec) -> KernelSpec:
    """The kernel with its family's own options."""
    return replace(spec, options=())


def _with_options(family: Family, spec: KernelSpec, options: dict[str, int]) -> KernelSpec:
    unknown = sorted(options.keys() - family.options.keys())
    if unknown:
        known = ", ".join(f"{name} ({default})" for name, default in family.options.items()) or "none"
        raise UnknownKernelError(f"{spec.name} has no option {unknown[0]!r}; there are: {known}")
    return spec.with_options(**{name: value for name, value in options.items() if value != family.options[name]})


def _listed(out: Path) -> set[str]:
    """The `.S` files that the folder's manifest lists."""
    try:
        kernels = json.loads((out / MANIFEST).read_text())["kernels"]
        return {Path(kernel["file"]).name for kernel in kernels}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _write(path: Path, text: str) -> bool:
    """Writes a file unless it holds that text; whether it was written."""
    if path.exists() and path.read_bytes() == text.encode():
        return False
    path.write_text(text)
    return True


def _depfile(out: Path) -> str:
    """The rule of make for the depfile itself, which is written last and on every run."""
    names = [str(path).replace(" ", "\\ ") for path in sources()]
    target = str(out / DEPFILE).replace(" ", "\\ ")
    # The empty rules keep make going when a source is removed.
    return f"{target}: {' '.join(names)}\n" + "".join(f"{name}:\n" for name in names)
