"""Programs of tests/native, linked to the patched ggml as its own tests are, and what the hook says of them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests import sdgen_native as native
from tests.sdgen_native import REPOSITORY, Level

BUILD = REPOSITORY / "build" / "sd-cli"
GGML = REPOSITORY / "build" / "src" / "patched" / "ggml"
# Those of src/ are ggml's own, with functions that not every source uses.
HEADERS = [f"-I{GGML / 'include'}", "-isystem", str(GGML / "src")]
LIBRARIES = [BUILD / "ggml" / "src" / f"lib{name}.a" for name in ("ggml", "ggml-cpu", "ggml-base")]
TAKEN = re.compile(r"^sdgen: took (\d+) of (\d+) nodes", re.MULTILINE)
TIMEOUT = 120


def source(name: str) -> Path:
    return REPOSITORY / "tests" / "native" / f"{name}.c"


def settings(**environment: str) -> dict[str, str]:
    """The environment of a program whose hook is to say what it took."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("SDGEN_")}
    return others | {"SDGEN_VERBOSE": "1", **environment}


def cmake_cache() -> dict[str, str]:
    """What the patched ggml was built with."""
    entries = re.findall(r"^(\w+):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return dict(entries)


def build(name: str, folder: Path, *parts: str) -> Path:
    """The program of this name, of the source of that name and of more."""
    if not all(library.exists() for library in LIBRARIES):
        if os.environ.get("SDGEN_NO_SD_CLI") == "1":
            pytest.skip("SDGEN_NO_SD_CLI=1")
        pytest.fail(
            f"{LIBRARIES[0]} is absent: `make sd-cli` builds it; SDGEN_NO_SD_CLI=1 leaves its tests out", pytrace=False
        )
    cache = cmake_cache()
    warnings = ["-Wall", "-Wextra", "-Werror"]
    compile_part = [cache["CMAKE_C_COMPILER"], *warnings, *shlex.split(cache["CMAKE_C_FLAGS"]), "-std=c17", "-O1"]
    linked = shlex.split(f"{cache['CMAKE_CXX_FLAGS']} {cache['CMAKE_EXE_LINKER_FLAGS']} {cache['OpenMP_CXX_FLAGS']}")
    linked += [*map(str, LIBRARIES), "-ldl", "-lm", "-lpthread"]
    program = folder / name
    objects = {part: str(folder / f"{part}.o") for part in (name, *parts)}
    for command in (
        *([*compile_part, *HEADERS, "-c", str(source(part)), "-o", objects[part]] for part in objects),
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
