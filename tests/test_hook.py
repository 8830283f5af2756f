"""The hook in ggml: which nodes it takes, what becomes of them, and that it leaves the others as they are."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.operations import CHANCE_ERROR
from tests.patched_ggml import DOUBLED, TAKEN, TIMEOUT, build, every_form, settings, source

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
        variables = settings(**environment)
        out = self.folder / f"{case}.bin"
        command = [str(self.program), case, str(out)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, f"{case} {environment}: status {done.returncode}: {done.stderr}"
        taken, doubled = (counts_in(pattern, done.stderr) for pattern in (TAKEN, DOUBLED))
        assert taken or variables.get("SDGEN_KERNELS") == "upstream", done.stderr
        return Done(float(done.stdout), out.read_bytes(), taken or (0, 0), doubled or (0, 0))


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Hook:
    folder = tmp_path_factory.mktemp("hook")
    return Hook(build("hook", folder), folder)


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
    table = source("hook").read_text().split("} cases[] = {")[1].split("#undef ONCE")[0]
    names = re.findall(r'ONCE\((\w+)\),|\{"(\w+)",', table)
    assert {once or other for once, other in names} == TAKEN_OF.keys() | DECLINED.keys()
