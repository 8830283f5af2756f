"""Detection, selection and configuration, with made-up processors."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

import pytest

from tests import sdgen_native as native
from tests.sdgen_native import Feature, Form, Level

XMM, YMM, ZMM, TILES = 1 << 1, 1 << 2, 7 << 5, 3 << 17
AVX2 = Feature.AVX2 | Feature.FMA | Feature.F16C  # what the level needs
AVX512 = AVX2 | Feature.BMI2 | Feature.AVX512F | Feature.AVX512DQ | Feature.AVX512BW | Feature.AVX512VL
AMX = Feature.AMX_TILE | Feature.AMX_BF16 | Feature.AMX_INT8

# Where CPUID shows each feature: field of struct sdgen_cpuid and bit, by Intel's manual.
BITS = {
    Feature.AVX2: ("leaf7_ebx", 5),
    Feature.FMA: ("leaf1_ecx", 12),
    Feature.F16C: ("leaf1_ecx", 29),
    Feature.AVX_VNNI: ("leaf7_1_eax", 4),
    Feature.AVX512F: ("leaf7_ebx", 16),
    Feature.AVX512DQ: ("leaf7_ebx", 17),
    Feature.AVX512BW: ("leaf7_ebx", 30),
    Feature.AVX512VL: ("leaf7_ebx", 31),
    Feature.AVX512_VNNI: ("leaf7_ecx", 11),
    Feature.AVX512_BF16: ("leaf7_1_eax", 5),
    Feature.AVX512_FP16: ("leaf7_edx", 23),
    Feature.AVX10_2: ("leaf7_1_edx", 19),
    Feature.AMX_TILE: ("leaf7_edx", 24),
    Feature.AMX_BF16: ("leaf7_edx", 22),
    Feature.AMX_INT8: ("leaf7_edx", 25),
    Feature.AMX_FP16: ("leaf7_1_eax", 21),
    Feature.BMI2: ("leaf7_ebx", 8),
}
OSXSAVE, AVX = ("leaf1_ecx", 27), ("leaf1_ecx", 28)


@dataclass(frozen=True)
class MadeUp:
    """What CPUID and XCR0 say: bits that are set, and the rest of struct sdgen_cpuid."""

    bits: frozenset[tuple[str, int]]
    xcr0: int
    max_leaf: int = 0x24
    avx10_version: int = 0
    tiles_permitted: bool = True

    def features(self) -> Feature:
        """What sdgen_features makes of it."""
        cpuid = native.Cpuid(max_leaf=self.max_leaf, leaf24_ebx=self.avx10_version, xcr0=self.xcr0)
        cpuid.tiles_permitted = self.tiles_permitted
        for field, bit in self.bits:
            setattr(cpuid, field, getattr(cpuid, field) | 1 << bit)
        return Feature(native.sdgen_features(ctypes.byref(cpuid)))

    def without(self, *bits: tuple[str, int]) -> MadeUp:
        return replace(self, bits=self.bits - frozenset(bits))


def with_features(features: Feature, xcr0: int, avx10_version: int = 0) -> MadeUp:
    return MadeUp(frozenset({OSXSAVE, AVX, *(BITS[one] for one in features)}), 1 | xcr0, avx10_version=avx10_version)


AVX_STATE, AVX512_STATE, AMX_STATE = XMM | YMM, XMM | YMM | ZMM, XMM | YMM | ZMM | TILES
INTEL_SERVER = AVX512 | Feature.AVX512_VNNI | Feature.AVX512_BF16 | Feature.AVX512_FP16 | Feature.AVX_VNNI | AMX
HASWELL = with_features(AVX2, AVX_STATE)
SKYLAKE_X = with_features(AVX512, AVX512_STATE)
ICE_LAKE = with_features(AVX512 | Feature.AVX512_VNNI, AVX512_STATE)
ALDER_LAKE = with_features(AVX2 | Feature.AVX_VNNI, AVX_STATE)
ZEN4 = with_features(AVX512 | Feature.AVX512_VNNI | Feature.AVX512_BF16, AVX512_STATE)
ZEN5 = with_features(AVX512 | Feature.AVX512_VNNI | Feature.AVX512_BF16 | Feature.AVX_VNNI, AVX512_STATE)
SAPPHIRE_RAPIDS = with_features(INTEL_SERVER, AMX_STATE)
GRANITE_RAPIDS = with_features(INTEL_SERVER | Feature.AMX_FP16, AMX_STATE)
DIAMOND_RAPIDS = with_features(INTEL_SERVER | Feature.AMX_FP16 | Feature.AVX10_2, AMX_STATE, avx10_version=2)

# Every one of them, and what is left of its features.
PROCESSORS: dict[str, tuple[MadeUp, Feature]] = {
    "haswell": (HASWELL, AVX2),
    "zen3": (HASWELL, AVX2),
    "skylake-x": (SKYLAKE_X, AVX512),
    "icelake": (ICE_LAKE, AVX512 | Feature.AVX512_VNNI),
    "alderlake": (ALDER_LAKE, AVX2 | Feature.AVX_VNNI),
    "zen4": (ZEN4, AVX512 | Feature.AVX512_VNNI | Feature.AVX512_BF16),
    "zen5": (ZEN5, AVX512 | Feature.AVX512_VNNI | Feature.AVX512_BF16 | Feature.AVX_VNNI),
    "sapphirerapids": (SAPPHIRE_RAPIDS, INTEL_SERVER),
    "graniterapids": (GRANITE_RAPIDS, INTEL_SERVER | Feature.AMX_FP16),
    "diamondrapids": (DIAMOND_RAPIDS, INTEL_SERVER | Feature.AMX_FP16 | Feature.AVX10_2),
    "AVX10.1": (replace(DIAMOND_RAPIDS, avx10_version=1), INTEL_SERVER | Feature.AMX_FP16),
    "sandybridge": (MadeUp(frozenset({OSXSAVE, AVX}), 1 | AVX_STATE), Feature(0)),
    "nehalem": (MadeUp(frozenset(), 0, max_leaf=11), Feature(0)),
    "without OSXSAVE": (replace(GRANITE_RAPIDS.without(OSXSAVE), xcr0=0), Feature(0)),
    "without AVX": (GRANITE_RAPIDS.without(AVX), Feature(0)),
    "system hides YMM": (replace(GRANITE_RAPIDS, xcr0=1 | XMM), Feature.BMI2),
    "system hides XMM": (replace(HASWELL, xcr0=1 | YMM), Feature(0)),
    "system hides ZMM": (
        replace(GRANITE_RAPIDS, xcr0=1 | AVX_STATE | TILES),
        AVX2 | Feature.BMI2 | Feature.AVX_VNNI | AMX | Feature.AMX_FP16,
    ),
    "system hides masks": (replace(SKYLAKE_X, xcr0=1 | XMM | YMM | 6 << 5), AVX2 | Feature.BMI2),
    "system hides ZMM16-31": (replace(SKYLAKE_X, xcr0=1 | XMM | YMM | 3 << 5), AVX2 | Feature.BMI2),
    "system hides TILEDATA": (replace(SAPPHIRE_RAPIDS, xcr0=1 | AVX512_STATE | 1 << 17), INTEL_SERVER & ~AMX),
    "tiles not permitted": (replace(SAPPHIRE_RAPIDS, tiles_permitted=False), INTEL_SERVER & ~AMX),
    "without FMA": (HASWELL.without(BITS[Feature.FMA]), AVX2 & ~Feature.FMA),
    "without AVX512F": (ICE_LAKE.without(BITS[Feature.AVX512F]), AVX2 | Feature.BMI2),
    "without AVX512VL": (SKYLAKE_X.without(BITS[Feature.AVX512VL]), AVX512 & ~Feature.AVX512VL),
    "without leaf 7": (replace(GRANITE_RAPIDS, max_leaf=6), Feature.FMA | Feature.F16C),
    "nothing": (MadeUp(frozenset(), 0, max_leaf=0), Feature(0)),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_features(name: str) -> None:
    made_up, expected = PROCESSORS[name]
    assert made_up.features() == expected


def level_of(features: Feature) -> Level:
    return Level(native.sdgen_select_level(features, Form.ASSEMBLY, max(Level)))


@pytest.mark.parametrize("name", PROCESSORS)
def test_masking_any_bit_falls_back(name: str) -> None:
    """With any bit of CPUID or XCR0 taken away the features shrink, and so does the level."""
    made_up, _ = PROCESSORS[name]
    whole = made_up.features()
    masked = [made_up.without(bit) for bit in made_up.bits]
    masked += [replace(made_up, xcr0=made_up.xcr0 & ~(1 << bit)) for bit in range(20)]
    for less in masked:
        features = less.features()
        assert features & ~whole == 0
        level = level_of(features)
        assert level <= level_of(whole)
        assert level < Level.AVX512 or features & AVX512 == AVX512
        assert level < Level.AVX2 or features & AVX2 == AVX2


@pytest.mark.parametrize(
    "name, level",
    [
        ("haswell", Level.AVX2),
        ("zen3", Level.AVX2),
        ("skylake-x", Level.AVX512),
        ("icelake", Level.AVX512),
        ("alderlake", Level.AVX2),
        ("zen4", Level.AVX512),
        ("zen5", Level.AVX512),
        ("sapphirerapids", Level.AVX512),
        ("graniterapids", Level.AVX512),
        ("system hides ZMM", Level.AVX2),
        ("system hides YMM", Level.C),
        ("nehalem", Level.C),
    ],
)
def test_level(name: str, level: Level) -> None:
    features = PROCESSORS[name][0].features()
    assert level_of(features) == level
    for cap in Level:
        assert native.sdgen_select_level(features, Form.ASSEMBLY, cap) == min(level, cap)


@pytest.mark.parametrize("missing", range(8))
def test_avx2_needs_all_of_its_features(missing: int) -> None:
    features = AVX2 & ~missing
    assert level_of(features) == (Level.AVX2 if features == AVX2 else Level.C)


def test_feature_names() -> None:
    names = [native.sdgen_feature_name(bit) for bit in range(len(Feature))]
    assert names == [feature.name.lower().encode() for feature in Feature if feature.name]
    assert native.sdgen_feature_name(len(Feature)) is None and native.sdgen_feature_name(99) is None


def test_cap_and_form_hold_the_level_down() -> None:
    assert native.sdgen_select_level(AVX512, Form.ASSEMBLY, Level.C) == Level.C
    assert native.sdgen_select_level(AVX512, Form.C, max(Level)) == Level.C


def test_processor() -> None:
    processor = native.sdgen_processor().contents
    assert processor.l1 > 0 and processor.l2 > 0 and processor.l3 > 0
    assert ctypes.addressof(native.sdgen_processor().contents) == ctypes.addressof(processor)


def test_every_level_has_a_name_and_kernels_in_c_are_built() -> None:
    assert [native.level_name(level) for level in Level] == ["c", "avx2", "avx512"]
    assert native.sdgen_kernels(Level.C)


@pytest.mark.parametrize("caches", [(1, 1, 1), (32 << 10, 256 << 10, 8 << 20), (48 << 10, 2 << 20, 1 << 30)], ids=str)
def test_blocking_is_positive(caches: tuple[int, int, int]) -> None:
    blocking = native.sdgen_blocking(ctypes.byref(native.Processor(AVX512, *caches, b"")))
    assert min(blocking.kc, blocking.mc, blocking.nc, blocking.packed_bytes) > 0


# ---- the environment ----


def configure(monkeypatch: pytest.MonkeyPatch, **variables: str) -> tuple[bool, native.Config, str]:
    for name in ("SDGEN_KERNELS", "SDGEN_ISA", "SDGEN_VERBOSE", "SDGEN_PROFILE", "SDGEN_STORE_MB", "SDGEN_TUNE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config, message = native.Config(-9, -9, -9, -9, -9), ctypes.create_string_buffer(300)
    passed: bool = native.sdgen_config_from_environment(ctypes.byref(config), message, len(message))
    return passed, config, message.value.decode()


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, config, _ = configure(monkeypatch)
    assert passed
    assert (config.form, config.cap, config.verbose, config.tuning.winograd) == (Form.ASSEMBLY, max(Level), 0, -1)
    assert (config.profile, config.trace) == (0, None)
    assert config.store_mb == 0
    assert {getattr(config.tuning, name) for name, *_ in native.Tuning._fields_} == {-1}


@pytest.mark.parametrize("m", [0, 2, 3, 4])
def test_tune(monkeypatch: pytest.MonkeyPatch, m: int) -> None:
    passed, config, _ = configure(monkeypatch, SDGEN_TUNE=f"winograd={m}")
    assert passed and config.tuning.winograd == m


@pytest.mark.parametrize("reuse", [0, 1])
@pytest.mark.parametrize("megabytes", [0, 1, 1 << 20])
def test_what_is_kept(monkeypatch: pytest.MonkeyPatch, reuse: int, megabytes: int) -> None:
    passed, config, _ = configure(monkeypatch, SDGEN_TUNE=f"reuse={reuse}", SDGEN_STORE_MB=str(megabytes))
    assert passed and (config.store_mb, config.tuning.reuse) == (megabytes, reuse)


@pytest.mark.parametrize("value, form", [("assembly", Form.ASSEMBLY), ("c", Form.C), ("upstream", Form.UPSTREAM)])
def test_kernels(monkeypatch: pytest.MonkeyPatch, value: str, form: Form) -> None:
    passed, config, _ = configure(monkeypatch, SDGEN_KERNELS=value)
    assert passed and config.form == form


def test_isa_and_verbose(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, config, _ = configure(monkeypatch, SDGEN_ISA="avx2", SDGEN_VERBOSE="1")
    assert passed and (config.cap, config.verbose) == (Level.AVX2, 1)


@pytest.mark.parametrize(
    ("value", "profile", "trace"),
    [("", 0, None), ("0", 0, None), ("1", 1, None), ("trace.json", 1, "trace.json"), ("/a b/.json", 1, "/a b/.json")],
)
def test_profile(monkeypatch: pytest.MonkeyPatch, value: str, profile: int, trace: str | None) -> None:
    passed, config, _ = configure(monkeypatch, SDGEN_PROFILE=value)
    assert passed and (config.profile, config.trace and config.trace.decode()) == (profile, trace)


@pytest.mark.parametrize(
    "variable, value, allowed",
    [
        ("SDGEN_KERNELS", "nonsense", ("assembly", "c", "upstream")),
        ("SDGEN_KERNELS", "Assembly", ("assembly", "c", "upstream")),
        ("SDGEN_KERNELS", "assemblyx", ("assembly", "c", "upstream")),
        ("SDGEN_ISA", "avx1024", ("avx2", "avx512")),
        ("SDGEN_ISA", "avx", ("avx2",)),
        ("SDGEN_VERBOSE", "yes", ("0", "1")),
        ("SDGEN_VERBOSE", "11", ("0", "1")),
        *(
            ("SDGEN_PROFILE", value, ("0", "1", ".json"))
            for value in ("2", "trace", "trace.json5", "json", ".JSON", "1 ")
        ),
        *(
            ("SDGEN_STORE_MB", value, ("0 to 1048576",))
            for value in ("-1", "+1", " 1", "1 ", "1.5", "1M", "x", "1048577", "9" * 30)
        ),
        ("SDGEN_TUNE", "reuse=2", ("reuse=0 to 1",)),
        *(
            ("SDGEN_TUNE", value, ("winograd=0", "winograd=4"))
            for value in ("winograd", "winograd=", "winograd=1", "winograd=44", "wino=4", "4", "winograd=4,x=1", ",")
        ),
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
