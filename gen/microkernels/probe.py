"""Loops of registers only, for measuring what the processor can do."""

from __future__ import annotations

from collections.abc import Callable

from gen.contract import PROBE
from gen.dsl import Assembler, Contract, Kernel, Memory, Register, at, vector_unit
from gen.family import Family
from gen.isa import EXTENSIONS, LEVELS
from gen.spec import KernelSpec

OPTIONS: dict[str, int] = {}

_CHAINS = 12  # more than any processor's latency times its multiply-adds a cycle
_TILE_CHAINS = 6  # of eight tiles, two of which are the factors
_REPEATS = 8
_NOPS = 120
_LOOP = 2  # instructions of the loop itself

_PREFIX = "probe_"
_TILE = "probe_tdp"  # products of tiles
_TILE_ROWS, _TILE_BYTES = 16, 64  # of each tile
_SIZES = {"f32": 4, "f16": 2, "bf16": 2, "u8s8": 1, "s8": 1}  # of the factors in bytes; u8s8: unsigned by signed
_ONES = 0x00010001  # two words

Step = Callable[[Register], None]  # adds products to a sum


def _is_nop(spec: KernelSpec) -> bool:
    return spec.operation == "probe_nop"


def _is_tile(spec: KernelSpec) -> bool:
    return spec.operation.startswith(_TILE)


def _steps(spec: KernelSpec) -> int:
    """How often a round adds products to one of the sums."""
    return (_TILE_CHAINS if _is_tile(spec) else _CHAINS) * _REPEATS


def _instructions(spec: KernelSpec) -> int:
    """Instructions of a round, those of the loop included."""
    if _is_nop(spec):
        return _NOPS + _LOOP
    return _steps(spec) * (3 if spec.operation == "probe_vpmaddubsw" else 1) + _LOOP


def _operations(spec: KernelSpec) -> int:
    """Multiplications and additions of a round, of floating-point numbers or of integers."""
    if _is_nop(spec):
        return 0
    sums = _TILE_ROWS * _TILE_BYTES // 4 if _is_tile(spec) else LEVELS[spec.level].lanes
    depth = _TILE_BYTES // 4 if _is_tile(spec) else 1  # in units of the 4 bytes that a sum takes
    return 2 * _steps(spec) * sums * depth * (4 // _SIZES[spec.types[0]])


def _feature(spec: KernelSpec) -> str:
    """What the kernel needs beside its level, by Linux's name; it implies whatever else that is of no use without."""
    return EXTENSIONS[spec.extensions[0]].flag or "none" if spec.extensions else "none"


def _vectors(a: Assembler, spec: KernelSpec) -> tuple[tuple[Register, ...], Step]:
    """The sums, and what adds products to one of them."""
    v = vector_unit(a)
    mnemonic = spec.operation.removeprefix(_PREFIX).upper()
    chains = a.vectors("chain", "independent sums", _CHAINS)
    x = a.vector("x", "both factors")
    a.comment("everything is 0: no denormals, no infinities, whatever the number of rounds")
    for register in (*chains, x):
        v.zero(register)
    if mnemonic == "FMA":
        return chains, lambda chain: v.fma(chain, x, x)
    if mnemonic == "VPMADDUBSW":
        ones = a.vector("ones", "words that are 1, which sum up pairs")
        pairs = a.vector("pairs", "sums of two products, then of four")
        constant = Memory(symbol=a.constant("ones", (_ONES,), 4))
        v.broadcast(ones, constant)

        def step(chain: Register) -> None:
            a.VPMADDUBSW(pairs, x, x)
            a.VPMADDWD(pairs, pairs, ones)
            a.VPADDD(chain, chain, pairs)

        return chains, step
    emit = getattr(a, f"VEX_{mnemonic}" if spec.extensions == ("AVX-VNNI",) else mnemonic)
    return chains, lambda chain: emit(chain, x, x)


def _tiles(a: Assembler, spec: KernelSpec) -> tuple[tuple[Register, ...], Step]:
    """The same of tiles, which become as large as they can be."""
    chains = a.tiles("chain", "independent sums", _TILE_CHAINS)
    x, y = a.tiles("xy", "the factors", 2)
    count = _TILE_CHAINS + 2
    config = bytearray(64)
    config[0] = 1  # the palette
    config[16 : 16 + 2 * count] = _TILE_BYTES.to_bytes(2, "little") * count
    config[48 : 48 + count] = bytes([_TILE_ROWS]) * count
    words = tuple(int.from_bytes(config[i : i + 4], "little") for i in range(0, len(config), 4))
    address = a.general("address", "of the tiles' configuration")
    a.LEA(address, Memory(symbol=a.constant("tiles", words, 64)))
    a.LDTILECFG(at(address))
    a.comment("everything is 0: no denormals, no infinities, whatever the number of rounds")
    for tile in (*chains, x, y):
        a.TILEZERO(tile)
    emit = getattr(a, spec.operation.removeprefix(_PREFIX).upper())
    return chains, lambda chain: emit(chain, x, y)


def build(spec: KernelSpec) -> Kernel:
    """The probe of `spec.operation`: probe_nop, probe_fma or that of an instruction."""
    a = Assembler(spec, LEVELS[spec.level].with_extensions(spec.extensions), PROBE)
    rounds = a.argument("rounds")
    done = a.label("done")
    a.TEST(rounds, rounds)
    a.JZ(done)
    if _is_nop(spec):
        with a.loop("round", rounds, align=64):
            for _ in range(_NOPS):
                a.NOP()
        what = f"{_NOPS} times nothing"
    else:
        chains, step = _tiles(a, spec) if _is_tile(spec) else _vectors(a, spec)
        with a.loop("round", rounds, align=64):
            for _ in range(_REPEATS):
                for chain in chains:
                    step(chain)
        what = f"{len(chains)} chains of {_REPEATS} multiply-adds"
    if _is_tile(spec):
        a.TILERELEASE()
    a.place(done)
    a.ret()
    return a.finish(
        Contract(
            formula=(f"{what}, `rounds` times",),
            extents=("No memory is touched but constants.",),
            notes=(
                f"Instructions per round: {_instructions(spec)}, {_LOOP} of them the loop's. "
                f"Multiplications and additions per round: {_operations(spec)}.",
                *(("The system has to be asked for the tiles first (sdgen_request_tiles).",) if _is_tile(spec) else ()),
            ),
        ),
        "gen/microkernels/probe.py",
    )


def _probe(what: str, type_: str, level: str, *extensions: str) -> KernelSpec:
    return KernelSpec(_PREFIX + what, (type_,), (), level, extensions=extensions)


KERNELS = (
    _probe("fma", "f32", "avx2"),
    _probe("fma", "f32", "avx512"),
    _probe("vfmadd231ph", "f16", "avx512", "AVX512FP16"),
    _probe("vdpbf16ps", "bf16", "avx512", "AVX512BF16"),
    _probe("vpmaddubsw", "u8s8", "avx2"),
    _probe("vpmaddubsw", "u8s8", "avx512"),
    _probe("vpdpbusd", "u8s8", "avx2", "AVX-VNNI"),
    _probe("vpdpbusd", "u8s8", "avx512", "AVX512VNNI"),
    _probe("tdpbf16ps", "bf16", "avx512", "AMX-BF16"),
    _probe("tdpfp16ps", "f16", "avx512", "AMX-FP16"),
    _probe("tdpbssd", "s8", "avx512", "AMX-INT8"),
    _probe("tdpbusd", "u8s8", "avx512", "AMX-INT8"),
    KernelSpec("probe_nop", (), (), "avx2"),
)

FAMILY = Family(
    macro="SDGEN_PROBE_KERNEL",
    columns=("type", "instructions_per_round", "operations_per_round", "feature", "level", "symbol"),
    build=build,
    row=lambda spec: (
        "".join(spec.types),
        _instructions(spec),
        _operations(spec),
        _feature(spec),
        spec.level,
        spec.name,
    ),
    kernels=KERNELS,
    options=OPTIONS,
)
