"""How fast a kernel's inner loop is by models of processors: a help for choosing tiles, not a claim.

llvm-mca simulates the first inner loop of a kernel, over and over, with everything in the first-level cache. OSACA sums
what the loop asks of each port: a bound that neither dependencies nor decoding lower. OSACA may be missing.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gen.dsl import Kernel, Loop
from gen.isa import LEVELS


class PredictionError(Exception):
    """Nothing can be predicted; the message says why."""


@dataclass(frozen=True)
class Model:
    """A processor: the tools' names of it and its multiply-adds of 512 bits a cycle; of 256 bits all make two."""

    name: str
    cpu: str  # llvm-mca's
    osaca: str | None  # None where OSACA has no model
    wide_fmas: int
    llvm: int  # the first version that knows it


@dataclass(frozen=True)
class Prediction:
    """What a model says; cycles and share are None where the tool has no answer, which the note explains."""

    processor: str
    tool: str
    cycles: float | None  # of a pass of the loop
    share: float | None  # of the processor's peak of multiply-adds; None where the loop has none
    note: str


MODELS = {
    model.name: model
    for model in (
        Model("skylake-x", "skylake-avx512", "SKX", 2, 7),
        Model("icelake", "icelake-server", "ICX", 2, 7),
        Model("zen4", "znver4", "ZEN4", 1, 16),
        Model("zen5", "znver5", None, 2, 19),
        Model("sapphirerapids", "sapphirerapids", "SPR", 2, 12),
    )
}

_SHORT, _LONG = 100, 300  # passes; the difference has neither the loop's beginning nor its end
_FMA = re.compile(r"vfn?m(add|sub)\d+ps")


def find_mca() -> Path:
    """The newest llvm-mca of the PATH; raises PredictionError where there is none."""
    found: dict[int, str] = {}
    for folder in os.get_exec_path():
        if not os.access(folder, os.R_OK):
            continue
        for path in Path(folder).glob("llvm-mca*"):
            match = re.fullmatch(r"llvm-mca(?:-(\d+))?", path.name)
            if match and shutil.which(path):
                found.setdefault(int(match[1] or 0), str(path))
    if not found:
        raise PredictionError("llvm-mca is not installed: it comes with LLVM (Debian and Ubuntu: apt-get install llvm)")
    return Path(found[max(found)])


def version(mca: Path) -> int:
    """LLVM's major version."""
    printed = subprocess.run([mca, "--version"], text=True, capture_output=True).stdout
    match = re.search(r"version (\d+)", printed)
    return int(match[1]) if match else 0


def find_osaca() -> list[str] | None:
    """The command that runs OSACA: this Python's own, else the PATH's; None where there is none."""
    if importlib.util.find_spec("osaca"):
        return [sys.executable, "-m", "osaca"]
    found = shutil.which("osaca")
    return [found] if found else None


def predict(kernel: Kernel, names: Sequence[str], mca: Path) -> list[Prediction]:
    """What llvm-mca's models of these names say of the kernel's first inner loop."""
    loop, models = _loop(kernel), _models(names)
    llvm = version(mca)
    return [_predict(kernel, loop, model, mca, llvm) for model in models]


def predict_by_osaca(kernel: Kernel, names: Sequence[str], osaca: Sequence[str] | None) -> list[Prediction]:
    """What OSACA's models of these names say of the kernel's first inner loop."""
    loop, models = _loop(kernel), _models(names)
    if osaca is None:
        return [_no_bound(model, "OSACA is not installed") for model in models]
    assembler, disassembler = shutil.which("as"), shutil.which("objdump")
    if assembler is None or disassembler is None:
        return [_no_bound(model, "OSACA needs as and objdump, which come with binutils") for model in models]
    printed = subprocess.run([*osaca, "--version"], text=True, capture_output=True).stdout.split()
    release = f"OSACA {printed[-1] if printed else '?'}"
    with tempfile.TemporaryDirectory() as folder:
        source = _in_att_syntax(loop, assembler, disassembler, Path(folder))
        return [_bound(kernel, loop, model, osaca, release, source) for model in models]


def _models(names: Sequence[str]) -> list[Model]:
    unknown = sorted(set(names) - MODELS.keys())
    if unknown:
        raise PredictionError(f"unknown processor {unknown[0]!r}; there are: {', '.join(MODELS)}")
    return [MODELS[name] for name in names]


def _loop(kernel: Kernel) -> Loop:
    if not kernel.loops:
        raise PredictionError(f"{kernel.spec.name} has no loop")
    return kernel.loops[0]


def _predict(kernel: Kernel, loop: Loop, model: Model, mca: Path, llvm: int) -> Prediction:
    short, long = (_cycles(mca, model.cpu, loop, passes) for passes in (_SHORT, _LONG))
    if short is None or long is None:
        note = f"LLVM {llvm} does not know {model.cpu}, LLVM {model.llvm} does"
        return Prediction(model.name, "llvm-mca", None, None, note)
    cycles = (long - short) / (_LONG - _SHORT)
    share = _share(kernel, loop, model, cycles)
    return Prediction(model.name, "llvm-mca", cycles, share, _note(model, llvm, _is_wide(kernel)))


def _is_wide(kernel: Kernel) -> bool:
    return LEVELS[kernel.spec.level].vector_kind == "zmm"


def _share(kernel: Kernel, loop: Loop, model: Model, cycles: float) -> float | None:
    fmas = sum(bool(_FMA.match(instruction.text)) for instruction in loop.instructions)
    return fmas / (cycles * (model.wide_fmas if _is_wide(kernel) else 2)) if fmas and cycles else None


def _text(loop: Loop) -> str:
    # The branch belongs to the loop, its label stands where it always does.
    top = loop.instructions[-1].text.split()[-1]
    return "\n".join((".intel_syntax noprefix", f"{top}:", *(i.text for i in loop.instructions), ""))


def _cycles(mca: Path, cpu: str, loop: Loop, passes: int) -> int | None:
    """Cycles of some passes; None where the processor is not known."""
    command = [str(mca), "-mtriple=x86_64", f"-mcpu={cpu}", f"-iterations={passes}"]
    done = subprocess.run(command, input=_text(loop), text=True, capture_output=True)
    if "not a recognized processor" in done.stderr:
        return None
    match = re.search(r"^Total Cycles: +(\d+)", done.stdout, re.MULTILINE)
    if done.returncode or match is None:
        raise PredictionError(f"llvm-mca failed: {done.stderr.strip() or done.stdout.strip()}")
    return int(match[1])


def _note(model: Model, llvm: int, wide: bool) -> str:
    """What is known to be wrong with the model."""
    if not wide:
        return "wrong: half of the multiply-adds a cycle" if model.cpu.startswith("znver") and llvm < 19 else ""
    if model.cpu == "znver4":
        return "doubtful: compared with no Zen 4"
    if model.cpu == "znver5":
        return "wrong: a Zen 5 was measured at 98% for each of the tiles of 512 bits"
    if model.cpu == "skylake-avx512":
        return "pessimistic: loads of 512 bits take an arithmetic port as well"
    if llvm < 15:
        return "taken from skylake-avx512, pessimistic: loads of 512 bits take an arithmetic port as well"
    return "wrong: one multiply-add of 512 bits a cycle instead of two"


def _no_bound(model: Model, note: str) -> Prediction:
    return Prediction(model.name, "OSACA", None, None, note)


def _in_att_syntax(loop: Loop, assembler: str, disassembler: str, folder: Path) -> Path:
    """The loop's file for OSACA, whose parser of Intel's syntax takes seconds to start."""
    code, source = folder / "loop.o", folder / "loop.s"
    done = subprocess.run([assembler, "-o", code, "-"], input=_text(loop), text=True, capture_output=True)
    if done.returncode:
        raise PredictionError(f"as failed: {done.stderr.strip()}")
    command = [disassembler, "-d", "--no-show-raw-insn", str(code)]
    listing = subprocess.run(command, text=True, capture_output=True, check=True).stdout
    lines = re.findall(r"^ *[0-9a-f]+:\t(.+?) *(?:[<#].*)?$", listing, re.MULTILINE)
    # OSACA takes a label, not an address.
    source.write_text("\n".join((".Ltop:", *(re.sub(r"^(j\w+) .*", r"\1 .Ltop", line) for line in lines), "")))
    return source


def _bound(kernel: Kernel, loop: Loop, model: Model, osaca: Sequence[str], release: str, source: Path) -> Prediction:
    if model.osaca is None:
        return _no_bound(model, f"{release} does not model it")
    report = source.with_suffix(".yml")
    # Chains of dependencies, most of the time, do not enter the bound.
    options = ["--arch", model.osaca, "--syntax", "ATT", "--lcd-timeout", "0", "--yaml-out", str(report)]
    done = subprocess.run([*osaca, *options, str(source)], text=True, capture_output=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["?"])[-1]
        if model.osaca == "ZEN4" and "not in port list" in why:
            why = "its data of broadcasts from memory is broken"
        return _no_bound(model, f"{release} fails: {why}")
    printed = report.read_text()
    missing = sorted(set(re.findall(r"Flags: \[[^]]*tp_unknown[^]]*\]\s+Instruction: (\w+)", printed)))
    if missing:
        return _no_bound(model, f"{release} lacks data of {', '.join(missing)}")
    pressures = re.search(r"^Summary:.*?PortPressure: \{([^}]*)\}", printed, re.MULTILINE | re.DOTALL)
    if pressures is None:
        raise PredictionError(f"{release} printed no pressure of ports")
    cycles = max(float(value) for value in re.findall(r":\s+([\d.]+)", pressures[1]))
    return Prediction(model.name, "OSACA", cycles, _share(kernel, loop, model, cycles), _osaca_note(model))


def _osaca_note(model: Model) -> str:
    """What is known to be wrong with OSACA's model."""
    if model.osaca in ("SKX", "ICX"):
        return "pessimistic: broadcasts from memory take an arithmetic port as well"
    return f"doubtful: compared with no {'Zen 4' if model.osaca == 'ZEN4' else 'Sapphire Rapids'}"
