"""What the transforms share: quads of tiles in 128-bit lanes, and the addresses of taps."""

from __future__ import annotations

from collections.abc import Sequence

from gen.dsl import Assembler, Memory, Register, at

LANE = 16  # bytes: four tiles, or four neighbours in a row


def insert(a: Assembler, dst: Register, src: Register | Memory, lane: int) -> None:
    """dst's 128-bit lane = src; lane 0 is loaded, and clears the others"""
    if not lane:
        a.VMOVUPS(dst.as_kind("xmm"), src)
    elif dst.kind == "ymm":
        a.VINSERTF128(dst, dst, src, lane)
    else:
        a.VINSERTF32X4(dst, dst, src, lane)


def extract(a: Assembler, dst: Register | Memory, src: Register, lane: int) -> None:
    """dst = src's 128-bit lane, from 1 on"""
    if src.kind == "ymm":
        a.VEXTRACTF128(dst, src, lane)
    else:
        a.VEXTRACTF32X4(dst, src, lane)


def transpose(a: Assembler, rows: Sequence[Register]) -> list[Register]:
    """The columns of four rows of four, in each 128-bit lane. Gives the rows back."""
    paired = []
    for i in (0, 2):
        pair = rows[i : i + 2]
        registers = a.vectors("pair", "rows of a transposition, two in turn", 2)
        a.VUNPCKLPS(registers[0], *pair)
        a.VUNPCKHPS(registers[1], *pair)
        a.release(*pair)
        paired.append(registers)
    columns = a.vectors("column", "columns of a transposition", 4)
    for half, pair in enumerate(zip(*paired, strict=True)):
        a.VUNPCKLPD(columns[2 * half], *pair)
        a.VUNPCKHPD(columns[2 * half + 1], *pair)
        a.release(*pair)
    return list(columns)


class Taps:
    """The addresses of t * t taps, one row of them after the other."""

    def __init__(self, a: Assembler, t: int, stride: Register) -> None:
        self._a, self._t, self._stride = a, t, stride
        self._low = a.general("tap", "first tap of a row of them")
        self._high = a.general("tap3", "the fourth of the row")

    def start(self, base: Register) -> None:
        """The first row, of taps whose first begins at the base."""
        self._a.MOV(self._low, base)
        self._find_high()

    def next_row(self) -> None:
        """The following row."""
        a, beyond = self._a, self._t - 3
        if beyond:
            a.LEA(self._low, at(self._high, index=self._stride, scale=min(beyond, 2)))
        else:
            a.MOV(self._low, self._high)
        if beyond == 3:
            a.ADD(self._low, self._stride)
        self._find_high()

    def _find_high(self) -> None:
        self._a.LEA(self._high, at(self._low, index=self._stride, scale=2))
        self._a.ADD(self._high, self._stride)

    def place(self, j: int, displacement: int = 0) -> Memory:
        """Tap j of the row."""
        base, step = (self._low, j) if j < 3 else (self._high, j - 3)
        return at(base, displacement, index=self._stride if step else None, scale=step or 1)
