"""Instructions that PeachPy does not know: AVX-VNNI, AVX512-VNNI, -BF16 and -FP16, AMX, and VDPPHPS of AVX10.2.

Each is a row of the table, in the notation of Intel's manual; a test compares the bytes with GNU as, and those of
VDPPHPS, which it does not know, with bytes worked out by hand. Those that came later than 2020 are written as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gen.dsl.operands import Memory, Operand, Register

_PREFIXES = {"NP": 0, "66": 1, "F3": 2, "F2": 3}
_MAPS = {"0F": 1, "0F38": 2, "0F3A": 3, "MAP5": 5, "MAP6": 6}
_SIZES = {"xmm": 16, "ymm": 32, "zmm": 64}


@dataclass(frozen=True)
class _Form:
    """A row: the opcode as the manual writes it, the operands, the extension.

    Operands: `v` a vector register, all of one size; `h` one of half the size, at least xmm; `v/m` a register or
    memory; `t` a tile; `m` memory; `sib` memory of rows of a tile. `roles` says where each is encoded: `r` ModRM.reg,
    `m` ModRM.rm, `v` VEX.vvvv. `element` is the size of what may be broadcast. W is 0 in all of them.
    """

    opcode: str
    operands: str
    roles: str
    extension: str
    element: int = 0
    in_bytes: bool = False  # not every assembler that the project is built with knows it

    @property
    def is_evex(self) -> bool:
        return self.opcode.startswith("EVEX")


_FORMS = {
    "VDPPHPS": _Form("EVEX.NP.0F38 52 /r", "v v v/m", "rvm", "AVX10.2", 4, in_bytes=True),
    "VPDPBUSD": _Form("EVEX.66.0F38 50 /r", "v v v/m", "rvm", "AVX512VNNI", 4),
    "VPDPBUSDS": _Form("EVEX.66.0F38 51 /r", "v v v/m", "rvm", "AVX512VNNI", 4),
    "VEX_VPDPBUSD": _Form("VEX.66.0F38 50 /r", "v v v/m", "rvm", "AVX-VNNI", in_bytes=True),
    "VEX_VPDPBUSDS": _Form("VEX.66.0F38 51 /r", "v v v/m", "rvm", "AVX-VNNI", in_bytes=True),
    "VDPBF16PS": _Form("EVEX.F3.0F38 52 /r", "v v v/m", "rvm", "AVX512BF16", 4),
    "VCVTNE2PS2BF16": _Form("EVEX.F2.0F38 72 /r", "v v v/m", "rvm", "AVX512BF16", 4),
    "VCVTNEPS2BF16": _Form("EVEX.F3.0F38 72 /r", "h v/m", "rm", "AVX512BF16", 4),
    "VFMADD231PH": _Form("EVEX.66.MAP6 B8 /r", "v v v/m", "rvm", "AVX512FP16", 2, in_bytes=True),
    "LDTILECFG": _Form("VEX.NP.0F38 49 /0", "m", "m", "AMX-TILE", in_bytes=True),
    "STTILECFG": _Form("VEX.66.0F38 49 /0", "m", "m", "AMX-TILE", in_bytes=True),
    "TILERELEASE": _Form("VEX.NP.0F38 49 /0", "", "", "AMX-TILE", in_bytes=True),
    "TILEZERO": _Form("VEX.F2.0F38 49 /r", "t", "r", "AMX-TILE", in_bytes=True),
    "TILELOADD": _Form("VEX.F2.0F38 4B /r", "t sib", "rm", "AMX-TILE", in_bytes=True),
    "TILELOADDT1": _Form("VEX.66.0F38 4B /r", "t sib", "rm", "AMX-TILE", in_bytes=True),
    "TILESTORED": _Form("VEX.F3.0F38 4B /r", "sib t", "mr", "AMX-TILE", in_bytes=True),
    "TDPBF16PS": _Form("VEX.F3.0F38 5C /r", "t t t", "rmv", "AMX-BF16", in_bytes=True),
    "TDPFP16PS": _Form("VEX.F2.0F38 5C /r", "t t t", "rmv", "AMX-FP16", in_bytes=True),
    "TDPBSSD": _Form("VEX.F2.0F38 5E /r", "t t t", "rmv", "AMX-INT8", in_bytes=True),
    "TDPBSUD": _Form("VEX.F3.0F38 5E /r", "t t t", "rmv", "AMX-INT8", in_bytes=True),
    "TDPBUSD": _Form("VEX.66.0F38 5E /r", "t t t", "rmv", "AMX-INT8", in_bytes=True),
    "TDPBUUD": _Form("VEX.NP.0F38 5E /r", "t t t", "rmv", "AMX-INT8", in_bytes=True),
}  # fmt: skip


MNEMONICS = tuple(_FORMS)


def knows(mnemonic: str) -> bool:
    """Whether the instruction is one of these."""
    return mnemonic in _FORMS


def assemble(mnemonic: str, operands: Sequence[Operand]) -> tuple[str, bytes, frozenset[str]]:
    """An instruction's text, bytes and extensions; raises SyntaxError, as PeachPy does, where operands do not fit."""
    form = _FORMS[mnemonic]
    size = _vector_size(form, operands)
    if size is None:
        raise SyntaxError(f'Invalid operands: "{mnemonic}" takes {form.operands or "none"}')
    where = dict(zip(form.roles, operands, strict=True))
    encoded = _encode(form, where, size)
    name = mnemonic.lower().replace("vex_", "{vex} ")
    text = f"{name} {', '.join(map(str, operands))}".rstrip()
    if form.in_bytes:
        text = f".byte {', '.join(f'{byte:#04x}' for byte in encoded)} /* {text} */"
    extensions = {form.extension}
    if form.is_evex and form.extension.startswith("AVX512") and size < 64:
        extensions.add("AVX512VL")
    return text, encoded, frozenset(extensions)


def _vector_size(form: _Form, operands: Sequence[Operand]) -> int | None:
    """The size of the vectors, 16 where there is none; None where the operands are not those of the form."""
    kinds = form.operands.split()
    if len(kinds) != len(operands):
        return None
    sizes = set()
    for place, (kind, operand) in enumerate(zip(kinds, operands, strict=True)):
        if isinstance(operand, Register):
            if kind in {"v", "v/m"} and operand.kind in _SIZES:
                sizes.add(_SIZES[operand.kind])
            elif not (kind == "h" and operand.kind in {"xmm", "ymm"}) and not (kind == "t" and operand.kind == "tmm"):
                return None
            if operand.mask and (place or not form.is_evex or kind == "t"):
                return None
            if operand.number >= 16 and not form.is_evex:
                return None
        elif isinstance(operand, Memory) and kind in {"v/m", "m", "sib"}:
            if operand.mask or operand.symbol or operand.base is None:
                return None
            if operand.broadcast:
                if operand.size != form.element or not form.element:
                    return None
                sizes.add(operand.broadcast * form.element)
            elif operand.size and kind == "v/m":
                sizes.add(operand.size)
        else:
            return None
    if kinds == ["t", "t", "t"] and len({str(operand) for operand in operands}) < 3:
        return None  # the processor refuses a tile that is given twice
    first = operands[0] if operands else None
    if not sizes and "v/m" in kinds:
        return None
    size = sizes.pop() if sizes else 16
    if kinds[:1] == ["h"] and isinstance(first, Register) and _SIZES[first.kind] != max(16, size // 2):
        return None
    return None if sizes or size not in _SIZES.values() or (size == 64 and not form.is_evex) else size


def _encode(form: _Form, where: dict[str, Operand], size: int) -> bytes:
    prefixes, opcode, extension = form.opcode.split()
    _, prefix, opcodes = prefixes.split(".")
    reg, vvvv, rm = where.get("r"), where.get("v"), where.get("m")
    reg_number = reg.number if isinstance(reg, Register) else int(extension[1:].replace("r", "0"))
    v_number = vvvv.number if isinstance(vvvv, Register) else 0
    unit, broadcast = 1, 0
    if isinstance(rm, Memory):
        if form.is_evex:
            broadcast = 1 if rm.broadcast else 0
            unit = form.element if broadcast else size
        base, index = rm.base.number if rm.base else 0, rm.index.number if rm.index else 0
        x, b = index >> 3 & 1, base >> 3
        tail = _modrm(reg_number & 7, rm, unit, always_sib="sib" in form.operands)
    else:
        rm_number = rm.number if isinstance(rm, Register) else 0
        x, b = rm_number >> 4, rm_number >> 3 & 1
        tail = bytes([0xC0 | (reg_number & 7) << 3 | rm_number & 7])
    r = reg_number >> 3 & 1
    if not form.is_evex:
        # C4, then RXB inverted and the map, then W vvvv L pp with vvvv inverted
        first = (~(r << 2 | x << 1 | b) & 7) << 5 | _MAPS[opcodes]
        second = (~v_number & 15) << 3 | (size == 32) << 2 | _PREFIXES[prefix]
        return bytes([0xC4, first, second, int(opcode, 16)]) + tail
    # 62, then RXBR' inverted and the map, then W vvvv 1 pp with vvvv inverted, then z L'L b V' aaa with V' inverted
    mask = reg.mask if isinstance(reg, Register) else None
    first = (~(r << 3 | x << 2 | b << 1 | reg_number >> 4) & 15) << 4 | _MAPS[opcodes]
    second = (~v_number & 15) << 3 | 4 | _PREFIXES[prefix]
    third = {16: 0, 32: 1, 64: 2}[size] << 5 | broadcast << 4 | (~v_number >> 4 & 1) << 3
    if mask:
        third |= mask.zeroing << 7 | mask.register.number
    return bytes([0x62, first, second, third, int(opcode, 16)]) + tail


def _modrm(reg: int, memory: Memory, unit: int, always_sib: bool) -> bytes:
    """ModRM, SIB and displacement; a displacement of one byte counts units."""
    base = memory.base.number & 7 if memory.base else 0
    displacement = memory.displacement
    if not displacement and base != 5:
        mode, encoded = 0, b""
    elif displacement % unit == 0 and -128 <= displacement // unit < 128:
        mode, encoded = 1, (displacement // unit).to_bytes(1, "little", signed=True)
    else:
        mode, encoded = 2, displacement.to_bytes(4, "little", signed=True)
    if memory.index or always_sib or base == 4:
        index = memory.index.number & 7 if memory.index else 4
        scale = memory.scale.bit_length() - 1 if memory.index else 0
        return bytes([mode << 6 | reg << 3 | 4, scale << 6 | index << 3 | base]) + encoded
    return bytes([mode << 6 | reg << 3 | base]) + encoded
