"""Guest memory: physical pages, and page tables that map them where they are asked for and nowhere else."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np

from tests.emulator.traps import PageFaultError

PAGE = 4096

# Page table entries (Intel SDM, volume 3, table 5-20).
_PRESENT, _WRITABLE, _NO_EXECUTE = 1, 2, 1 << 63
_ADDRESS = 0x000F_FFFF_FFFF_F000

_SIZE = 96 << 20
_TABLES = 8 << 20  # of it, from the start on


class ExhaustedError(Exception):
    """More memory was asked for than the guest has."""


class Memory:
    """Physical memory with four levels of page tables, the topmost at address `root`."""

    def __init__(self, insert: Callable[[int, int], None]) -> None:
        """`insert` gives Bochs the host address of a physical page."""
        self._buffer = mmap.mmap(-1, _SIZE)
        self._bytes = np.frombuffer(self._buffer, np.uint8)
        self._words = self._bytes.view(np.uint64)
        host = self._bytes.ctypes.data
        for address in range(0, _SIZE, PAGE):
            insert(address, host + address)
        self.root = PAGE  # page 0 stays free, so that 0 in a table is nothing
        self._next_table = 2 * PAGE
        self._next = _TABLES

    def _table(self, linear: int) -> int:
        """Physical address of the last table for an address; made where missing."""
        table = self.root
        for shift in (39, 30, 21):
            entry = (table + (linear >> shift) % 512 * 8) // 8
            if not self._words[entry]:
                if self._next_table >= _TABLES:
                    raise ExhaustedError("the emulator has no memory left for page tables")
                self._words[entry] = self._next_table | _PRESENT | _WRITABLE
                self._next_table += PAGE
            table = int(self._words[entry]) & _ADDRESS
        return table

    def _entry(self, linear: int) -> int:
        return (self._table(linear) + (linear >> 12) % 512 * 8) // 8

    def place(self, linear: int, data: bytes, writable: bool, executable: bool) -> None:
        """Maps whole new pages that hold the data; `linear` is a page's first byte."""
        size = -(-len(data) // PAGE) * PAGE
        if self._next + size > _SIZE:
            raise ExhaustedError(f"the emulator has no memory left for {size} bytes")
        flags = _PRESENT | (_WRITABLE if writable else 0) | (0 if executable else _NO_EXECUTE)
        physical = self._next
        self._next += size
        self._bytes[physical : physical + size] = 0
        self._bytes[physical : physical + len(data)] = np.frombuffer(data, np.uint8)
        for offset in range(0, size, PAGE):
            self._words[self._entry(linear + offset)] = (physical + offset) | flags

    def mark(self) -> int:
        """How much memory is in use: what is placed from here on, `release` gives back."""
        return self._next

    def release(self, mark: int, blocks: list[tuple[int, int]]) -> None:
        """Unmaps what was placed since the mark: (address, size) of each."""
        for linear, size in blocks:
            for offset in range(0, size, PAGE):
                self._words[self._entry(linear + offset)] = 0
        self._next = mark

    def _pieces(self, linear: int, size: int, write: bool) -> list[tuple[int, int]]:
        """(physical address, size) of the parts that lie in one page each."""
        pieces = []
        while size > 0:
            entry = int(self._words[self._entry(linear)])
            if not entry & _PRESENT or (write and not entry & _WRITABLE):
                raise PageFaultError(linear, write)
            length = min(size, PAGE - linear % PAGE)
            pieces.append(((entry & _ADDRESS) + linear % PAGE, length))
            linear, size = linear + length, size - length
        return pieces

    def read(self, linear: int, size: int) -> bytes:
        """Raises PageFaultError with the first address that is not there."""
        return b"".join(self._bytes[at : at + length].tobytes() for at, length in self._pieces(linear, size, False))

    def write(self, linear: int, data: bytes) -> None:
        """All or nothing; raises PageFaultError with the first address that may not be written."""
        done = 0
        for at, length in self._pieces(linear, len(data), True):
            self._bytes[at : at + length] = np.frombuffer(data[done : done + length], np.uint8)
            done += length
