"""build/bin/sdgen-bench --forms upstream: rows of a program that computes as ggml does, and of one that fails."""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import patched_ggml
from tests import sdgen_native as native
from tests.sdgen_native import REPOSITORY, Level
from tests.test_sdgen_bench import CONV, LINEAR, TIMEOUT, bench, program, shapes

STAND_IN = REPOSITORY / "tests" / "upstream_stand_in.py"
FORMS = ("--forms", "assembly,upstream")
# Of each operation an odd one and one of the smallest.
SHAPES = {
    LINEAR: "",
    "linear 1x1x1": "",
    CONV: "im2col",
    "conv3x3/2 16->24@9x7": "im2col",
    "conv3x3 up 32->16@12x10": "im2col",
    "conv5x5 3->4@9x9": "im2col",
    "conv1x1 5->3@4x6": "im2col",
    "attention 20x30 2x16": "",
    "attention 1x1 1x1": "",
    "map add 7x5": "",
    "map add-channel 7x5": "",
    "map silu 7x5": "",
    "map gelu 7x5": "",
    "map gelu_erf 7x5": "",
    "norm group silu 64x3": "",
    "norm rows 40x6": "",
}

pytestmark = pytest.mark.skipif(Level.AVX2 not in native.native_levels(), reason="the bench needs AVX2")


def stand_in(folder: Path, way: str) -> tuple[str, ...]:
    """The arguments that make it the program of upstream's form."""
    path = folder / "bench-upstream"
    command = shlex.join([sys.executable, str(STAND_IN), way])
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)
    return ("--upstream", str(folder))


def by_label(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {row["label"]: row for row in json.loads(done.stdout)["benchmarks"]}


def test_row(tmp_path: Path) -> None:
    done = bench(*stand_in(tmp_path, "right"), *FORMS, *shapes(LINEAR), "--format", "json")
    assert done.returncode == 0, done.stderr
    found = by_label(done)
    assert list(found) == ["assembly", "upstream"]
    row = found["upstream"]
    # The program's own figures, not how long it took to have them.
    assert row["real_time"] == pytest.approx(1e-3) and row["cpu_time"] == pytest.approx(0.5e-3)
    assert row["gflops"] == pytest.approx(2 * 24 * 32 * 40 / 1e-3 / 1e9)
    assert row["iterations"] == found["assembly"]["iterations"] >= 2
    assert row["ratio"] > 0 and row["error"] < 1e-6 and row["method"] == ""


def test_only_row(tmp_path: Path) -> None:
    done = bench(*stand_in(tmp_path, "right"), "--forms", "upstream", *shapes(LINEAR), "--format", "csv")
    assert done.returncode == 0, done.stderr
    (row,) = csv.DictReader(done.stdout.splitlines())
    assert row["label"] == "" and float(row["real_time"]) == pytest.approx(1e-3)


def test_kernels_have_no_such_row(tmp_path: Path) -> None:
    arguments = (*stand_in(tmp_path, "ends"), "--set", "kernels", "--format", "json")
    done = bench(*arguments, "--forms", "avx2,upstream", "--filter", "gemm_f32_6x16_avx2")
    assert done.returncode == 0, done.stderr
    assert [row["name"] for row in json.loads(done.stdout)["benchmarks"]] == ["gemm_f32_6x16_avx2"]
    done = bench(*arguments, "--forms", "upstream")
    assert done.returncode == 2 and "no row's name holds it" in done.stderr


@pytest.mark.parametrize(
    "way, said",
    [
        ("ends", f'ended (exit status {len(os.sched_getaffinity(0))}) when it was asked "linear 24 32 40"'),
        ("nonsense", 'answered "?? "x"", not "inputs 2560 3840", to "linear 24 32 40"'),
        ("other inputs", 'answered "inputs 2560 3841", not "inputs 2560 3840", to "linear 24 32 40"'),
        ("other result", 'answered "ready 3073", not "ready 3072", to "linear 24 32 40"'),
        ("no time", 'answered "ran 0 0", not "ran" and two numbers, to "run 1"'),
        ("short", 'ended (exit status 0) when it was asked "result"'),
        ("dies", 'ended (Segmentation fault) when it was asked "run 1"'),
    ],
)
def test_failure_ends_the_row_alone(tmp_path: Path, way: str, said: str) -> None:
    """That of the processors says as well that the program may run on all that the bench may."""
    done = bench(*stand_in(tmp_path, way), "--forms", "upstream,assembly,c", *shapes(LINEAR), "--format", "json")
    sentence = f"{tmp_path}/bench-upstream {said}"
    assert done.returncode == 1 and f"sdgen-bench: {LINEAR} upstream: {sentence}\n" in done.stderr
    found = by_label(done)
    assert found["upstream"]["error_occurred"] and found["upstream"]["error_message"] == sentence
    assert "real_time" not in found["upstream"]
    for label in ("assembly", "c"):
        assert found[label]["gflops"] > 0 and found[label]["ratio"] is None


@pytest.mark.parametrize("way, cell", [("ends", "FAILED"), ("wrong", "WRONG")])
def test_failure_in_tables(tmp_path: Path, way: str, cell: str) -> None:
    done = bench(*stand_in(tmp_path, way), *FORMS, *shapes(LINEAR))
    assert done.returncode == 1
    (line,) = (line for line in done.stdout.splitlines() if "upstream" in line.split() and LINEAR in line)
    assert cell in line.split()
    assert line.rstrip().endswith("-") == (way == "ends")


def test_program_that_cannot_be_started(tmp_path: Path) -> None:
    path = tmp_path / "bench-upstream"
    path.write_text("")
    path.chmod(0o755)
    done = bench("--upstream", str(tmp_path), *FORMS, *shapes(LINEAR), "--format", "csv")
    assert done.returncode == 1 and f"upstream: {path} cannot be started: Exec format error\n" in done.stderr


def states(process: int) -> list[str]:
    return [
        (thread / "stat").read_text().rsplit(") ", 1)[1][0] for thread in Path("/proc", str(process), "task").iterdir()
    ]


def test_threads_sleep_while_the_program_computes(tmp_path: Path) -> None:
    command = [str(program()), "--threads", "2", *stand_in(tmp_path, "sleeps"), *FORMS, *shapes(LINEAR)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            deadline, asleep = time.monotonic() + TIMEOUT, 0
            while time.monotonic() < deadline and asleep < 10:
                time.sleep(0.02)
                asleep = asleep + 1 if states(running.pid) == ["S", "S"] else 0
        finally:
            running.kill()
    assert asleep == 10


@pytest.fixture(scope="module")
def ggml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the real program, of the patched ggml."""
    folder = tmp_path_factory.mktemp("upstream")
    patched_ggml.build("upstream", folder, sources=REPOSITORY / "bench").rename(folder / "bench-upstream")
    return folder


def test_ggml(ggml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By upstream's kernels, whose results are less exact; all else there is to them is right."""
    monkeypatch.setenv("SDGEN_KERNELS", "upstream")
    done = bench("--upstream", str(ggml), *FORMS, *shapes(*SHAPES), "--format", "json")
    assert done.returncode == 0, done.stderr
    found = [row for row in json.loads(done.stdout)["benchmarks"] if row["label"] == "upstream"]
    assert {row["shape"]: row["method"] for row in found} == SHAPES
    for row in found:
        assert row["real_time"] > 0 and row["cpu_time"] > 0 and row["ratio"] > 0
    assert any(row["error"] > 1e-5 for row in found)


@pytest.mark.parametrize(
    "asked, said",
    [
        ("", ""),
        ("linear 1 2\n", "no operation is asked for by linear 1 2"),
        ("linear 1 2 3 4\n", "no operation is asked for by linear 1 2 3 4"),
        ("linear 0 1 1\n", "no operation is asked for by linear 0 1 1"),
        ("map silu 1 1\n", "the inputs end too early"),
        ("map silu 1 1\n1234run 0\n", "nothing is known of run 0"),
    ],
)
def test_what_the_program_refuses(ggml: Path, asked: str, said: str) -> None:
    done = subprocess.run([ggml / "bench-upstream", "1"], input=asked, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == (2 if said else 0)
    assert done.stderr.strip() == (said and f"bench-upstream: {said}")
