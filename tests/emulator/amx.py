"""AMX: tiles, their configuration and their instructions.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, the instructions' "Operation" sections
and "Intel AMX Instruction Exceptions"; volume 1, "Programming with Intel AMX". Of TDPFP16PS: Intel Architecture
Instruction Set Extensions Programming Reference. Names of variables are the manual's where there are any."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from iced_x86 import Code, Instruction, Register
from numpy.typing import NDArray

from tests.emulator.floats import F32, from_bf16, from_fp16, fused
from tests.emulator.traps import Processor, TrapError, Vector

# Palette 1, the only one there is.
TILES, ROWS, ROW_BYTES = 8, 16, 64
_CONFIG_BYTES = 64

_FEATURES = {
    Code.VEX_LDTILECFG_M512: "AMX_TILE",
    Code.VEX_STTILECFG_M512: "AMX_TILE",
    Code.VEX_TILERELEASE: "AMX_TILE",
    Code.VEX_TILEZERO_TMM: "AMX_TILE",
    Code.VEX_TILELOADD_TMM_SIBMEM: "AMX_TILE",
    Code.VEX_TILELOADDT1_TMM_SIBMEM: "AMX_TILE",
    Code.VEX_TILESTORED_SIBMEM_TMM: "AMX_TILE",
    Code.VEX_TDPBF16PS_TMM_TMM_TMM: "AMX_BF16",
    Code.VEX_TDPFP16PS_TMM_TMM_TMM: "AMX_FP16",
    Code.VEX_TDPBSSD_TMM_TMM_TMM: "AMX_INT8",
    Code.VEX_TDPBSUD_TMM_TMM_TMM: "AMX_INT8",
    Code.VEX_TDPBUSD_TMM_TMM_TMM: "AMX_INT8",
    Code.VEX_TDPBUUD_TMM_TMM_TMM: "AMX_INT8",
}

# How the bytes of the two sources are read.
_INTEGERS = {
    Code.VEX_TDPBSSD_TMM_TMM_TMM: (np.int8, np.int8),
    Code.VEX_TDPBSUD_TMM_TMM_TMM: (np.int8, np.uint8),
    Code.VEX_TDPBUSD_TMM_TMM_TMM: (np.uint8, np.int8),
    Code.VEX_TDPBUUD_TMM_TMM_TMM: (np.uint8, np.uint8),
}

_FLOATS: dict[int, Callable[[NDArray[np.uint16]], F32]] = {
    Code.VEX_TDPBF16PS_TMM_TMM_TMM: from_bf16,
    Code.VEX_TDPFP16PS_TMM_TMM_TMM: from_fp16,
}


def feature(instruction: Instruction) -> str | None:
    """The extension that an instruction belongs to, if it is one of those executed here."""
    return _FEATURES.get(instruction.code)


def _invalid(reason: str) -> TrapError:
    return TrapError(Vector.INVALID_OPCODE, reason)


def address(instruction: Instruction, processor: Processor) -> int:
    """Of a memory operand that is no tile's: flat, so segments add nothing."""
    start = instruction.memory_displacement
    if not instruction.is_ip_rel_memory_operand:  # else the displacement is already the address
        if instruction.memory_base != Register.NONE:
            start += processor.general(instruction.memory_base)
        if instruction.memory_index != Register.NONE:
            start += processor.general(instruction.memory_index) * instruction.memory_index_scale
    return int(start % 2**64)


class Tiles:
    """Eight tiles of 16 rows by 64 bytes, and TILECFG."""

    def __init__(self) -> None:
        self.data = np.zeros((TILES, ROWS, ROW_BYTES), np.uint8)
        self._clear()

    def _clear(self) -> None:
        self.configured = False
        self.start_row = 0
        self.rows = [0] * TILES
        self.colsb = [0] * TILES
        self.data[:] = 0

    def execute(self, instruction: Instruction, processor: Processor) -> None:
        """Executes one of the instructions that `feature` knows."""
        code = instruction.code
        if code == Code.VEX_LDTILECFG_M512:
            self._configure(processor.read(address(instruction, processor), _CONFIG_BYTES))
        elif code == Code.VEX_STTILECFG_M512:
            processor.write(address(instruction, processor), self._config())
        elif code == Code.VEX_TILERELEASE:
            self._clear()
        elif not self.configured:
            raise _invalid("tiles are not configured")
        elif code == Code.VEX_TILEZERO_TMM:
            tile = self._tile(instruction.op0_register)
            self.data[tile] = 0
            self.start_row = 0
        elif code == Code.VEX_TILESTORED_SIBMEM_TMM:
            self._move(instruction, processor, self._tile(instruction.op1_register), store=True)
        elif code in (Code.VEX_TILELOADD_TMM_SIBMEM, Code.VEX_TILELOADDT1_TMM_SIBMEM):
            self._move(instruction, processor, self._tile(instruction.op0_register), store=False)
        else:
            self._multiply(instruction)

    def _configure(self, config: bytes) -> None:
        """LDTILECFG: byte 0 palette, 1 start_row, 16 to 31 colsb as 8 words, 48 to 55 rows; others are reserved."""

        def reject(reason: str) -> None:
            raise TrapError(Vector.PROTECTION, f"LDTILECFG: {reason}")

        palette = config[0]
        if palette == 0:
            self._clear()
            return
        if palette > 1:
            reject(f"there is no palette {palette}")
        if any(config[2:16]) or any(config[32:48]) or any(config[56:]):
            reject("reserved bytes are not 0")
        colsb = [int.from_bytes(config[16 + 2 * n : 18 + 2 * n], "little") for n in range(TILES)]
        rows = list(config[48:56])
        for n in range(TILES):
            if colsb[n] > ROW_BYTES or rows[n] > ROWS:
                reject(f"tile {n} of {rows[n]} rows by {colsb[n]} bytes is larger than {ROWS} by {ROW_BYTES}")
            if (colsb[n] == 0) != (rows[n] == 0):
                reject(f"tile {n} has {rows[n]} rows of {colsb[n]} bytes")
        self._clear()
        self.configured, self.start_row, self.rows, self.colsb = True, config[1], rows, colsb

    def _config(self) -> bytes:
        """STTILECFG: the same bytes, all 0 where tiles are not configured."""
        if not self.configured:
            return bytes(_CONFIG_BYTES)
        colsb = b"".join(n.to_bytes(2, "little") for n in self.colsb)
        return bytes([1, self.start_row]) + bytes(14) + colsb + bytes(16) + bytes(self.rows) + bytes(8)

    def _tile(self, register: int) -> int:
        tile = int(register) - int(Register.TMM0)
        if self.rows[tile] == 0:
            raise _invalid(f"tmm{tile} is not configured")
        return tile

    def _move(self, instruction: Instruction, processor: Processor, tile: int, store: bool) -> None:
        """TILELOADD, TILELOADDT1, TILESTORED: row after row at base + displacement + row * stride."""
        if self.colsb[tile] % 4:
            raise _invalid(f"rows of tmm{tile} are {self.colsb[tile]} bytes, no multiple of 4")
        if self.start_row >= self.rows[tile]:
            raise _invalid(f"start_row {self.start_row} is beyond the {self.rows[tile]} rows of tmm{tile}")
        has_index = instruction.memory_index != Register.NONE
        stride = processor.general(instruction.memory_index) * instruction.memory_index_scale if has_index else 0
        begin = processor.general(instruction.memory_base) if instruction.memory_base != Register.NONE else 0
        begin += instruction.memory_displacement
        nbytes = self.colsb[tile]
        while self.start_row < self.rows[tile]:
            at = (begin + self.start_row * stride) % 2**64
            row = self.data[tile, self.start_row]
            if store:
                processor.write(at, row[:nbytes].tobytes())
            else:
                row[:nbytes] = np.frombuffer(processor.read(at, nbytes), np.uint8)
                row[nbytes:] = 0
            self.start_row += 1
        if not store:
            self.data[tile, self.rows[tile] :] = 0
        self.start_row = 0

    def _multiply(self, instruction: Instruction) -> None:
        """TDP*: tsrcdest[m][n] += sum over k of tsrc1[m][k] * tsrc2[k][n], where k counts groups of 4 bytes."""
        registers = (instruction.op0_register, instruction.op1_register, instruction.op2_register)
        if len(set(registers)) < 3:
            raise _invalid("two of the tiles are the same")
        dest, src1, src2 = (self._tile(register) for register in registers)
        if any(self.colsb[tile] % 4 for tile in (dest, src1, src2)):
            raise _invalid("a tile's rows are no multiple of 4 bytes")
        if (
            self.colsb[dest] != self.colsb[src2]
            or self.rows[dest] != self.rows[src1]
            or self.colsb[src1] // 4 != self.rows[src2]
        ):
            shapes = " and ".join(f"{self.rows[t]} x {self.colsb[t]}" for t in (dest, src1, src2))
            raise _invalid(f"shapes do not fit (rows x bytes): {shapes}")
        m, k, n = self.rows[dest], self.rows[src2], self.colsb[dest] // 4
        a = np.ascontiguousarray(self.data[src1, :m, : 4 * k])
        b = np.ascontiguousarray(self.data[src2, :k, : 4 * n])
        c = np.ascontiguousarray(self.data[dest, :m, : 4 * n]).view(np.uint32)
        if instruction.code in _INTEGERS:
            kind1, kind2 = _INTEGERS[instruction.code]
            wide1 = a.view(kind1).astype(np.int64).reshape(m, k, 4)
            wide2 = b.view(kind2).astype(np.int64).reshape(k, n, 4)
            sums = c.astype(np.int64) + np.einsum("mki,kni->mn", wide1, wide2)
            c = (sums & 0xFFFFFFFF).astype(np.uint32)  # no saturation: modulo 2^32
        else:
            widen = _FLOATS[instruction.code]
            pairs1 = widen(a.view(np.uint16)).reshape(m, k, 2)
            pairs2 = widen(b.view(np.uint16)).reshape(k, n, 2)
            # temp1: even and odd elements are summed apart, from 0, then together, then with tsrcdest.
            temp1 = np.zeros((2, m, n), np.float32)
            for step in range(k):
                for parity in range(2):
                    left, right = pairs1[:, step, parity, None], pairs2[None, step, :, parity]
                    temp1[parity] = fused(left, right, temp1[parity])
            c = fused(1, c.view(np.float32), fused(1, temp1[0], temp1[1])).view(np.uint32)
        self.data[dest] = 0
        self.data[dest, :m, : 4 * n] = c.view(np.uint8)
        self.start_row = 0
