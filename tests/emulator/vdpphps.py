"""VDPPHPS of AVX10.2: dot products of pairs of half-precision numbers, accumulated in single precision.

    EVEX.{128,256,512}.NP.0F38.W0 52 /r  VDPPHPS dst{k1}{z}, src1, src2/m/m32bcst

The encoding is that of VDPBF16PS but for the prefix (F3 there), so that decoders and assemblers that know that one do
for both. Source: Intel Advanced Vector Extensions 10.2 Architecture Specification. Each element of 32 bits, with the
same rounding and denormal rules as VDPBF16PS, but half-precision denormals keep their values:

    dst += src1.fp16[2 i + 1] * src2.fp16[2 i + 1]
    dst += src1.fp16[2 i] * src2.fp16[2 i]
"""

from __future__ import annotations

import numpy as np
from iced_x86 import Code, Decoder, Instruction, OpKind, Register
from numpy.typing import NDArray

from tests.emulator.amx import address
from tests.emulator.floats import from_fp16, fused
from tests.emulator.traps import Processor

# Where the prefix (pp) is in an EVEX encoding: byte 2, bits 0 and 1.
_PP_BYTE, _PP_NONE, _PP_F3 = 2, 0, 2
_EVEX = 0x62

_VECTOR_BYTES = {
    Code.EVEX_VDPBF16PS_XMM_K1Z_XMM_XMMM128B32: 16,
    Code.EVEX_VDPBF16PS_YMM_K1Z_YMM_YMMM256B32: 32,
    Code.EVEX_VDPBF16PS_ZMM_K1Z_ZMM_ZMMM512B32: 64,
}


def encode(vdpbf16ps: bytes) -> bytes:
    """VDPPHPS with the operands of an encoded VDPBF16PS."""
    if vdpbf16ps[0] != _EVEX or vdpbf16ps[_PP_BYTE] & 3 != _PP_F3 or vdpbf16ps[4] != 0x52:
        raise ValueError(f"not a VDPBF16PS: {vdpbf16ps.hex(' ')}")
    encoded = bytearray(vdpbf16ps)
    encoded[_PP_BYTE] ^= _PP_F3
    return bytes(encoded)


def decode(code: bytes, rip: int) -> Instruction | None:
    """VDPPHPS at an address, as the VDPBF16PS with the same operands; None if there is something else."""
    if len(code) < 6 or code[0] != _EVEX or code[_PP_BYTE] & 3 != _PP_NONE or code[4] != 0x52:
        return None
    like = bytearray(code)
    like[_PP_BYTE] |= _PP_F3
    instruction = Decoder(64, bytes(like), ip=rip).decode()
    return instruction if instruction.code in _VECTOR_BYTES else None


def execute(instruction: Instruction, processor: Processor) -> None:
    """Executes what `decode` gave."""
    lanes = _VECTOR_BYTES[instruction.code] // 4
    dst = _number(instruction.op0_register)
    mask = (1 << lanes) - 1
    if instruction.op_mask != Register.NONE:
        mask &= processor.mask(int(instruction.op_mask) - int(Register.K0))
    active = np.array([mask >> lane & 1 for lane in range(lanes)], bool)
    old = processor.vector(dst)[:lanes]
    src1 = processor.vector(_number(instruction.op1_register))[:lanes]
    src2 = _second(instruction, processor, active)
    sums = old.view(np.float32)
    for shift in (16, 0):
        left, right = (from_fp16((source >> shift).astype(np.uint16)) for source in (src1, src2))
        sums = fused(left, right, sums)
    inactive = np.zeros_like(old) if instruction.zeroing_masking else old
    result = np.zeros(16, np.uint32)
    result[:lanes] = np.where(active, sums.view(np.uint32), inactive)
    processor.set_vector(dst, result)


def _second(instruction: Instruction, processor: Processor, active: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """The second source. Of memory, only the elements that the mask lets through are read."""
    if instruction.op2_kind == OpKind.REGISTER:
        return processor.vector(_number(instruction.op2_register))[: active.size]
    start = address(instruction, processor)
    values = np.zeros(active.size, np.uint32)
    if instruction.is_broadcast:
        if active.any():
            values[:] = int.from_bytes(processor.read(start, 4), "little")
        return values
    for lane in np.flatnonzero(active):
        values[lane] = int.from_bytes(processor.read(start + 4 * int(lane), 4), "little")
    return values


def _number(register: int) -> int:
    """0 to 31 for xmm, ymm and zmm registers."""
    return (int(register) - int(Register.XMM0)) % 32
