"""The hook in ggml: which nodes it takes, what becomes of them, and that it leaves the others as they are."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import sdgen_native as native
from tests.operations import CHANCE_ERROR
from tests.sdgen_native import REPOSITORY, Level

BUILD = REPOSITORY / "build" / "sd-cli"
HEADERS = REPOSITORY / "build" / "src" / "patched" / "ggml" / "include"
LIBRARIES = [BUILD / "ggml" / "src" / f"lib{name}.a" for name in ("ggml", "ggml-cpu", "ggml-base")]
SOURCE = REPOSITORY / "tests" / "native" / "hook.c"
TAKEN = re.compile(r"^sdgen: took (\d+) of (\d+) nodes", re.MULTILINE)
DOUBLED = re.compile(r"^sdgen: doubled (\d+) images within convolutions, (\d+) of them copied first", re.MULTILINE)
TIMEOUT = 120

# What ggml may err by: it rounds activations as its weights are, to half precision or to 8 bits.
GGML_ERROR = 2e-2

# What Winograd's convolution may err by, and the cases that it may be chosen for.
WINOGRAD_ERROR = 2e-6
BY_WINOGRAD = ("convolution_deep", "planned_for_eight")

# Doublings of an image that are left to the convolution, and for how many of them the image is copied.
DOUBLED_OF: dict[str, tuple[int, int]] = {
    "doubled": (1, 0),
    "doubled_view": (1, 0),
    "doubled_overwritten": (1, 1),
    "doubled_read_twice": (0, 0),
    "doubled_wanted": (0, 0),
    "doubled_smoothly": (0, 0),
    "doubled_planned_for_eight": (8, 0),
    "doubled_overwritten_planned_for_eight": (8, 8),
}

# Of the products and convolutions in a case's graphs, those that are taken and how many there are.
TAKEN_OF: dict[str, tuple[int, int]] = {
    "product_f32": (1, 1),
    "product_f16": (1, 1),
    "product_bf16": (1, 1),
    "product_of_one_row": (1, 1),
    "product_batched": (1, 1),
    "product_broadcast": (1, 1),
    "product_permuted": (1, 1),
    "product_of_views": (1, 1),
    "product_with_itself": (1, 1),
    "convolution_f32": (1, 1),
    "convolution_f16": (1, 1),
    "convolution_bf16": (1, 1),  # ggml has no such convolution: it ends the program
    "convolution_deep": (1, 1),
    "convolution_1x1": (1, 1),
    "convolution_strided": (1, 1),
    "convolution_of_view": (1, 1),
    "doubled": (1, 1),
    "doubled_view": (1, 1),
    "doubled_overwritten": (1, 1),
    "doubled_read_twice": (2, 2),
    "doubled_wanted": (1, 1),
    "doubled_smoothly": (1, 1),
    "doubled_planned_for_eight": (8, 8),
    "doubled_overwritten_planned_for_eight": (8, 8),
    "planned_for_eight": (24, 24),
    # For a convolution ggml plans more than enough; what is planned for a product of one thread is not enough for four.
    "product_planned_for_one": (0, 1),
    "convolution_planned_for_one": (1, 1),
    "aborted": (9, 9),
    "reused_threadpool": (21, 21),
}
DECLINED: dict[str, tuple[int, int]] = {
    "product_q8_0": (0, 1),
    "product_q4_K": (0, 1),
    "product_x_f16": (0, 1),
    "convolution_transposed": (0, 1),
    "use_ref": (0, 0),
    "doubled_use_ref": (0, 0),
}


@dataclass(frozen=True)
class Done:
    """What came of a case."""

    error: float
    result: bytes
    taken: tuple[int, int]
    doubled: tuple[int, int]


def counts_in(pattern: re.Pattern[str], text: str) -> tuple[int, int] | None:
    """The two numbers of a line, which is only there where something is said."""
    match = pattern.search(text)
    return (int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True)
class Hook:
    program: Path
    folder: Path

    def run(self, case: str, **environment: str) -> Done:
        settings = {name: value for name, value in os.environ.items() if not name.startswith("SDGEN_")}
        settings |= {"SDGEN_VERBOSE": "1", **environment}
        out = self.folder / f"{case}.bin"
        command = [str(self.program), case, str(out)]
        done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, f"{case} {environment}: status {done.returncode}: {done.stderr}"
        taken, doubled = (counts_in(pattern, done.stderr) for pattern in (TAKEN, DOUBLED))
        assert taken or settings.get("SDGEN_KERNELS") == "upstream", done.stderr
        return Done(float(done.stdout), out.read_bytes(), taken or (0, 0), doubled or (0, 0))


def cmake_cache() -> dict[str, str]:
    """What the patched ggml was built with."""
    entries = re.findall(r"^(\w+):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
    return dict(entries)


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Hook:
    """The program, linked as ggml's own tests are."""
    if not all(library.exists() for library in LIBRARIES):
        if os.environ.get("SDGEN_NO_SD_CLI") == "1":
            pytest.skip("SDGEN_NO_SD_CLI=1")
        pytest.fail(
            f"{LIBRARIES[0]} is absent: `make sd-cli` builds it; SDGEN_NO_SD_CLI=1 leaves its tests out", pytrace=False
        )
    folder = tmp_path_factory.mktemp("hook")
    cache = cmake_cache()
    warnings = ["-Wall", "-Wextra", "-Werror"]
    compiled = [*shlex.split(cache["CMAKE_C_FLAGS"]), "-std=c17", "-O1", f"-I{HEADERS}", "-c", str(SOURCE)]
    linked = shlex.split(f"{cache['CMAKE_CXX_FLAGS']} {cache['CMAKE_EXE_LINKER_FLAGS']} {cache['OpenMP_CXX_FLAGS']}")
    linked += [*map(str, LIBRARIES), "-ldl", "-lm", "-lpthread"]
    for command in (
        [cache["CMAKE_C_COMPILER"], *warnings, *compiled, "-o", str(folder / "hook.o")],
        [cache["CMAKE_CXX_COMPILER"], str(folder / "hook.o"), *linked, "-o", str(folder / "hook")],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return Hook(folder / "hook", folder)


def forms() -> list[dict[str, str]]:
    """The environments that choose each of the levels that run here."""
    return [
        {"SDGEN_KERNELS": "c"} if level == Level.C else {"SDGEN_ISA": native.level_name(level)}
        for level in native.native_levels()
    ]


every_form = pytest.mark.parametrize("form", forms(), ids=lambda form: next(iter(form.values())))


@every_form
@pytest.mark.parametrize("case", TAKEN_OF)
def test_taken(hook: Hook, case: str, form: dict[str, str]) -> None:
    done = hook.run(case, **form)
    assert done.taken == TAKEN_OF[case]
    assert done.doubled == DOUBLED_OF.get(case, (0, 0))
    assert done.error <= (WINOGRAD_ERROR if case in BY_WINOGRAD or case in DOUBLED_OF else CHANCE_ERROR)


@pytest.mark.parametrize("case", DECLINED)
def test_declined_is_what_ggml_computes(hook: Hook, case: str) -> None:
    done, upstream = hook.run(case), hook.run(case, SDGEN_KERNELS="upstream")
    assert done.taken == DECLINED[case] and upstream.taken == (0, 0)
    assert done.error <= GGML_ERROR
    assert done.result == upstream.result


@pytest.mark.parametrize("case", [case for case in TAKEN_OF if case != "convolution_bf16"])
def test_upstream_takes_nothing(hook: Hook, case: str) -> None:
    """The same cases by ggml alone: were their exact results wrong, its results would be far from them."""
    done = hook.run(case, SDGEN_KERNELS="upstream")
    assert done.taken == (0, 0)
    assert done.error <= GGML_ERROR


def test_every_case_is_run() -> None:
    """The program has no case that is not run here."""
    table = SOURCE.read_text().split("} cases[] = {")[1].split("#undef ONCE")[0]
    names = re.findall(r'ONCE\((\w+)\),|\{"(\w+)",', table)
    assert {once or other for once, other in names} == TAKEN_OF.keys() | DECLINED.keys()
