"""The machine that measures: its processor's model, and one measurement at a time on it."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gen import isa

_LOCK = Path(tempfile.gettempdir(), f"sdgen-sweep-{os.getuid()}.lock")


def model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model; with family and number, as virtual machines may name no more than its maker."""
    text = cpuinfo.read_text() if cpuinfo.exists() else ""

    def field(name: str) -> str:
        match = re.search(rf"^{name}\s*: (.*)$", text, re.MULTILINE)
        return match[1].strip() if match else "unknown"

    return f"{field('model name')} (family {field('cpu family')}, model {field('model')})"


def describe() -> tuple[str, tuple[str, ...]]:
    """The processor's model, and the levels that it has."""
    return model(), isa.native_levels()


@contextmanager
def alone() -> Iterator[None]:
    """Waits until no other sweep of this user measures on this machine."""
    descriptor = os.open(_LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
