"""Functions of a few instructions, for tests of the emulator."""

from __future__ import annotations

from pathlib import Path

from tests.emulator.image import Image, load
from tests.emulator.process import Emulator
from tests.emulator.toolchain import freestanding

_BASE, _STEP = 0x2000_0000_0000, 1 << 20


def build(folder: Path, name: str, body: str) -> Path:
    """A shared library with one function, given its instructions but for the return."""
    source = folder / f"{name}.S"
    source.write_text(
        f".text\n.globl {name}\n.type {name}, @function\n{name}:\n{body}\nret\n.size {name}, . - {name}\n"
        '.section .note.GNU-stack, "", @progbits\n'
    )
    return freestanding(folder / f"{name}.so", [source])


def place(emulator: Emulator, library: Path) -> Image:
    """Loads a library where nothing is yet."""
    image = load(library, _BASE + len(emulator.images) * _STEP)
    emulator.load(image)
    return image


def function(emulator: Emulator, folder: Path, name: str, body: str) -> int:
    """The address of a new function."""
    return place(emulator, build(folder, name, body)).symbols[name]
