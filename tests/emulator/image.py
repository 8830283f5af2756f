"""Shared libraries as images in the emulated memory: segments with their relocations applied, and symbols."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.construct.lib.container import Container
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

PAGE = 4096

# Imports that nobody defines stand at addresses from here on, where no memory is.
ABSENT, ABSENT_SIZE = 0xFFFF_9000_0000_0000, 16

# System V ABI, AMD64 supplement, "Relocation Types".
_R_64, _R_GLOB_DAT, _R_JUMP_SLOT, _R_RELATIVE = 1, 6, 7, 8
_WRITE, _EXECUTE = 2, 1  # of p_flags


class ImageError(Exception):
    """A file is no image that the emulator can load."""


@dataclass(frozen=True)
class Segment:
    """Memory of one kind, from a page's first byte on; `data` is padded to whole pages."""

    address: int
    data: bytes
    writable: bool
    executable: bool


@dataclass
class Image:
    """What is loaded, and what lies where: `symbols` are addresses by name."""

    name: str
    segments: list[Segment]
    symbols: dict[str, int]
    _sorted: list[tuple[int, str]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._sorted = sorted((address, name) for name, address in self.symbols.items())

    def place(self, address: int) -> str | None:
        """`symbol+0x12` for an address in this image, or one that stands for a missing import."""
        inside = any(segment.address <= address < segment.address + len(segment.data) for segment in self.segments)
        index = bisect_right(self._sorted, address, key=lambda symbol: symbol[0]) - 1
        start, name = self._sorted[index] if index >= 0 else (self.segments[0].address, self.name)
        absent = start >= ABSENT and address - start < ABSENT_SIZE
        return f"{name}+{address - start:#x}" if inside or absent else None


def load(path: Path, base: int, imports: Mapping[str, int] | None = None) -> Image:
    """The shared library laid out from `base` on, bound to `imports` and to itself."""
    try:
        with path.open("rb") as file:
            return _load(path.name, ELFFile(file), base, imports or {})
    except (ELFError, OSError, ValueError, IndexError, KeyError, AttributeError, UnicodeDecodeError) as error:
        raise ImageError(f"{path}: not a complete ELF file: {error}") from error


def _load(name: str, elf: Any, base: int, imports: Mapping[str, int]) -> Image:
    if elf["e_machine"] != "EM_X86_64" or elf["e_type"] != "ET_DYN":
        raise ImageError(f"{name}: not a shared library for x86-64")
    loads = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
    if not loads:
        raise ImageError(f"{name}: has nothing to load")
    end = max(load["p_vaddr"] + load["p_memsz"] for load in loads)
    memory = bytearray(-(-end // PAGE) * PAGE)
    for load in loads:
        data = load.data()
        if len(data) != load["p_filesz"]:
            raise ImageError(f"{name}: truncated: a segment of {load['p_filesz']} bytes has {len(data)}")
        memory[load["p_vaddr"] : load["p_vaddr"] + len(data)] = data

    symbols: dict[str, int] = {}
    for section in elf.iter_sections():
        if isinstance(section, SymbolTableSection):
            for symbol in section.iter_symbols():
                kind, defined = symbol["st_info"]["type"], symbol["st_shndx"] != "SHN_UNDEF"
                if symbol.name and defined and kind in ("STT_FUNC", "STT_OBJECT", "STT_NOTYPE"):
                    symbols[symbol.name] = base + symbol["st_value"]
    for section in elf.iter_sections():
        if isinstance(section, RelocationSection) and section["sh_flags"] & 2:  # SHF_ALLOC: the loader's
            table = elf.get_section(section["sh_link"])
            for relocation in section.iter_relocations():
                symbol = table.get_symbol(relocation["r_info_sym"]) if relocation["r_info_sym"] else None
                value = _value(name, relocation, symbol, base, symbols, imports)
                at = relocation["r_offset"]
                memory[at : at + 8] = (value & (1 << 64) - 1).to_bytes(8, "little")

    segments = []
    for load in loads:
        first = load["p_vaddr"] // PAGE * PAGE
        last = -(-(load["p_vaddr"] + load["p_memsz"]) // PAGE) * PAGE
        flags = load["p_flags"]
        segments.append(Segment(base + first, bytes(memory[first:last]), bool(flags & _WRITE), bool(flags & _EXECUTE)))
    return Image(name, segments, symbols)


def _value(
    name: str, relocation: Container, symbol: Any, base: int, symbols: dict[str, int], imports: Mapping[str, int]
) -> int:
    kind = relocation["r_info_type"]
    if kind == _R_RELATIVE:
        return base + int(relocation["r_addend"])
    if kind not in (_R_64, _R_GLOB_DAT, _R_JUMP_SLOT):
        raise ImageError(f"{name}: relocation of type {kind} at {relocation['r_offset']:#x} is not supported")
    addend = int(relocation["r_addend"])
    if symbol.name in imports:
        return imports[symbol.name] + addend
    if symbol["st_shndx"] == "SHN_UNDEF":
        if symbol["st_info"]["bind"] == "STB_WEAK":
            return 0
        # A call ends in a fault that names it.
        symbols.setdefault(symbol.name, ABSENT + ABSENT_SIZE * len(symbols))
    return symbols[symbol.name] + addend
