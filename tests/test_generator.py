"""The generator: what it writes, what it refuses, and whether its assembly is what it says it is.

Needs a C compiler and an assembler, no processor of the levels: nothing generated is run here.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import iced_x86
import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

from gen import contract, isa, registry
from gen.__main__ import main
from gen.dsl import (
    Assembler,
    Contract,
    DslError,
    Instruction,
    Kernel,
    LevelError,
    Memory,
    Register,
    RegisterBudgetError,
    at,
    vector_unit,
)
from gen.family import Family
from gen.microkernels import dot, gemm_f32, probe
from gen.spec import KernelSpec

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
GOLDEN_KERNELS = (
    "gemm_f32_2x16_avx2",
    "dot_f16_2x4_avx2",
    "pack_f16_6_avx2",
    "pack_f16_6_avx512",
    "pack_patches_f32_16_avx2",
)

KERNELS = [registry.build(spec) for spec in registry.specs(isa.LEVELS)]
every_kernel = pytest.mark.parametrize("built", KERNELS, ids=[kernel.spec.name for kernel in KERNELS])

# What iced-x86 calls the extensions; every x86-64 processor has those that map to None.
ICED_FEATURES = {
    "INTEL8086": None,
    "INTEL186": None,
    "INTEL386": None,
    "INTEL486": None,
    "X64": None,
    "MULTIBYTENOP": None,
    "CMOV": "CMOV",
    "SSE": "SSE",
    "SSE2": "SSE2",
    "AVX": "AVX",
    "AVX2": "AVX2",
    "FMA": "FMA3",
    "F16C": "F16C",
    "BMI1": "BMI",
    "BMI2": "BMI2",
    "AVX512F": "AVX512F",
    "AVX512VL": "AVX512VL",
    "AVX512BW": "AVX512BW",
    "AVX512DQ": "AVX512DQ",
    "AVX_VNNI": "AVX-VNNI",
    "AVX512_VNNI": "AVX512VNNI",
    "AVX512_BF16": "AVX512BF16",
    "AVX512_FP16": "AVX512FP16",
    "AMX_TILE": "AMX-TILE",
    "AMX_BF16": "AMX-BF16",
    "AMX_INT8": "AMX-INT8",
    "AMX_FP16": "AMX-FP16",
}
ICED_NAMES = {value: name for name, value in vars(iced_x86.CpuidFeature).items() if isinstance(value, int)}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that is generated."""
    folder = tmp_path_factory.mktemp("out")
    registry.generate(tuple(isa.LEVELS), folder)
    return folder


@pytest.fixture(scope="module")
def objects(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every kernel assembled."""
    folder = tmp_path_factory.mktemp("objects")
    subprocess.run(["gcc", "-c", *sorted(out.glob("*.S"))], cwd=folder, check=True)
    return folder


def elf(path: Path) -> ELFFile:
    return ELFFile(path.open("rb"))


def compile_c(source: str, *options: str) -> None:
    """Compiles C without making anything; a warning is an error."""
    command = ["gcc", "-std=c17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *options, "-x", "c", "-"]
    subprocess.run(command, input=source, text=True, check=True)


def run_generator(arguments: list[str], cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **environment}
    return subprocess.run(
        [sys.executable, "-m", "gen", *arguments], cwd=cwd, env=variables, text=True, capture_output=True
    )


# What is written


@pytest.mark.slow
def test_same_bytes_every_time(tmp_path: Path) -> None:
    texts = []
    for seed, cwd in (("1", ROOT), ("2", tmp_path)):
        folder = tmp_path / seed
        done = run_generator(["--isa", "all", "--out", str(folder)], cwd, PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        texts.append({path.name: path.read_bytes() for path in folder.iterdir() if path.name != registry.DEPFILE})
    assert texts[0] == texts[1]


def test_one_name_for_everything(out: Path) -> None:
    names = [kernel.spec.name for kernel in KERNELS]
    assert len(set(names)) == len(names)
    assert {path.stem for path in out.glob("*.S")} == set(names)
    rows = [line for line in (out / "kernels.inc").read_text().splitlines() if re.match(r"SDGEN_\w+\(", line)]
    assert [row.split(", ")[-1].rstrip(")") for row in rows] == names
    assert re.findall(r"^extern sdgen_\w+ (\w+);", (out / "kernels.h").read_text(), re.MULTILINE) == names
    assert [kernel["name"] for kernel in json.loads((out / "manifest.json").read_text())["kernels"]] == names


def test_names_say_operation_types_tile_level_and_options() -> None:
    spec = KernelSpec("gemm", ("f32",), (6, 16), "avx2")
    assert spec.name == "gemm_f32_6x16_avx2"
    assert KernelSpec("pack", ("bf16",), (16,), "avx2").name == "pack_bf16_16_avx2"
    assert KernelSpec("probe_nop", (), (), "avx2").name == "probe_nop_avx2"
    assert spec.with_options(unroll=8, align=64).name == "gemm_f32_6x16_avx2_align64_unroll8"
    assert registry.find(spec.name, {"unroll": gemm_f32.OPTIONS["unroll"]}) == spec


@pytest.mark.parametrize("family", registry.FAMILIES, ids=lambda family: str(family.macro))
def test_rows_of_kernels_inc(family: Family, out: Path) -> None:
    parameters = ", ".join(family.columns)
    strings = " ".join(f"#{column}" for column in family.columns)
    source = f'#define {family.macro}({parameters}) {strings}\n#include "kernels.inc"\n'
    source += f"#ifdef {family.macro}\n#error still defined\n#endif\n"
    done = subprocess.run(
        ["gcc", "-E", "-P", f"-I{out}", "-x", "c", "-"], input=source, text=True, check=True, capture_output=True
    )
    rows = [tuple(re.findall(r'"([^"]*)"', line)) for line in done.stdout.splitlines() if line.strip()]
    assert rows == [tuple(map(str, family.row(spec))) for spec in family.kernels]


def test_headers_compile_and_agree_with_the_banners(out: Path) -> None:
    prototypes = [re.findall(r"^ \*   (void \w+\(.*\);)$", path.read_text(), re.MULTILINE) for path in out.glob("*.S")]
    assert all(len(found) == 1 for found in prototypes)
    compile_c(
        '#include "kernels.h"\n' + "\n".join(found[0] for found in prototypes), f"-I{out}", f"-I{ROOT / 'runtime'}"
    )


@pytest.mark.parametrize(
    "signature",
    [
        contract.GEMM,
        contract.DOT,
        contract.PACK,
        contract.PACK_PATCHES,
        contract.PROBE,
        contract.WINOGRAD_INPUT_KERNEL,
        contract.WINOGRAD_WEIGHTS_KERNEL,
        contract.WINOGRAD_OUTPUT_KERNEL,
        contract.MAP_KERNEL,
        contract.MOMENTS_KERNEL,
        contract.NH_KERNEL,
        contract.SCORES_KERNEL,
        contract.PACK_ROWS,
        contract.UNPACK_KERNEL,
    ],
)
def test_signatures_are_the_headers(signature: contract.Signature) -> None:
    header = " ".join((ROOT / "runtime/kernel.h").read_text().split())
    assert f"typedef {signature.prototype(signature.typedef)}" in header


@pytest.mark.parametrize(
    "struct",
    [
        contract.EPILOGUE,
        contract.DOT_OUTPUT,
        contract.PATCHES,
        contract.WINOGRAD_INPUT,
        contract.WINOGRAD_OUTPUT,
        contract.MAP_RUN,
        contract.SCORES,
        contract.UNPACK,
    ],
    ids=lambda struct: str(struct.tag),
)
def test_offsets_are_the_headers(struct: contract.Struct) -> None:
    lines = ['#include "kernel.h"']
    for kind, name, count in struct.fields:
        lines.append(f'_Static_assert(offsetof(struct {struct.tag}, {name}) == {struct.offset(name)}, "{name}");')
        size = f"sizeof(((struct {struct.tag} *)0)->{name})"
        lines.append(f'_Static_assert({size} == {count} * sizeof({kind}), "{name}");')
    compile_c("\n".join(lines), f"-I{ROOT / 'runtime'}")


@every_kernel
def test_banner(built: Kernel, out: Path) -> None:
    banner = (out / f"{built.spec.name}.S").read_text().partition("*/")[0]
    assert (ROOT / built.source).is_file()
    assert f"Made from {built.source} by: python -m gen show {built.spec.name}\n" in banner
    for _, name in built.signature.parameters:
        assert re.search(rf"^ \*   r\w+ +{name}: argument$", banner, re.MULTILINE)
    # ymm and xmm registers are the lower parts of zmm registers
    used = set(re.findall(r"\b(?:[xyz]mm|k)\d+", "\n".join(line.partition("/*")[0] for line in built.body)))
    ranges = re.findall(r"\b([yz]mm|k)(\d+)(?:-\1(\d+))?", banner)
    listed = {(kind, number) for kind, first, last in ranges for number in range(int(first), int(last or first) + 1)}
    whole = isa.LEVELS[built.spec.level].vector_kind
    assert {(re.sub("[xyz]mm", whole, kind), int(number)) for kind, number in map(split_register, used)} <= listed


def split_register(register: str) -> tuple[str, str]:
    kind = register.rstrip("0123456789")
    return kind, register.removeprefix(kind)


@pytest.mark.parametrize("name", GOLDEN_KERNELS)
def test_golden(name: str) -> None:
    """The assembly is what it was; SDGEN_UPDATE_GOLDEN=1 accepts what it is now."""
    path, text = GOLDEN / f"{name}.S", registry.assembly(registry.build(registry.find(name)))
    if os.environ.get("SDGEN_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    difference = difflib.unified_diff(path.read_text().splitlines(), text.splitlines(), "golden", "now", lineterm="")
    assert not list(difference)


def test_unchanged_files_are_left_alone(tmp_path: Path) -> None:
    registry.generate(("avx2",), tmp_path)
    changed = tmp_path / "probe_nop_avx2.S"
    changed.write_text("something else")
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert registry.generate(("avx2",), tmp_path) == [changed]
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {name for name in times if times[name] != after[name]} == {changed.name, registry.DEPFILE}


def test_kernels_that_are_no_more_are_removed(tmp_path: Path) -> None:
    registry.generate(("avx2",), tmp_path)
    manifest = tmp_path / "manifest.json"
    listed = json.loads(manifest.read_text())
    listed["kernels"].append({"file": "old_avx2.S"})
    manifest.write_text(json.dumps(listed))
    for name in ("old_avx2.S", "own.S"):
        (tmp_path / name).write_text("")
    registry.generate(("avx2",), tmp_path)
    assert not (tmp_path / "old_avx2.S").exists()
    assert (tmp_path / "own.S").exists()


def test_depfile_names_every_source(out: Path) -> None:
    rule = (out / registry.DEPFILE).read_text().splitlines()[0]
    target, _, names = rule.partition(": ")
    assert target == str(out / registry.DEPFILE)
    paths = {path for pattern in ("*.py", "templates/*.j2") for path in (ROOT / "gen").rglob(pattern)}
    tools = {path for path in paths if path.parent.name in ("native", "sweep")}
    assert tools and {Path(name).resolve() for name in names.split()} == paths - tools


# What the objects hold


@every_kernel
def test_instructions_belong_to_the_level(built: Kernel, objects: Path) -> None:
    allowed = isa.LEVELS[built.spec.level].with_extensions(built.spec.extensions).extensions
    code = elf(objects / f"{built.spec.name}.o").get_section_by_name(".text").data()
    found = set()
    for instruction in iced_x86.Decoder(64, code):
        text = f"{instruction}"
        assert instruction.code != iced_x86.Code.INVALID, text
        if "AVX512F" not in allowed:
            assert instruction.encoding != iced_x86.EncodingKind.EVEX, text
        features = {ICED_NAMES[feature] for feature in instruction.cpuid_features()}
        assert features <= ICED_FEATURES.keys(), text
        needed = {name for name in map(ICED_FEATURES.get, features) if name}
        assert needed <= allowed, text
        found |= needed
    assert found - {"SSE"} == set(built.extensions) - {"MMX+"}  # prefetcht0 is the one's or the other's


@every_kernel
def test_encodings_are_peachpys(built: Kernel, tmp_path: Path) -> None:
    """GNU as encodes each instruction as PeachPy does; branches and what lies relative to rip are left out."""
    assert_same_encoding([(i.text, i.encoding) for i in built.instructions if i.encoding], tmp_path)


def assert_same_encoding(instructions: list[tuple[str, bytes]], folder: Path) -> None:
    source, listing = folder / "all.s", folder / "all.o"
    unique = sorted(set(instructions))
    labels = (f"L{place}: {text}" for place, (text, _) in enumerate(unique))
    source.write_text("\n".join([".intel_syntax noprefix", *labels, "end:", ""]))
    subprocess.run(["as", "-o", listing, source], check=True)
    file = elf(listing)
    code, symbols = file.get_section_by_name(".text").data(), file.get_section_by_name(".symtab")
    places = [symbols.get_symbol_by_name(f"L{place}")[0]["st_value"] for place in range(len(unique))]
    for (text, encoding), start, end in zip(unique, places, [*places[1:], len(code)], strict=True):
        assert code[start:end] == encoding, text


def instructions_at(level: isa.Level, forms: Sequence[tuple[Any, ...]]) -> tuple[Instruction, ...]:
    """Instructions, given as mnemonic and operands, in a kernel that holds every register."""
    a = Assembler(KernelSpec("forms", (), (), level.name), level, contract.PROBE)
    a.vectors("all", "to be written", level.vector_registers)
    a.generals("all", "to be written", 14)
    a.masks("all", "to be written", 7)
    a.tiles("all", "to be written", 8)
    for mnemonic, *operands in forms:
        getattr(a, mnemonic)(*operands)
    return a.finish(Contract((), ()), "").instructions


def test_avx512_operands_are_written_as_gnu_as_reads_them(tmp_path: Path) -> None:
    low, high, mask, base, index = (
        Register("zmm", 1), Register("zmm", 31), Register("k", 3), Register("r64", 13), Register("r64", 9),
    )  # fmt: skip
    forms = (
        ("VFMADD231PS", high, low, Memory(base, index, 4, -64)),
        ("VFMADD231PS", high.masked(mask), low, at(base, 192)),
        ("VADDPS", high.masked(mask, zeroing=True), high, Memory(base, size=4, broadcast=16)),
        ("VADDPS", high, low, Memory(base, displacement=64, size=4, broadcast=16)),
        ("VMOVUPS", at(base, 128, size=64).masked(mask), high),
        ("VMOVUPS", high.masked(mask, zeroing=True), at(base, 100)),
        ("KMOVW", mask, Register("r32", 10)),
        ("VBROADCASTSS", high, at(base, 12)),
    )
    instructions = instructions_at(isa.LEVELS["avx512"], forms)
    assert_same_encoding([(i.text, i.encoding) for i in instructions if i.encoding], tmp_path)
    # PeachPy's bytes for a broadcast with a displacement mean another place; they must not be taken for the truth.
    assert [i.text for i in instructions if not i.encoding] == ["vaddps zmm31, zmm1, dword ptr [r13+64]{1to16}"]


@every_kernel
def test_object_has_one_hidden_symbol_and_no_executable_stack(built: Kernel, objects: Path) -> None:
    file = elf(objects / f"{built.spec.name}.o")
    assert file.get_section_by_name(".note.GNU-stack")["sh_flags"] == 0
    symbols = [s for s in file.get_section_by_name(".symtab").iter_symbols() if s["st_info"]["bind"] == "STB_GLOBAL"]
    assert [symbol.name for symbol in symbols] == [built.spec.name]
    assert symbols[0]["st_other"]["visibility"] == "STV_HIDDEN"
    assert symbols[0]["st_info"]["type"] == "STT_FUNC"
    assert symbols[0]["st_size"] == file.get_section_by_name(".text")["sh_size"]


@every_kernel
def test_unwind_information(built: Kernel, objects: Path) -> None:
    """It covers the whole function and tells of each push, each pop and each return."""
    file = elf(objects / f"{built.spec.name}.o")
    entries = file.get_dwarf_info(relocate_dwarf_sections=False).EH_CFI_entries()
    (entry,) = [entry for entry in entries if isinstance(entry, FDE)]
    size = file.get_section_by_name(".text")["sh_size"]
    assert entry["address_range"] == size
    offsets = {line["pc"] - entry["initial_location"]: line["cfa"].offset for line in entry.get_decoded().table}
    depth = 8
    for start, text in instructions_of(file):
        if start in offsets:
            assert offsets[start] == depth or text.partition(" ")[0] not in {"push", "pop", "ret"}
            depth = offsets[start]
        depth += {"push": 8, "pop": -8}.get(text.partition(" ")[0], 0)
        assert depth >= 8
        if text.startswith("ret"):
            assert depth == 8
            depth = offsets.get(start + 1, depth)


def instructions_of(file: ELFFile) -> Iterator[tuple[int, str]]:
    """Place and text of each instruction of the object."""
    formatter = iced_x86.Formatter(iced_x86.FormatterSyntax.NASM)
    for instruction in iced_x86.Decoder(64, file.get_section_by_name(".text").data()):
        yield instruction.ip, formatter.format(instruction)


def test_library_has_no_text_relocations_and_exports_nothing(objects: Path, tmp_path: Path) -> None:
    library = tmp_path / "kernels.so"
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", "-Wl,-z,text", "-Wl,--fatal-warnings", "-o", library, *objects.glob("*.o")],
        check=True,
    )
    file = elf(library)
    (stack,) = [segment for segment in file.iter_segments() if segment["p_type"] == "PT_GNU_STACK"]
    assert not stack["p_flags"] & 1
    assert not {tag["d_tag"] for tag in file.get_section_by_name(".dynamic").iter_tags()} & {"DT_TEXTREL"}
    exported = [s.name for s in file.get_section_by_name(".dynsym").iter_symbols() if s["st_shndx"] != "SHN_UNDEF"]
    assert not exported


# Operations of an instruction: two for each product that it adds to a sum.
PROBE_OPERATIONS = {
    "probe_fma_f32_avx2": 2 * 8,
    "probe_fma_f32_avx512": 2 * 16,
    "probe_vfmadd231ph_f16_avx512": 2 * 32,
    "probe_vdpbf16ps_bf16_avx512": 2 * 32,
    "probe_vpmaddubsw_u8s8_avx2": 2 * 32 / 3,  # three instructions
    "probe_vpmaddubsw_u8s8_avx512": 2 * 64 / 3,
    "probe_vpdpbusd_u8s8_avx2": 2 * 32,
    "probe_vpdpbusd_u8s8_avx512": 2 * 64,
    "probe_tdpbf16ps_bf16_avx512": 2 * 16 * 16 * 32,
    "probe_tdpfp16ps_f16_avx512": 2 * 16 * 16 * 32,
    "probe_tdpbssd_s8_avx512": 2 * 16 * 16 * 64,
    "probe_tdpbusd_u8s8_avx512": 2 * 16 * 16 * 64,
    "probe_nop_avx2": 0,
}


@pytest.mark.parametrize("spec", probe.KERNELS, ids=lambda spec: str(spec.name))
def test_what_a_probe_counts(spec: KernelSpec) -> None:
    _, instructions, operations, *_ = probe.FAMILY.row(spec)
    (loop,) = registry.build(spec).loops
    assert instructions == len(loop.instructions)
    assert operations == pytest.approx((len(loop.instructions) - 2) * PROBE_OPERATIONS[spec.name])  # SUB and JNZ


# What is refused


def assembler(level: isa.Level | None = None) -> Assembler:
    return Assembler(KernelSpec("made_up", (), (), "avx2"), level or isa.LEVELS["avx2"], contract.GEMM)


def test_budget_of_a_tile_that_is_too_tall() -> None:
    with pytest.raises(RegisterBudgetError) as caught:
        gemm_f32.build(KernelSpec("gemm", ("f32",), (7, 16), "avx2"))
    text = str(caught.value)
    assert text.startswith("gemm_f32_7x16_avx2: 17 vector registers asked for at once, 16 exist")
    assert "14 sum[i][v]: the tile, row by row" in text
    assert "1 x: elements of A" in text


@pytest.mark.parametrize(
    ("tile", "complaint"),
    [
        ((8, 64), "gemm_f32_8x64_avx512: 36 vector registers asked for at once, 32 exist"),
        ((10, 48), "gemm_f32_10x48_avx512: 33 vector registers asked for at once, 32 exist"),
    ],
)
def test_budget_of_avx512_tiles(tile: tuple[int, int], complaint: str) -> None:
    with pytest.raises(RegisterBudgetError) as caught:
        gemm_f32.build(KernelSpec("gemm", ("f32",), tile, "avx512"))
    text = str(caught.value)
    assert text.startswith(complaint)
    assert f"{tile[0] * tile[1] // 16} sum[i][v]: the tile, row by row" in text


def test_largest_tile_of_48_columns() -> None:
    """27 sums, 3 of B, 2 of A: none is left, and none is needed."""
    assert gemm_f32.build(KernelSpec("gemm", ("f32",), (9, 48), "avx512")).loops


def test_tiles_of_few_rows_that_cannot_be() -> None:
    with pytest.raises(RegisterBudgetError, match="dot_f16_4x4_avx2: 20 vector registers asked for at once, 16 exist"):
        dot.build(KernelSpec("dot", ("f16",), (4, 4), "avx2"))
    with pytest.raises(DslError, match="dot_f16_4x3_avx2: there are 3 columns, but can be 1, 2, 4"):
        dot.build(KernelSpec("dot", ("f16",), (4, 3), "avx2"))
    with pytest.raises(DslError, match="dot_f16_1x4_avx2_unroll0: unroll is 0, but has to be at least 1"):
        dot.build(KernelSpec("dot", ("f16",), (1, 4), "avx2").with_options(unroll=0))


def test_prefetching_of_few_rows_is_an_option() -> None:
    """It belongs to tiles of several columns; the results are the same without."""
    for tile, prefetch, fetches in (((1, 4), 1, 8), ((1, 4), 0, 0), ((1, 1), 1, 0)):
        built = dot.build(KernelSpec("dot", ("f16",), tile, "avx512").with_options(prefetch=prefetch))
        assert sum(i.text.startswith("prefetch") for i in built.instructions) == fetches


@pytest.mark.parametrize(("count", "kind"), [(16, "ymm"), (32, "zmm")])
def test_budget_of_vector_registers(count: int, kind: str) -> None:
    level = isa.Level("made_up", (), implies=None, vector_kind=kind, lanes=8, vector_registers=count)
    a = assembler(level)
    assert [str(register) for register in a.vectors("x", "all", count)] == [f"{kind}{i}" for i in range(count)]
    with pytest.raises(RegisterBudgetError, match=f"{count + 1} vector registers asked for at once, {count} exist"):
        a.vector("y", "one more")


def test_budget_of_mask_registers() -> None:
    a = assembler(isa.LEVELS["avx512"])
    assert [str(register) for register in a.masks("x", "all", 7)] == [f"k{i}" for i in range(1, 8)]
    with pytest.raises(RegisterBudgetError, match="8 mask registers asked for at once, 7 exist"):
        a.mask("y", "one more")
    with pytest.raises(DslError, match="k0 is used but not held"):
        a.KMOVW(Register("k", 0), Register("r32", 7))


def test_budget_of_general_registers() -> None:
    a = assembler()
    a.generals("x", "the rest", 15 - len(contract.GEMM.parameters))
    with pytest.raises(RegisterBudgetError, match="16 general-purpose registers asked for at once, 15 exist"):
        a.general("y", "one more")
    a.release(a.argument("k"))
    assert str(a.general("y", "one more")) == "rdi"


def test_instruction_beyond_the_level() -> None:
    a = assembler()
    x = a.vector("x", "anything")
    with pytest.raises(
        LevelError, match="made_up_avx2: vplzcntd ymm0, ymm0: VPLZCNTD needs AVX512CD, which level avx2"
    ):
        a.VPLZCNTD(x, x)


def test_mistakes_of_a_description() -> None:
    a = assembler()
    x = a.vector("x", "anything")
    with pytest.raises(DslError, match="PeachPy knows no instruction VNOTHING"):
        a.VNOTHING(x)
    with pytest.raises(DslError, match="Invalid operand types"):
        a.VADDPS(x, x, a.argument("k"))
    a.release(x)
    with pytest.raises(DslError, match="ymm0 is used but not held"):
        a.VADDPS(x, x, x)
    with pytest.raises(DslError, match="ymm0 is given back but not held"):
        a.release(x)
    a.label("twice")
    with pytest.raises(DslError, match="two labels are called twice"):
        a.label("twice")
    with pytest.raises(DslError, match=r"labels never placed: \.Ltwice"):
        a.finish(Contract((), ()), "")


def test_callee_saved_registers_are_saved() -> None:
    a = assembler()
    registers = a.generals("x", "all that are left", 9)
    a.ret()
    body = [line.strip() for line in a.finish(Contract((), ()), "").body]
    saved = ["rbx", "rbp", "r12", "r13", "r14", "r15"]
    assert {str(register) for register in registers} >= set(saved)
    assert [line for line in body if line.startswith("push")] == [f"push {name}" for name in saved]
    assert [line for line in body if line.startswith("pop")] == [f"pop {name}" for name in reversed(saved)]


def test_blocks_in_turn() -> None:
    a = assembler()
    x, y = a.vectors("x", "one of each block", 2)

    def block(register: Register) -> None:
        a.VADDPS(register, register, register)
        a.VMULPS(register, register, register)

    a.interleave([lambda: block(x), lambda: block(y)])
    written = [i.text for i in a.finish(Contract((), ()), "").instructions]
    assert written == [f"{name} {r}, {r}, {r}" for name in ("vaddps", "vmulps") for r in (x, y)]
    with pytest.raises(ValueError):
        a.interleave([lambda: block(x), lambda: a.VADDPS(y, y, y)])


def test_equal_constants_are_stored_once() -> None:
    a = assembler()
    assert a.constant("ones", (1, 1), 8) == a.constant("others", (1, 1), 8) == ".Lones"
    assert a.constant("twos", (2, 2), 8) == ".Ltwos"
    assert len(a.finish(Contract((), ()), "").constants) == 2


@pytest.mark.parametrize(
    ("level", "texts"),
    [
        (
            "avx2",
            (
                "vmovaps ymm0, [rip+.Lconstant_3f800000]",
                "vaddps ymm0, ymm0, [rip+.Lconstant_c2fc0000]",
                "vmaxps ymm0, ymm0, ymm1",
                "vcmpps ymm2, ymm0, [rip+.Lconstant_c2fc0000], 21",
                "vpaddd ymm0, ymm0, ymm1",
                "vandps ymm0, ymm0, ymm2",
            ),
        ),
        (
            "avx512",
            (
                "vbroadcastss zmm0, dword ptr [rip+.Lconstant_3f800000]",
                "vaddps zmm0, zmm0, dword ptr [rip+.Lconstant_c2fc0000]{1to16}",
                "vmaxps zmm0, zmm0, zmm1",
                "vcmpps k1, zmm0, dword ptr [rip+.Lconstant_c2fc0000]{1to16}, 21",
                "vpaddd zmm0{k1}{z}, zmm0, zmm1",
            ),
        ),
    ],
)
def test_constants_and_choices_of_a_vector_unit(level: str, texts: tuple[str, ...]) -> None:
    a = assembler(isa.LEVELS[level])
    v = vector_unit(a)
    x, y = a.vectors("x", "numbers", 2)
    (mask,) = v.masks("mask", "some lanes", 1)
    v.load_constant(x, 1.0)
    v.add(x, x, v.constant(-126.0))
    v.maximum(x, x, y)
    v.not_less(mask, x, v.constant(-126.0))
    v.add_integers_where(x, mask, x, y)
    built = a.finish(Contract((), ()), "")
    assert tuple(i.text for i in built.instructions) == texts
    words = v.lanes if level == "avx2" else 1
    assert [constant.words for constant in built.constants] == [(0x3F800000,) * words, (0xC2FC0000,) * words]
    with pytest.raises(OverflowError):
        v.constant(1e39)


# Levels


def test_processors_stand_for_their_levels() -> None:
    assert isa.parse_levels("haswell") == isa.parse_levels("alderlake,avx2") == ("avx2",)
    assert isa.parse_levels("zen4") == isa.parse_levels("avx512,avx2") == ("avx2", "avx512")
    assert isa.parse_levels("all") == tuple(isa.LEVELS)


@pytest.mark.parametrize("level", isa.LEVELS.values(), ids=lambda level: str(level.name))
def test_native_is_what_the_flags_say(level: isa.Level, tmp_path: Path) -> None:
    flags = {flag for name in level.extensions if (flag := isa.EXTENSIONS[name].flag)}
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"model name\t: made up\nflags\t\t: {' '.join(sorted(flags))}\n")
    assert level.name in isa.native_levels(cpuinfo)
    for flag in flags:
        cpuinfo.write_text(f"flags\t\t: {' '.join(sorted(flags - {flag}))}\n")
        assert level.name not in isa.native_levels(cpuinfo)
    with pytest.raises(isa.UnknownLevelError, match="no list of flags"):
        isa.native_levels(tmp_path / "nothing")


def test_avx2_is_what_the_runtime_asks_for() -> None:
    """AVX2, FMA and F16C (runtime/select.c), and what they imply."""
    level = isa.LEVELS["avx2"]
    assert level.extensions == set(isa.closure(("CMOV", "AVX2", "FMA3", "F16C")))
    assert not any(name.startswith("AVX512") for name in level.extensions)
    assert level.xcr0 == 6


def test_avx512_is_avx2_and_five_extensions() -> None:
    below, level = isa.LEVELS["avx2"], isa.LEVELS["avx512"]
    assert level.extensions - below.extensions == {"BMI", "BMI2", "AVX512F", "AVX512VL", "AVX512BW", "AVX512DQ"}
    assert below.extensions < level.extensions
    assert level.xcr0 == 0xE6


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="there is no /proc/cpuinfo to compare with")
def test_cpuid_bits_are_those_of_the_flags(tmp_path: Path) -> None:
    """The bits that the table names are set exactly where Linux lists the flag that it names."""
    match = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    if match is None:
        pytest.skip("not an x86 processor")
    listed = [(name, e.cpuid, e.flag) for name, e in isa.EXTENSIONS.items() if e.cpuid and e.flag]
    lines = [
        f"__cpuid_count({leaf:#x}, {subleaf}, eax, ebx, ecx, edx); (void)eax, (void)edx;"
        f'printf("{name} %u\\n", {register} >> {bit} & 1);'
        for name, (leaf, subleaf, register, bit), _ in listed
    ]
    program = tmp_path / "bits"
    source = "#include <cpuid.h>\n#include <stdio.h>\nint main(void) { unsigned eax, ebx, ecx, edx;\n"
    source += "\n".join(lines) + "\nreturn 0; }\n"
    subprocess.run(["gcc", "-o", program, "-x", "c", "-"], input=source, text=True, check=True)
    printed = subprocess.run([program], text=True, check=True, capture_output=True).stdout
    bits = dict(line.split() for line in printed.splitlines())
    assert bits == {name: str(int(flag in match[1].split())) for name, _, flag in listed}


# The command line


@pytest.mark.slow
def test_unknown_names_end_with_status_2_and_a_list(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, expected in (
        (
            ["--isa", "avx3", "--out", str(tmp_path)],
            "unknown level 'avx3'; there are: levels avx2, avx512; processors x64",
        ),
        (["--isa", "sandybridge", "--out", str(tmp_path)], "sandybridge has none of the levels"),
        (["list", "--isa", ""], "unknown level ''"),
        (["show", "gemm_f64_6x16_avx2"], "the closest are gemm_f32_6x16_avx2, gemm16_f32_6x16_avx2, "),
        (["show", "nonsense"], "; `python -m gen list` lists all\n"),
        (["--out", __file__], f"{__file__} is a file, not a folder\n"),
        (["--out", "/proc/absent"], "/proc/absent cannot be written: No such file or directory\n"),
        (["show", "gemm_f32_6x16_avx2", "--set", "speed=9"], "has no option 'speed'; there are: unroll (4)"),
        (["show", "gemm_f32_6x16_avx2", "--set", "unroll=3"], "unroll is 3, but has to be a power of two"),
    ):
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert expected in printed.err and printed.err.count("\n") == 1
        assert not printed.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[], ["--isa", "avx2"], ["show", "gemm_f32_6x16_avx2", "--set", "unroll"]])
def test_wrong_usage_ends_with_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_list_builds_nothing() -> None:
    """PeachPy alone takes a second to import."""
    program = "import sys; from gen.__main__ import main; main(['list']); sys.exit('peachpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0 and done.stdout.split() == [kernel.spec.name for kernel in KERNELS]


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert capsys.readouterr().out.split() == [kernel.spec.name for kernel in KERNELS]
    assert main(["list", "--json", "--isa", "haswell"]) == 0
    listed = json.loads(capsys.readouterr().out)
    (row,) = [row for row in listed if row["name"] == "pack_f16_16_avx2"]
    assert row["types"] == ["f16"]
    assert row["tile"] == [16]
    assert "F16C" in row["extensions"]


def test_list_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Begins with the families, each with its kernels and what they do."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for name, value in (("TERM", "dumb"), ("COLUMNS", "200")):
        monkeypatch.setenv(name, value)
    assert main(["list", "--isa", "avx2"]) == 0
    families, _, kernels = capsys.readouterr().out.partition(" operation ")
    (moments,) = [line.split(maxsplit=5)[1:] for line in families.splitlines() if " moments " in line]
    assert moments[0] == "moments" and moments[2] == "1"
    assert moments[4].startswith("Sums of elements and of their squares, in double precision. ")
    assert " gemm, gemm16 " in families and " map_... " in families
    assert all(f" {spec.name} " in kernels for spec in registry.specs(["avx2"]))


def test_what_is_written_is_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = ["kernels.h", "kernels.inc", "winograd.h", "manifest.json"]
    for written in (
        f"{len(registry.specs(['avx2']))} kernels (NAME.S), {', '.join(lists)} and kernels.d written",
        None,
    ):
        assert main(["--isa", "avx2", "--out", str(tmp_path)]) == 0
        assert capsys.readouterr().out == f"{tmp_path}: {written or 'nothing changed'}\n"
    (tmp_path / "winograd.h").unlink()
    assert main(["--isa", "avx2", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: winograd.h and kernels.d written\n"
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".S"} == {*lists, "kernels.d"}


def test_show_prints_the_file(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "gemm_f32_6x16_avx2"]) == 0
    assert capsys.readouterr().out == (out / "gemm_f32_6x16_avx2.S").read_text()
    assert main(["show", "gemm_f32_6x16_avx2", "--set", "unroll=8", "--set", "prefetch_b=512"]) == 0
    text = capsys.readouterr().out
    assert "gemm_f32_6x16_avx2_prefetch_b512_unroll8:" in text
    assert "show gemm_f32_6x16_avx2 --set prefetch_b=512 --set unroll=8\n" in text
    assert "prefetcht0 [rdx+512]" in text
