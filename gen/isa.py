"""Instruction set levels and extensions, as data.

An extension is what a processor says it has; a level is a set of extensions that kernels are written for. Adding either
is adding a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path


class UnknownLevelError(Exception):
    """A name is no level, processor or keyword, or the processor has no level; the message says what exists."""


@dataclass(frozen=True)
class Extension:
    """An extension of the instruction set.

    `name` is PeachPy's; `cpuid` is (leaf, subleaf, register, bit) and None for what every x86-64 processor has; `flag`
    is Linux's name in /proc/cpuinfo; `xcr0` holds the bits of register state that the system must save for it.
    """

    name: str
    implies: tuple[str, ...] = ()
    cpuid: tuple[int, int, str, int] | None = None
    flag: str | None = None
    xcr0: int = 0


@dataclass(frozen=True)
class Level:
    """A level that kernels are written for.

    `adds` are the extensions beyond those of the level that it `implies`; whatever those extensions imply belongs to it
    as well. Its vectors hold `lanes` single-precision numbers, in registers of PeachPy's `vector_kind`.
    """

    name: str
    adds: tuple[str, ...]
    implies: str | None
    vector_kind: str
    lanes: int
    vector_registers: int

    @property
    def extensions(self) -> frozenset[str]:
        """Every extension that the level's kernels may use, by PeachPy's name."""
        below = LEVELS[self.implies].extensions if self.implies else frozenset()
        return below | frozenset(closure(self.adds))

    @property
    def xcr0(self) -> int:
        """The bits of XCR0 that the level's registers need."""
        bits = 0
        for name in self.extensions:
            bits |= EXTENSIONS[name].xcr0
        return bits

    def with_extensions(self, names: Iterable[str]) -> Level:
        """The level with what a kernel needs beside it."""
        return replace(self, adds=(*self.adds, *names))


_AVX_STATE = 0b110  # XMM and YMM
_AVX512_STATE = 0b1110_0000 | _AVX_STATE  # mask registers, upper halves of zmm0 to zmm15, all of zmm16 to zmm31
_AMX_STATE = 0b11 << 17  # configuration of the tiles, their data

EXTENSIONS = {
    extension.name: extension
    for extension in (
        Extension("CMOV"),
        Extension("MMX"),
        Extension("MMX+", ("MMX",)),
        Extension("SSE", ("MMX+",)),
        Extension("SSE2", ("SSE",)),
        Extension("SSE3", ("SSE2",), (1, 0, "ecx", 0), "pni"),
        Extension("SSSE3", ("SSE3",), (1, 0, "ecx", 9), "ssse3"),
        Extension("SSE4.1", ("SSSE3",), (1, 0, "ecx", 19), "sse4_1"),
        Extension("SSE4.2", ("SSE4.1",), (1, 0, "ecx", 20), "sse4_2"),
        Extension("POPCNT", (), (1, 0, "ecx", 23), "popcnt"),
        Extension("MOVBE", (), (1, 0, "ecx", 22), "movbe"),
        Extension("LZCNT", (), (0x80000001, 0, "ecx", 5), "abm"),
        Extension("AVX", ("SSE4.2",), (1, 0, "ecx", 28), "avx", _AVX_STATE),
        Extension("F16C", ("AVX",), (1, 0, "ecx", 29), "f16c", _AVX_STATE),
        Extension("FMA3", ("AVX",), (1, 0, "ecx", 12), "fma", _AVX_STATE),
        Extension("AVX2", ("AVX",), (7, 0, "ebx", 5), "avx2", _AVX_STATE),
        Extension("BMI", (), (7, 0, "ebx", 3), "bmi1"),
        Extension("BMI2", ("BMI",), (7, 0, "ebx", 8), "bmi2"),
        Extension("AVX-VNNI", ("AVX2",), (7, 1, "eax", 4), "avx_vnni", _AVX_STATE),
        Extension("AVX512F", ("AVX2", "FMA3", "F16C"), (7, 0, "ebx", 16), "avx512f", _AVX512_STATE),
        Extension("AVX512DQ", ("AVX512F",), (7, 0, "ebx", 17), "avx512dq", _AVX512_STATE),
        Extension("AVX512BW", ("AVX512F",), (7, 0, "ebx", 30), "avx512bw", _AVX512_STATE),
        Extension("AVX512VL", ("AVX512F",), (7, 0, "ebx", 31), "avx512vl", _AVX512_STATE),
        Extension("AVX512VNNI", ("AVX512F",), (7, 0, "ecx", 11), "avx512_vnni", _AVX512_STATE),
        Extension("AVX512BF16", ("AVX512BW",), (7, 1, "eax", 5), "avx512_bf16", _AVX512_STATE),
        Extension("AVX512FP16", ("AVX512BW",), (7, 0, "edx", 23), "avx512_fp16", _AVX512_STATE),
        Extension("AMX-TILE", (), (7, 0, "edx", 24), "amx_tile", _AMX_STATE),
        Extension("AMX-BF16", ("AMX-TILE",), (7, 0, "edx", 22), "amx_bf16", _AMX_STATE),
        Extension("AMX-INT8", ("AMX-TILE",), (7, 0, "edx", 25), "amx_int8", _AMX_STATE),
        Extension("AMX-FP16", ("AMX-TILE",), (7, 1, "eax", 21), "amx_fp16", _AMX_STATE),
    )
}


def closure(names: Iterable[str]) -> Iterator[str]:
    """The extensions and whatever they imply, in the order of the table."""
    wanted = set(names)
    for extension in reversed(EXTENSIONS.values()):  # what is implied stands above what implies it
        if extension.name in wanted:
            wanted.update(extension.implies)
    return (name for name in EXTENSIONS if name in wanted)


LEVELS = {
    level.name: level
    for level in (
        # Of x86-64-v3 what the runtime asks CPUID for (runtime/select.c).
        Level(
            "avx2",
            adds=("CMOV", "F16C", "FMA3", "AVX2"),
            implies=None,
            vector_kind="ymm",
            lanes=8,
            vector_registers=16,
        ),
        # x86-64-v4 without AVX512CD, which no kernel needs
        Level(
            "avx512",
            adds=("BMI2", "AVX512F", "AVX512VL", "AVX512BW", "AVX512DQ"),
            implies="avx2",
            vector_kind="zmm",
            lanes=16,
            vector_registers=32,
        ),
    )
}

# ggml's names of processors (GGML_CPU_ALL_VARIANTS) and the levels they have, whether kernels exist for those or not.
PROCESSORS = {
    "x64": (),
    "sse42": (),
    "sandybridge": (),
    "ivybridge": (),
    "piledriver": (),
    "haswell": ("avx2",),
    "skylakex": ("avx2", "avx512"),
    "cannonlake": ("avx2", "avx512"),
    "cascadelake": ("avx2", "avx512"),
    "cooperlake": ("avx2", "avx512"),
    "icelake": ("avx2", "avx512"),
    "zen4": ("avx2", "avx512"),
    "alderlake": ("avx2",),
    "sapphirerapids": ("avx2", "avx512", "amx"),
}


def choices() -> str:
    """What `--isa` takes, for messages."""
    return f"levels {', '.join(LEVELS)}; processors {', '.join(PROCESSORS)}; native; all"


def native_extensions(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The extensions that this machine's processor and system have, by Linux's list of flags."""
    match = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    if match is None:
        raise UnknownLevelError(f"native: no list of flags in {cpuinfo}; name a level instead: {choices()}")
    flags = {None, *match[1].split()}
    return frozenset(extension.name for extension in EXTENSIONS.values() if extension.flag in flags)


def native_levels(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    """The levels that this machine's processor and system have."""
    found = native_extensions(cpuinfo)
    return tuple(level.name for level in LEVELS.values() if level.extensions <= found)


def parse_levels(text: str) -> tuple[str, ...]:
    """The levels that the value of `--isa` stands for, lowest first; raises UnknownLevelError."""
    wanted: set[str] = set()
    for name in text.split(","):
        if name in LEVELS:
            found: tuple[str, ...] = (name,)
        elif name == "all":
            found = tuple(LEVELS)
        elif name == "native":
            found = native_levels()
        elif name in PROCESSORS:
            found = tuple(level for level in PROCESSORS[name] if level in LEVELS)
        else:
            raise UnknownLevelError(f"unknown level {name!r}; there are: {choices()}")
        if not found:
            raise UnknownLevelError(f"{name} has none of the levels that kernels exist for: {', '.join(LEVELS)}")
        wanted.update(found)
    return tuple(name for name in LEVELS if name in wanted)
