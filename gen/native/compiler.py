"""The system's C compiler, and what is built with it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gen.native.arrays import NativeError


def find() -> list[str]:
    """The command: that of the environment variable CC, else cc, gcc or clang; raises NativeError."""
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        if shutil.which(named[0]) is None:
            raise NativeError(f"CC={named[0]}: there is no such C compiler")
        return named
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    raise NativeError("there is no C compiler: install gcc or clang (Debian and Ubuntu: build-essential), or set CC")


def shared_library(path: Path, sources: Sequence[Path]) -> None:
    """Builds a shared library from assembly and C; raises NativeError with the compiler's first complaint."""
    command = [*find(), "-O2", "-fPIC", "-shared", "-o", str(path), *map(str, sources)]
    try:
        done = subprocess.run(command, text=True, capture_output=True)
    except OSError as error:
        raise NativeError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        why = next((line for line in lines if "error" in line.lower()), lines[0])
        raise NativeError(f"{command[0]} failed with status {done.returncode}: {why}")
