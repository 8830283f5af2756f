"""Instructions that PeachPy does not know: the bytes that the DSL makes, compared with GNU as or worked out by hand."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gen import isa
from gen.dsl import DslError, LevelError, Memory, Register, at, encodings
from tests.test_generator import assert_same_encoding, instructions_at

# AVX10.2 has no bit of its own in CPUID, so it is no row of the table before a level needs it.
AVX10_2 = isa.Extension("AVX10.2", ("AVX512VL", "AVX512BW", "AVX512DQ"))
LEVEL = isa.Level(
    "everything",
    ("AVX-VNNI", "AVX512VNNI", "AVX512BF16", "AVX512FP16", "AMX-BF16", "AMX-INT8", "AMX-FP16", "AVX10.2"),
    implies="avx512",
    vector_kind="zmm",
    lanes=16,
    vector_registers=32,
)
RAX, RCX, RBP, RSP_LIKE, R13, R14 = (Register("r64", number) for number in (0, 1, 5, 12, 13, 14))
K5 = Register("k", 5)
SIZES = {"xmm": 16, "ymm": 32, "zmm": 64}


@pytest.fixture(autouse=True)
def avx10_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(isa.EXTENSIONS, "AVX10.2", AVX10_2)


def places(size: int | None) -> list[Memory]:
    """Addresses that are encoded in different ways: base, index, displacements of no byte, one and four."""
    return [
        Memory(base, index, scale, displacement, size)
        for base, (index, scale), displacement in product(
            (RAX, RBP, RSP_LIKE, R13), ((None, 1), (RCX, 1), (R14, 8)), (0, 64, -128, 100, 4096, -8192)
        )
    ]


def three_vectors(mnemonic: str, kinds: tuple[str, ...], highest: int, element: int) -> list[tuple[Any, ...]]:
    """Forms with every kind of register and with memory; with masks and broadcasts where `element` is not 0."""
    forms: list[tuple[Any, ...]] = []
    for kind in kinds:
        low, middle, high = (Register(kind, number) for number in (1, 10, highest))
        forms += [(mnemonic, *registers) for registers in product((low, middle, high), repeat=3)]
        forms += [(mnemonic, high, middle, place) for place in places(SIZES[kind])]
        if element:
            forms += [(mnemonic, high.masked(K5, zeroing), low, middle) for zeroing in (False, True)]
            forms += [
                (mnemonic, low.masked(K5), high, Memory(RAX, None, 1, displacement, element, broadcast=lanes))
                for displacement in (0, 4, 64, 512, -512, 6)
                for lanes in (SIZES[kind] // element,)
            ]
    return forms


IN_BYTES = re.compile(r"\.byte .* /\* (.*) \*/")
TILES = [Register("tmm", number) for number in range(8)]
FORMS = {
    **{
        name: three_vectors(name, ("xmm", "ymm", "zmm"), 31, 2 if name == "VFMADD231PH" else 4)
        for name in ("VPDPBUSD", "VPDPBUSDS", "VDPBF16PS", "VCVTNE2PS2BF16", "VFMADD231PH")
    },
    **{name: three_vectors(name, ("xmm", "ymm"), 15, 0) for name in ("VEX_VPDPBUSD", "VEX_VPDPBUSDS")},
    "VCVTNEPS2BF16": [
        (name, Register(half, 17).masked(K5, zeroing=True), source)
        for name, half, kind in (("VCVTNEPS2BF16", *pair) for pair in (("xmm", "xmm"), ("xmm", "ymm"), ("ymm", "zmm")))
        for source in (Register(kind, 1), Register(kind, 30), *places(SIZES[kind]))
    ],
    "LDTILECFG": [("LDTILECFG", place) for place in places(None)],
    "STTILECFG": [("STTILECFG", place) for place in places(None)],
    "TILERELEASE": [("TILERELEASE",)],
    "TILEZERO": [("TILEZERO", tile) for tile in TILES],
    "TILELOADD": [("TILELOADD", TILES[5], place) for place in places(None)],
    "TILELOADDT1": [("TILELOADDT1", TILES[0], place) for place in places(None)],
    "TILESTORED": [("TILESTORED", place, TILES[7]) for place in places(None)],
    **{
        name: [(name, TILES[i], TILES[(i + 3) % 8], TILES[(i + 5) % 8]) for i in range(8)]
        for name in ("TDPBF16PS", "TDPFP16PS", "TDPBSSD", "TDPBSUD", "TDPBUSD", "TDPBUUD")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_bytes_are_those_of_gnu_as(name: str, tmp_path: Path) -> None:
    instructions = instructions_at(LEVEL, FORMS[name])
    assert all(instruction.encoding for instruction in instructions)
    assert_same_encoding([(i.text, i.encoding) for i in instructions if i.encoding], tmp_path)
    # What is written as bytes: the text in their comment as well.
    texts = [(IN_BYTES.sub(r"\1", i.text), i.encoding) for i in instructions if i.encoding]
    assert_same_encoding(texts, tmp_path)


# EVEX.NP.0F38.W0 52 /r: 62, then RXBR' inverted with the map 2, W vvvv 1 pp, z L'L b V' aaa
VDPPHPS = (
    ("zmm1, zmm2, zmm3", "62 f2 6c 48 52 cb"),
    ("ymm1, ymm2, ymm3", "62 f2 6c 28 52 cb"),
    ("xmm1, xmm2, xmm3", "62 f2 6c 08 52 cb"),
    ("zmm31, zmm30, zmm29", "62 02 0c 40 52 fd"),
    ("zmm16, zmm8, zmm9", "62 c2 3c 48 52 c1"),
    ("zmm1{k5}, zmm2, zmm3", "62 f2 6c 4d 52 cb"),
    ("zmm1{k5}{z}, zmm2, zmm3", "62 f2 6c cd 52 cb"),
    ("zmm1, zmm2, [rax]", "62 f2 6c 48 52 08"),
    ("zmm1, zmm2, [rax+64]", "62 f2 6c 48 52 48 01"),
    ("zmm1, zmm2, [rax-8192]", "62 f2 6c 48 52 48 80"),
    ("zmm1, zmm2, [rax+100]", "62 f2 6c 48 52 88 64 00 00 00"),
    ("ymm1, ymm2, [r13+rcx*4+32]", "62 d2 6c 28 52 4c 8d 01"),
    ("zmm1, zmm2, [r12+r14*8]", "62 92 6c 48 52 0c f4"),
    ("zmm1, zmm2, dword ptr [rax+4]{1to16}", "62 f2 6c 58 52 48 01"),
)


def parsed(text: str) -> list[Register | Memory]:
    """The operands of a text of Intel's syntax, as far as those above need it."""
    operands: list[Register | Memory] = []
    for part in text.split(", "):
        if register := re.fullmatch(r"([xyz]mm)(\d+)(\{k5\})?(\{z\})?", part):
            plain = Register(register[1], int(register[2]))
            operands.append(plain.masked(K5, bool(register[4])) if register[3] else plain)
            continue
        names = {str(register): register for register in (RAX, RCX, RSP_LIKE, R13, R14)}
        memory = re.search(r"\[(\w+)(?:\+(r\w+)\*(\d))?([+-]\d+)?\]", part)
        assert memory, part
        base, index, scale, displacement = memory.groups()
        place = at(names[base], int(displacement or 0), index=names.get(index), scale=int(scale or 1))
        broadcast = "1to16" in part
        operands.append(
            Memory(place.base, place.index, place.scale, place.displacement, 4, broadcast=16) if broadcast else place
        )
    return operands


@pytest.mark.parametrize(("operands", "expected"), VDPPHPS)
def test_vdpphps(operands: str, expected: str) -> None:
    instruction = instructions_at(LEVEL, [("VDPPHPS", *parsed(operands))])[-1]
    assert instruction.encoding == bytes.fromhex(expected)
    written = ", ".join(f"0x{byte}" for byte in expected.split())
    assert instruction.text == f".byte {written} /* vdpphps {operands} */"
    assert instruction.extensions == {"AVX10.2"}


def test_every_instruction_is_tested() -> None:
    assert {*FORMS, "VDPPHPS"} == set(encodings.MNEMONICS)


@pytest.mark.parametrize(
    "form",
    [
        ("VDPPHPS", Register("zmm", 1), Register("ymm", 2), Register("zmm", 3)),
        ("VDPPHPS", Register("zmm", 1), Register("zmm", 2)),
        ("VDPPHPS", Register("zmm", 1), Register("zmm", 2), 3),
        ("VDPPHPS", Register("zmm", 1), Register("zmm", 2), Memory(RAX, size=2, broadcast=32)),
        ("VEX_VPDPBUSD", Register("zmm", 1), Register("zmm", 2), Register("zmm", 3)),
        ("VEX_VPDPBUSD", Register("ymm", 16), Register("ymm", 2), Register("ymm", 3)),
        ("VEX_VPDPBUSD", Register("ymm", 1).masked(K5), Register("ymm", 2), Register("ymm", 3)),
        ("VCVTNEPS2BF16", Register("ymm", 1), Register("ymm", 2)),
        ("VCVTNEPS2BF16", Register("xmm", 1), at(RAX)),
        ("TILEZERO", Register("zmm", 1)),
        ("TDPBF16PS", TILES[0], TILES[0], TILES[1]),
        ("TILELOADD", TILES[0], TILES[1]),
    ],
)
def test_operands_that_do_not_fit(form: tuple[Any, ...]) -> None:
    with pytest.raises(DslError, match=f'"{form[0]}"'):
        instructions_at(LEVEL, [form])


def test_they_need_their_extension() -> None:
    with pytest.raises(LevelError, match=r"VDPPHPS needs AVX10\.2, which level avx512 does not have"):
        instructions_at(isa.LEVELS["avx512"], [("VDPPHPS", *(Register("zmm", 1),) * 3)])
