"""What an emulated instruction asks of the machine that runs it, and how it fails."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Vector(IntEnum):
    """Exceptions of the processor (Intel SDM, volume 3, table 7-1)."""

    DIVIDE = 0
    BREAKPOINT = 3
    INVALID_OPCODE = 6
    NO_DEVICE = 7
    DOUBLE_FAULT = 8
    STACK = 12
    PROTECTION = 13
    PAGE = 14
    X87 = 16
    ALIGNMENT = 17
    SIMD = 19


class TrapError(Exception):
    """The instruction raises an exception of the processor, for this reason."""

    def __init__(self, vector: Vector, reason: str) -> None:
        super().__init__(reason)
        self.vector = vector


class PageFaultError(Exception):
    """The instruction touches memory that is not there, or writes where it may only read."""

    def __init__(self, address: int, write: bool) -> None:
        super().__init__(f"{address:#x}")
        self.address, self.write = address, write


class Processor(Protocol):
    """The state that an emulated instruction works on."""

    def general(self, register: int) -> int:
        """The value of a 64-bit register, or of RIP, by its number in iced-x86."""

    def vector(self, number: int) -> NDArray[np.uint32]:
        """The 16 doublewords of a ZMM register."""

    def set_vector(self, number: int, values: NDArray[np.uint32]) -> None:
        """Overwrites a whole ZMM register."""

    def mask(self, number: int) -> int:
        """The low 16 bits of a mask register."""

    def read(self, address: int, size: int) -> bytes:
        """Reads guest memory; raises PageFaultError."""

    def write(self, address: int, data: bytes) -> None:
        """Writes guest memory, all or nothing; raises PageFaultError."""
