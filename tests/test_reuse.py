"""Products that are kept from graph to graph: which, and that the results are those of products computed each time."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.patched_ggml import TIMEOUT, build, every_form, settings, source

LOOKED = re.compile(
    r"^sdgen: of (\d+) products that may be the same in each step, copied (\d+) and kept (\d+); "
    r"at the end (\d+) are kept, ([\d.]+) MiB$",
    re.MULTILINE,
)

# Of each case, the products looked for, copied and kept, and those that are kept at last.
COUNTS: dict[str, tuple[int, int, int, int]] = {
    "same": (25, 15, 5, 5),
    "two_prompts": (16, 8, 4, 4),
    "changing": (5, 0, 0, 0),
    "prompt_changes": (8, 4, 2, 2),
    "weights_change": (7, 4, 2, 2),
    "weights_change_places": (12, 7, 3, 3),
    "weights_added_to": (4, 0, 3, 3),
    "input_changes_within": (8, 4, 2, 2),
    "chains": (30, 16, 8, 8),
    "shapes": (12, 6, 3, 3),
    "not_taken": (0, 0, 0, 0),
    "idle": (5, 2, 2, 1),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("reuse", tmp_path_factory.mktemp("reuse"))


def run(program: Path, case: str, threads: int, **environment: str) -> tuple[bytes, tuple[int, ...]]:
    out = program.parent / "results"
    variables = settings(OMP_WAIT_POLICY="passive", **environment)
    command = [str(program), case, str(threads), str(out)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, f"{case} {environment}: status {done.returncode}: {done.stderr}"
    found = LOOKED.search(done.stderr)
    return out.read_bytes(), tuple(map(int, found.groups()[:4])) if found else (0, 0, 0, 0)


@every_form
@pytest.mark.parametrize("case", COUNTS)
def test_kept_products_are_those_computed(program: Path, case: str, form: dict[str, str]) -> None:
    computed, counts = run(program, case, 1, SDGEN_TUNE="reuse=0", **form)
    assert counts == (0, 0, 0, 0)
    for threads in (1, 2, 3, 4):
        kept, counts = run(program, case, threads, **form)
        assert counts == COUNTS[case]
        assert kept == computed, f"{case} with {threads} threads: another result"


def test_profile_tells_copies_from_products(program: Path) -> None:
    out = program.parent / "results"
    command = [str(program), "prompt_changes", "2", str(out)]
    done = subprocess.run(
        command, env=settings(SDGEN_PROFILE="1"), capture_output=True, text=True, timeout=TIMEOUT, check=True
    )
    calls = dict(re.findall(r"^(linear .*?)  +(\d+) ", done.stderr, re.MULTILINE))
    assert calls == {"linear 77x272x40": "4", "linear 77x272x40 reused": "4"}


def test_every_case_is_run() -> None:
    """The program has no case that is not run here."""
    table = source("reuse").read_text().split("} cases[] = {")[1]
    assert re.findall(r'\{"(\w+)",', table) == list(COUNTS)
