"""How fast a kernel's inner loop is by models of processors: a help for choosing tiles, not a claim.

llvm-mca simulates the first inner loop of a kernel, over and over, with everything in the first-level cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gen.dsl import Kernel, Loop
from gen.isa import LEVELS


class PredictionError(Exception):
    """Nothing can be predicted; the message says why."""


@dataclass(frozen=True)
class Model:
    """A processor: llvm-mca's name and its multiply-adds of 512 bits a cycle; of 256 bits all make two."""

    name: str
    cpu: str
    wide_fmas: int


@dataclass(frozen=True)
class Prediction:
    """What a model says; cycles and share are None where llvm-mca does not know the processor."""

    processor: str
    cycles: float | None  # of a pass of the loop
    share: float | None  # of the processor's peak of multiply-adds; None where the loop has none
    note: str


MODELS = {
    model.name: model
    for model in (
        Model("skylake-x", "skylake-avx512", 2),
        Model("icelake", "icelake-server", 2),
        Model("zen4", "znver4", 1),
        Model("zen5", "znver5", 2),
        Model("sapphirerapids", "sapphirerapids", 2),
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


def predict(kernel: Kernel, names: Sequence[str], mca: Path) -> list[Prediction]:
    """What the models of these names say of the kernel's first inner loop."""
    unknown = sorted(set(names) - MODELS.keys())
    if unknown:
        raise PredictionError(f"unknown processor {unknown[0]!r}; there are: {', '.join(MODELS)}")
    if not kernel.loops:
        raise PredictionError(f"{kernel.spec.name} has no loop")
    llvm = version(mca)
    return [_predict(kernel, kernel.loops[0], MODELS[name], mca, llvm) for name in names]


def _predict(kernel: Kernel, loop: Loop, model: Model, mca: Path, llvm: int) -> Prediction:
    short, long = (_cycles(mca, model.cpu, loop, passes) for passes in (_SHORT, _LONG))
    if short is None or long is None:
        return Prediction(model.name, None, None, f"LLVM {llvm} does not know {model.cpu}")
    cycles = (long - short) / (_LONG - _SHORT)
    wide = LEVELS[kernel.spec.level].vector_kind == "zmm"
    fmas = sum(bool(_FMA.match(instruction.text)) for instruction in loop.instructions)
    share = fmas / (cycles * (model.wide_fmas if wide else 2)) if fmas else None
    return Prediction(model.name, cycles, share, _note(model, llvm, wide))


def _cycles(mca: Path, cpu: str, loop: Loop, passes: int) -> int | None:
    """Cycles of some passes; None where the processor is not known."""
    # The branch belongs to the loop, its label stands where it always does.
    top = loop.instructions[-1].text.split()[-1]
    text = "\n".join((".intel_syntax noprefix", f"{top}:", *(i.text for i in loop.instructions), ""))
    command = [str(mca), "-mtriple=x86_64", f"-mcpu={cpu}", f"-iterations={passes}"]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
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
