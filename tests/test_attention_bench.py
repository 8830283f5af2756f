"""bench/attention.py, short and small: what it measures is right, with these kernels and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.built import require_sd_cli
from tests.sdgen_native import REPOSITORY

pytestmark = pytest.mark.slow

SCRIPT = REPOSITORY / "bench" / "attention.py"
GGML = REPOSITORY / "build" / "sd-cli" / "ggml" / "src" / "libggml.a"
TIMEOUT = 120
DIM, HEADS, TOKENS = 48, 2, 20

Row = dict[str, Any]

# The largest error of a section's rows by the type of what was rounded, as shares of the largest exact result.
RELATIVE = {
    "attention": {"F32": 3e-6, "F16": 5e-3},
    "masks": {"F32": 3e-6, "F16": 5e-3},
    "matmul": {"F32": 1e-6, "F16": 1e-3, "Q8_0": 2e-2},
}
# Of this project's kernels; ggml looks its gelu up in a table of half precision.
ABSOLUTE = {
    ("norm", "(x - mean) / sqrt(variance + 1e-6)"): 1e-6,
    ("gelu", "by erf"): 1e-3,
    ("gelu", "by tanh, its own"): 2e-6,
    ("gelu_erf", "by erf, its own"): 2e-6,
}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    require_sd_cli(GGML)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SDGEN_")}
    command = [sys.executable, str(SCRIPT), "--only", "sdgen", "upstream", "--threads", "2", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    shape = ("--dims", str(DIM), "--heads", str(HEADS), "--n", str(TOKENS))
    done = bench("--quick", "--seconds", "0", *shape, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: list[Row] = json.loads(done.stdout)["benchmarks"]
    return found


def of(rows: list[Row], section: str) -> list[Row]:
    """Those of a section, of which there are as many for one program as for the other."""
    found = [row for row in rows if row["section"] == section]
    assert found and sum(row["program"] == "sdgen" for row in found) * 2 == len(found)
    return found


@pytest.mark.parametrize("section", RELATIVE)
def test_errors(rows: list[Row], section: str) -> None:
    for row in of(rows, section):
        bound = RELATIVE[section][row["kv"] if "kv" in row else row["type"]]
        assert row["relative"] is not None and row["relative"] <= bound, row


def test_masks(rows: list[Row]) -> None:
    found = of(rows, "masks")
    assert all(row["right"] for row in found)
    assert {row["n"] for row in found} == {48, 256} and len({row["block"] for row in found}) > 3
    # Of what upstream's softmax makes of a row without keys nothing is asked.
    assert {row["blind"] for row in found if row["program"] == "sdgen" or row["form"] != "unfused"} == {"zeros"}


def test_accuracy(rows: list[Row]) -> None:
    found = {(row["operation"], row["formula"]): row["absolute"] for row in rows if "formula" in row}
    assert found.keys() == ABSOLUTE.keys()
    for row in of(rows, "accuracy"):
        if row["program"] == "sdgen":
            assert row["absolute"] <= ABSOLUTE[row["operation"], row["formula"]], row


def test_memory(rows: list[Row]) -> None:
    """A flash attention's graph holds its output, and copies of k and v if any; an unfused one the scores as well."""
    output = 4 * DIM * HEADS * TOKENS
    for row in of(rows, "attention"):
        if row["form"] == "unfused":
            assert row["graph_bytes"] >= output + 4 * HEADS * TOKENS**2
        else:
            copied = row["form"] == "flash of qkv" and row["kv"] == "F16"
            assert output <= row["graph_bytes"] <= (2 if copied else 1) * output + 1024


def test_table() -> None:
    done = bench("--sections", "masks", "accuracy")
    assert done.returncode == 0, done.stderr
    assert "flash of qkv" in done.stdout and "gelu_erf" in done.stdout and "WRONG" not in done.stdout


def test_wrong_arguments() -> None:
    for arguments in (("--n", "0"), ("--dims", "x"), ("--seconds", "-1"), ("--sections", "all")):
        done = bench(*arguments)
        assert done.returncode == 2 and arguments[0] in done.stderr
