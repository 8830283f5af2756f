"""Detection, selection and configuration, with made-up processors."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

import pytest

from tests import sdgen_native as native
from tests.sdgen_native import Feature, Form, Level

FMA, OSXSAVE, AVX, F16C, AVX2 = 1 << 12, 1 << 27, 1 << 28, 1 << 29, 1 << 5
XMM, YMM, ZMM = 1 << 1, 1 << 2, 7 << 5
ALL = Feature.AVX2 | Feature.FMA | Feature.F16C


@dataclass(frozen=True)
class MadeUp:
    """What CPUID and XCR0 say."""

    max_leaf: int
    leaf1_ecx: int
    leaf7_ebx: int
    xcr0: int


HASWELL = MadeUp(13, 0x7FFAFBFF, 0x000027AB, 1 | XMM | YMM)
ZEN3 = MadeUp(16, 0x7EF8320B, 0x219C97A9, 1 | XMM | YMM)
ZEN4 = MadeUp(16, 0x7EFA320B, 0xF1BF97A9, 1 | XMM | YMM | ZMM)
SANDY_BRIDGE = MadeUp(13, 0x1FBAE3FF, 0, 1 | XMM | YMM)
NEHALEM = MadeUp(11, 0x0098E3BD, 0, 0)

PROCESSORS = {
    "haswell": (HASWELL, ALL),
    "zen3": (ZEN3, ALL),
    "zen4": (ZEN4, ALL),
    "sandybridge": (SANDY_BRIDGE, 0),
    "nehalem": (NEHALEM, 0),
    "haswell without OSXSAVE": (replace(HASWELL, leaf1_ecx=HASWELL.leaf1_ecx & ~OSXSAVE, xcr0=0), 0),
    "haswell, system hides YMM": (replace(HASWELL, xcr0=1 | XMM), 0),
    "haswell, system hides XMM": (replace(HASWELL, xcr0=1 | YMM), 0),
    "haswell without AVX": (replace(HASWELL, leaf1_ecx=HASWELL.leaf1_ecx & ~AVX), 0),
    "haswell without FMA": (replace(HASWELL, leaf1_ecx=HASWELL.leaf1_ecx & ~FMA), Feature.AVX2 | Feature.F16C),
    "haswell without F16C": (replace(HASWELL, leaf1_ecx=HASWELL.leaf1_ecx & ~F16C), Feature.AVX2 | Feature.FMA),
    "haswell without AVX2": (replace(HASWELL, leaf7_ebx=HASWELL.leaf7_ebx & ~AVX2), Feature.FMA | Feature.F16C),
    "haswell without leaf 7": (replace(HASWELL, max_leaf=6), Feature.FMA | Feature.F16C),
    "nothing": (MadeUp(0, 0, 0, 0), 0),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_features(name: str) -> None:
    made_up, expected = PROCESSORS[name]
    cpuid = native.Cpuid(made_up.max_leaf, made_up.leaf1_ecx, made_up.leaf7_ebx, made_up.xcr0)
    assert native.sdgen_features(ctypes.byref(cpuid)) == expected


@pytest.mark.parametrize("features", range(8))
def test_avx2_needs_all_of_its_features(features: int) -> None:
    expected = Level.AVX2 if features == ALL else Level.C
    assert native.sdgen_select_level(features, Form.ASSEMBLY, Level.AVX2) == expected


def test_cap_and_form_hold_the_level_down() -> None:
    assert native.sdgen_select_level(ALL, Form.ASSEMBLY, Level.C) == Level.C
    assert native.sdgen_select_level(ALL, Form.C, Level.AVX2) == Level.C


def test_processor() -> None:
    processor = native.sdgen_processor().contents
    assert processor.l1 > 0 and processor.l2 > 0 and processor.l3 > 0
    assert ctypes.addressof(native.sdgen_processor().contents) == ctypes.addressof(processor)


def test_every_level_has_a_name_and_kernels_in_c_are_built() -> None:
    assert [native.level_name(level) for level in Level] == ["c", "avx2"]
    assert native.sdgen_kernels(Level.C)


@pytest.mark.parametrize("caches", [(1, 1, 1), (32 << 10, 256 << 10, 8 << 20), (48 << 10, 2 << 20, 1 << 30)], ids=str)
def test_blocking_is_positive(caches: tuple[int, int, int]) -> None:
    blocking = native.sdgen_blocking(ctypes.byref(native.Processor(ALL, *caches, b"")))
    assert min(blocking.kc, blocking.mc, blocking.nc, blocking.packed_bytes) > 0


# ---- the environment ----


def configure(monkeypatch: pytest.MonkeyPatch, **variables: str) -> tuple[bool, native.Config, str]:
    for name in ("SDGEN_KERNELS", "SDGEN_ISA", "SDGEN_VERBOSE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config, message = native.Config(-1, -1, -1), ctypes.create_string_buffer(300)
    passed: bool = native.sdgen_config_from_environment(ctypes.byref(config), message, len(message))
    return passed, config, message.value.decode()


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, config, _ = configure(monkeypatch)
    assert passed
    assert (config.form, config.cap, config.verbose) == (Form.ASSEMBLY, max(Level), 0)


@pytest.mark.parametrize("value, form", [("assembly", Form.ASSEMBLY), ("c", Form.C), ("upstream", Form.UPSTREAM)])
def test_kernels(monkeypatch: pytest.MonkeyPatch, value: str, form: Form) -> None:
    passed, config, _ = configure(monkeypatch, SDGEN_KERNELS=value)
    assert passed and config.form == form


def test_isa_and_verbose(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, config, _ = configure(monkeypatch, SDGEN_ISA="avx2", SDGEN_VERBOSE="1")
    assert passed and (config.cap, config.verbose) == (Level.AVX2, 1)


@pytest.mark.parametrize(
    "variable, value, allowed",
    [
        ("SDGEN_KERNELS", "nonsense", ("assembly", "c", "upstream")),
        ("SDGEN_KERNELS", "Assembly", ("assembly", "c", "upstream")),
        ("SDGEN_KERNELS", "assemblyx", ("assembly", "c", "upstream")),
        ("SDGEN_ISA", "avx1024", ("avx2",)),
        ("SDGEN_ISA", "avx", ("avx2",)),
        ("SDGEN_VERBOSE", "yes", ("0", "1")),
        ("SDGEN_VERBOSE", "11", ("0", "1")),
    ],
)
def test_wrong_value(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, allowed: tuple[str, ...]) -> None:
    passed, _, message = configure(monkeypatch, **{variable: value})
    assert not passed
    assert "\n" not in message
    for word in (variable, value, *allowed):
        assert word in message


def test_message_is_cut_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDGEN_ISA", "x" * 1000)
    message = ctypes.create_string_buffer(b"\xff" * 64, 64)
    assert not native.sdgen_config_from_environment(ctypes.byref(native.Config()), message, 32)
    assert len(message.raw.split(b"\0")[0]) < 32 and message.raw[32:] == b"\xff" * 32
