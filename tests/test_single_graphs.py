"""Operations that are taken one by one in ggml's graphs: none of them is left to ggml."""

from __future__ import annotations

import re

import pytest

from tests.patched_ggml import RUNS, Graphs, every_form, source

# Relative to the largest number of a tensor.
ERROR = 3e-6

# The rows of the profile, without extents, and how many calls of each there are.
CASES: dict[str, dict[str, int]] = {
    "soft_max": {"softmax": 1},
    "soft_max_in_place": {"softmax": 2},
    "soft_max_masked": {"softmax": 4},
    "soft_max_of_view": {"softmax": 1},
    "upscale": {"upscale": 4},
    "upscale_between": {"ggml UPSCALE": 1},
    "norms": {"group norm": 1, "layer norm": 2},
    "elements": {"map": 5},
    "functions": {"map": 10},
    "concatenations": {"permutation": 6},
    "permutations": {"permutation": 24},
}

# What the graphs themselves are made with.
MADE = ("ggml NEG", "ggml CONT", "permutation")

ROW = re.compile(r"^(\S.*?) (?:\d+x){3}\d+ +(\d+) +\d+\.\d+ ", re.MULTILINE)


@every_form
@pytest.mark.parametrize("case", CASES)
def test_single_operations_are_taken(graphs: Graphs, case: str, form: dict[str, str]) -> None:
    done = graphs.run(case, SDGEN_PROFILE="1", **form)
    assert done.error <= ERROR
    calls: dict[str, int] = {}
    for name, count in ROW.findall(done.said):
        calls[name] = calls.get(name, 0) + int(count)
    made = [name for name in calls if name in MADE and name not in CASES[case]]
    assert {name: count for name, count in calls.items() if name not in made} == {
        name: RUNS * count for name, count in CASES[case].items()
    }


def test_every_case_is_run() -> None:
    """The program has no case that is not run here."""
    names = re.findall(r'^    \{"(\w+)", ', source("single-graphs").read_text(), re.MULTILINE)
    assert names == [*CASES]
