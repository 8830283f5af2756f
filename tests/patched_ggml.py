"""Programs of tests/native, linked to the patched ggml as its own tests are, and what the hook says of them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import sdgen_native as native
from tests.built import require_sd_cli
from tests.sdgen_native import REPOSITORY, Level

BUILD = REPOSITORY / "build" / "sd-cli"
GGML = REPOSITORY / "build" / "src" / "patched" / "ggml"
NATIVE = REPOSITORY / "tests" / "native"
# Those of src/ are ggml's own, with functions that not every source uses.
HEADERS = [f"-I{GGML / 'include'}", "-isystem", str(GGML / "src")]
LIBRARIES = [BUILD / "ggml" / "src" / f"lib{name}.a" for name in ("ggml", "ggml-cpu", "ggml-base")]
TAKEN = re.compile(r"^sdgen: took (\d+) of (\d+) nodes", re.MULTILINE)
MADE = re.compile(
    r"^sdgen: made (\d+) attentions of several nodes each, (\d+) inputs copied first and (\d+) outputs last$",
    re.MULTILINE,
)
DOUBLED = re.compile(r"^sdgen: doubled (\d+) images within convolutions, (\d+) of them copied first", re.MULTILINE)
TIMEOUT = 120

# A case of tests/native/graphs.c is computed with so many numbers of threads by the hook, and then by ggml.
RUNS = 3


def source(name: str) -> Path:
    return NATIVE / f"{name}.c"


def settings(**environment: str) -> dict[str, str]:
    """The environment of a program whose hook is to say what it took."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("SDGEN_")}
    return others | {"SDGEN_VERBOSE": "1", "SDGEN_TUNE_FILE": "", **environment}


def cmake_cache() -> dict[str, str]:
    """What the patched ggml was built with."""
    entries = re.findall(r"^(\w+):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return dict(entries)


def build(name: str, folder: Path, *parts: str, sources: Path = NATIVE) -> Path:
    """The program of this name, of the source of that name and of more."""
    for library in LIBRARIES:
        require_sd_cli(library)
    cache = cmake_cache()
    warnings = ["-Wall", "-Wextra", "-Werror"]
    compile_part = [cache["CMAKE_C_COMPILER"], *warnings, *shlex.split(cache["CMAKE_C_FLAGS"]), "-std=c17", "-O1"]
    linked = shlex.split(f"{cache['CMAKE_CXX_FLAGS']} {cache['CMAKE_EXE_LINKER_FLAGS']} {cache['OpenMP_CXX_FLAGS']}")
    linked += [*map(str, LIBRARIES), "-ldl", "-lm", "-lpthread"]
    program = folder / name
    objects = {part: str(folder / f"{part}.o") for part in (name, *parts)}
    for command in (
        *([*compile_part, *HEADERS, "-c", str(sources / f"{part}.c"), "-o", objects[part]] for part in objects),
        [cache["CMAKE_CXX_COMPILER"], *objects.values(), *linked, "-o", str(program)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return program


def forms() -> list[dict[str, str]]:
    """The environments that choose each of the levels that run here."""
    return [
        {"SDGEN_KERNELS": "c"} if level == Level.C else {"SDGEN_ISA": native.level_name(level)}
        for level in native.native_levels()
    ]


every_form = pytest.mark.parametrize("form", forms(), ids=lambda form: next(iter(form.values())))


@dataclass(frozen=True)
class Done:
    """What came of a case."""

    error: float
    ggml_error: float
    taken: tuple[int, int]
    made: tuple[int, int, int]  # attentions, inputs and outputs copied
    said: str


@dataclass(frozen=True)
class Graphs:
    """The program of tests/native/graphs.c."""

    program: Path

    def run(self, *arguments: object, **environment: str) -> Done:
        command = [str(self.program), *map(str, arguments)]
        # Threads that wait leave the processor to others: there are more of them than processors.
        variables = settings(OMP_WAIT_POLICY="passive", **environment)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, f"{arguments} {environment}: status {done.returncode}: {done.stderr}"
        error, ggml_error = map(float, done.stdout.split())
        taken, made = TAKEN.search(done.stderr), MADE.search(done.stderr)
        assert taken, done.stderr
        return Done(
            error,
            ggml_error,
            (int(taken[1]), int(taken[2])),
            (int(made[1]), int(made[2]), int(made[3])) if made else (0, 0, 0),
            done.stderr,
        )
