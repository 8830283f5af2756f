"""The C compiler, for what the emulator and its tests build themselves."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "emulator"


class BuildError(Exception):
    """The compiler, the assembler or the linker refused something."""


def shared_library(out: Path, sources: Sequence[Path], *options: str) -> Path:
    """A shared library made of sources and objects, unless it is there and newer than they are."""
    if out.exists() and all(source.stat().st_mtime <= out.stat().st_mtime for source in sources):
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: several processes may build the same file at once.
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        made = Path(folder) / out.name
        command = [*shlex.split(os.environ.get("CC", "cc")), "-shared", *options, "-o", str(made), *map(str, sources)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            names = ", ".join(source.name for source in sources)
            raise BuildError(f"{names}: cannot be built or linked:\n{result.stderr.strip()}")
        made.replace(out)
    return out


def freestanding(out: Path, sources: Sequence[Path], *options: str) -> Path:
    """The same, of code that needs nothing but itself: an image for the emulator."""
    return shared_library(out, sources, "-nostdlib", "-fPIC", "-Wl,-Bsymbolic", "-Wl,-z,noexecstack", *options)
