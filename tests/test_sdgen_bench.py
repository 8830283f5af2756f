"""build/bin/sdgen-bench on tiny shapes: what it takes, what it prints, and what it refuses."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests import sdgen_native as native
from tests.sdgen_native import REPOSITORY, Level

BENCH = REPOSITORY / "build" / "bin" / "sdgen-bench"
BUILT = native.LIBRARIES / "bench" / "sdgen-bench"  # by `make native`
TIMEOUT = 60
LINEAR, CONV, ATTENTION, MAP = "linear 24x32x40", "conv3x3 32->16@12x8", "attention 20x30 2x16", "map gelu 8x96"
NORMS = ("norm group silu 32x20", "norm rows 40x6")
DATA = {"linear": LINEAR, "conv": CONV, "attention": ATTENTION, "map": MAP}
LEVELS = [native.level_name(level) for level in native.native_levels()]
# F(4x4) of two channels, which by shape would never be chosen: its error is above what is allowed.
WRONG = ("--shape", "conv3x3 2->128@12x12", "--tune", "winograd=4")

pytestmark = pytest.mark.skipif(Level.AVX2 not in native.native_levels(), reason="the bench needs AVX2")


def program() -> Path:
    found = BUILT if BUILT.exists() else BENCH
    if not found.exists():
        pytest.fail(f"{found} is absent: `make native` builds it", pytrace=False)
    return found


def bench(*arguments: str, seconds: str = "0.001") -> subprocess.CompletedProcess[str]:
    command = [str(program()), "--threads", "2", "--repetitions", "2", "--seconds", seconds, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)


def shapes(*names: str) -> list[str]:
    return [argument for name in names for argument in ("--shape", name)]


def rows(*arguments: str) -> list[dict[str, Any]]:
    done = bench(*arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["benchmarks"]
    return found


def test_json_has_google_benchmarks_keys() -> None:
    done = bench(*shapes(LINEAR, CONV, ATTENTION, MAP, *NORMS), "--format", "json")
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    assert output["context"]["cpu"] == native.sdgen_processor().contents.name.decode()
    assert output["context"]["rows"] == len(output["benchmarks"]) == 6
    blocking = native.sdgen_blocking(native.sdgen_processor())
    assert output["context"]["defaults"]["kc"] == blocking.kc
    assert [row["name"] for row in output["benchmarks"]] == [LINEAR, CONV, ATTENTION, MAP, *NORMS]
    for row in output["benchmarks"]:
        assert row["run_type"] == "iteration" and row["iterations"] >= 2 and row["time_unit"] == "s"
        assert row["real_time"] > 0 and row["cpu_time"] >= 0 and row["threads"] == 2
        assert 0 <= row["error"] < 1e-6
        rate, peak = ("gbytes", "peak_gbytes") if row["name"].startswith(("map", "norm")) else ("gflops", "peak_gflops")
        assert row[rate] > 0 and row[peak] > 0 and row["best_share"] > 0
        assert 0 <= row["quiet_samples"] <= row["iterations"]
        assert (row["quiet_share"] is None) == (row["quiet_samples"] == 0)
        assert (row["contended_share"] is None) == (row["quiet_samples"] == row["iterations"])
    # of a run: operations by seconds
    linear = output["benchmarks"][0]
    assert math.isclose(linear["gflops"] * 1e9 * linear["real_time"], 2 * 24 * 32 * 40, rel_tol=1e-5)


def test_progress_is_on_stderr() -> None:
    done = bench(*shapes(LINEAR, MAP), "--format", "csv")
    assert done.stderr.splitlines() == [f"[1/2] {LINEAR}", f"[2/2] {MAP}"]


def test_csv() -> None:
    done = bench(*shapes(LINEAR, MAP), "--forms", "assembly,c", "--format", "csv")
    assert done.returncode == 0, done.stderr
    found = list(csv.DictReader(done.stdout.splitlines()))
    assert [(row["name"], row["label"]) for row in found] == [
        (name, label) for name in (LINEAR, MAP) for label in ("assembly", "c")
    ]
    for row in found:
        assert None not in row and None not in row.values()
        assert float(row["rate"]) > 0 and float(row["peak"]) > 0 and float(row["error"]) < 1e-6
        assert row["unit"] == ("GFLOP/s" if row["name"] == LINEAR else "GB/s") and row["error_occurred"] == "false"


def test_md() -> None:
    done = bench(*shapes(LINEAR, MAP), "--format", "md")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len(lines) == 4 and len({line.count("|") for line in lines}) == 1
    assert re.fullmatch(r"(\| -+:? )+\|", lines[1])
    assert lines[2].startswith(f"| {LINEAR} |")


def test_table() -> None:
    done = bench(*shapes(LINEAR))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(LINEAR)
    assert re.search(r"\d\.\de-\d\d$", done.stdout.rstrip())


def test_forms() -> None:
    found = rows(*shapes(LINEAR, CONV), "--forms", ",".join(["assembly", *LEVELS]))
    assert [(row["shape"], row["label"]) for row in found] == [
        (shape, label) for shape in (LINEAR, CONV) for label in ("assembly", *LEVELS)
    ]
    for row in found:
        assert row["name"] == f"{row['shape']}/{row['label']}"
        assert row["ratio"] == 1 if row["label"] == "assembly" else row["ratio"] > 0


def test_variants() -> None:
    variants = ("plain:", "direct:winograd=0", "small:isa=avx2,kc=64,winograd=2")
    found = rows(*shapes(CONV), *(argument for text in variants for argument in ("--variant", text)))
    assert [row["label"] for row in found] == ["plain", "direct", "small"]
    assert [row["method"] for row in found[1:]] == ["direct", "F2"]


def test_variant_beside_forms_and_tune() -> None:
    found = rows(*shapes(CONV), "--forms", "c", "--tune", "winograd=2", "--variant", "other:winograd=0")
    assert [(row["label"], row["method"]) for row in found] == [("c", "F2"), ("other", "direct")]


@pytest.mark.parametrize(
    "shape, method",
    [
        ("conv1x1 16->24@9x7", "direct"),
        ("conv3x3/2 16->24@9x7", "direct"),
        ("conv3x3 up 32->16@12x12", "F2"),
        ("conv5x5 3->4@9x9", "direct"),
        ("linear 1x1x1", ""),
        ("attention 1x1 1x1", ""),
        ("map add 3x5", ""),
        ("map add-channel 3x5", ""),
        ("map silu 3x5", ""),
        ("map gelu_erf 3x5", ""),
        ("norm group silu 64x3", ""),
        ("gemm_f32_6x16_avx2", ""),
    ],
)
def test_shapes(shape: str, method: str) -> None:
    (row,) = rows(*shapes(shape))
    assert (row["shape"], row["method"]) == (shape, method)


def test_sets_and_filter() -> None:
    found = rows("--set", "sd15,attention", "--filter", "attention 256x256")
    assert [row["name"] for row in found] == ["attention 256x256 8x160"]
    found = rows("--set", "kernels", "--filter", "6x16_avx2", "--forms", "avx2")
    assert [row["name"] for row in found] == ["gemm_f32_6x16_avx2"]


@pytest.mark.parametrize("name", ["sd15", "sdxl", "flux", "vae", "attention", "kernels"])
def test_set_is_there(name: str) -> None:
    """With a filter that leaves none of its rows: a set that is not there is another sentence."""
    done = bench("--set", name, "--filter", "nothing")
    assert done.returncode == 2 and "no row's name holds it" in done.stderr


@pytest.mark.parametrize("form", ["table", "json", "csv", "md"])
def test_peak(form: str) -> None:
    done = bench("--peak", "--filter", "fma", "--format", form, seconds="0.03")
    assert done.returncode == 0, done.stderr
    levels = [level for level in LEVELS if level != "c"]
    for level in levels:
        assert f"probe_fma_f32_{level}" in done.stdout
    if form == "json":
        output = json.loads(done.stdout)
        for row in output["benchmarks"]:
            assert row["rate"] > 0 and row["iterations"] >= 3 and row["unit"] == "GFLOP/s"
            assert 0 <= row["spread"] <= 0.02 or row["iterations"] == 12
            assert row["bits"] == {"avx2": 256, "avx512": 512}[row["name"].rsplit("_", 1)[1]]
        assert output["context"]["rows"] == len(output["benchmarks"])


def test_peak_says_what_the_processor_lacks() -> None:
    """Each loop is either measured or named with what is missing."""
    done = bench("--peak", "--format", "json", seconds="0.001")
    assert done.returncode == 0, done.stderr
    measured = {row["name"]: row for row in json.loads(done.stdout)["benchmarks"]}
    probes = [kernel for kernel in native.kernels() if kernel.operation == "probe" and kernel.type]
    assert measured.keys() == {kernel.name for kernel in probes if not kernel.lacks()}
    for kernel in probes:
        if kernel.name in measured:
            assert measured[kernel.name]["unit"] == ("GOP/s" if kernel.type in ("s8", "u8s8") else "GFLOP/s")
        else:
            assert f"{kernel.name} is not measured: this processor lacks " in done.stderr


def test_more_threads_than_processors() -> None:
    done = bench(*shapes(LINEAR), "--threads", "99")
    count = len(os.sched_getaffinity(0))
    assert done.returncode == 0 and (
        f"sdgen-bench: 99 threads take turns on {count} processors, which makes all rates uncertain\n" in done.stderr
    )
    assert "take turns" not in bench(*shapes(LINEAR), "--threads", "1").stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_each_thread_is_kept_on_a_processor() -> None:
    command = [str(program()), *shapes(LINEAR), "--threads", "2", "--seconds", "30"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            deadline, allowed = time.monotonic() + TIMEOUT, list[set[int]]()
            while time.monotonic() < deadline and sorted(map(len, allowed)) != [1, 1]:
                time.sleep(0.01)
                threads = Path("/proc", str(running.pid), "task").iterdir()
                allowed = [os.sched_getaffinity(int(thread.name)) for thread in threads]
        finally:
            running.kill()
    assert len(set.union(*allowed)) == len(allowed) == 2


def test_help_tune_lists_every_tunable() -> None:
    done = bench("--help-tune")
    assert done.returncode == 0
    for name in (field[0] for field in native.Tuning._fields_):
        assert re.search(rf"^{name} ", done.stdout, re.MULTILINE)
    assert done.stdout.count("default:") == len(native.Tuning._fields_)


def test_help() -> None:
    done = bench("--help")
    assert done.returncode == 0
    for text in ("--set", "--shape", "--variant", "bench-upstream", "bench/compare.py", "within 2%"):
        assert text in done.stdout
    assert "%%" not in done.stdout and max(map(len, done.stdout.splitlines())) <= 132


@pytest.mark.parametrize("form", ["table", "json", "csv", "md"])
def test_wrong_result_voids_its_time(form: str) -> None:
    done = bench(*WRONG, *shapes(LINEAR), "--format", form)
    assert done.returncode == 1
    assert "the result is wrong" in done.stderr
    if form == "json":
        wrong, right = json.loads(done.stdout)["benchmarks"]
        assert wrong["error_occurred"] and wrong["error_message"] and wrong["error"] > 9e-7
        assert "real_time" not in wrong and "gflops" not in wrong and "error_occurred" not in right
    elif form == "csv":
        wrong, right = csv.DictReader(done.stdout.splitlines())
        assert (wrong["error_occurred"], right["error_occurred"]) == ("true", "false")
        assert not wrong["rate"] and not wrong["real_time"] and right["rate"]
    else:
        assert done.stdout.count("WRONG") == 1 and LINEAR in done.stdout


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--shape", "linear 0x320x320"), "from 1 to 1048576"),
        (("--shape", "linear 2000000x3x3"), "from 1 to 1048576"),
        (("--shape", "conv3x3 0->3@8x8"), "from 1 to 1048576"),
        (("--shape", "attention 1x1 0x4"), "from 1 to 1048576"),
        (("--shape", "map silu 0x4"), "from 1 to 1048576"),
        (("--shape", ""), "linear 4096x320x320"),
        (("--shape", "nonsense"), "linear 4096x320x320"),
        (("--shape", "linear 3x3"), "linear 4096x320x320"),
        (("--shape", "linear 3x3x3x3"), "linear 4096x320x320"),
        (("--shape", "linear -3x3x3"), "from 1 to 1048576"),
        (("--shape", "linear 99999999999999999999x1x1"), "linear 4096x320x320"),
        (("--shape", "conv3x1 3->3@4x4"), "linear 4096x320x320"),
        (("--shape", "conv2x2 3->3@4x4"), "odd"),
        (("--shape", "conv3x3 up 3->3@5x4"), "even"),
        (("--shape", "norm group silu 33x4"), "32 groups"),
        (("--shape", "linear 1000000x1000000x1000"), "memory"),
        (("--set", "sd16"), "sd15"),
        (("--set", "sd15,"), "sd15"),
        (
            ("--forms", "upstream", "--upstream", "/none"),
            "no program /none/bench-upstream; `make bench-upstream` builds it",
        ),
        (("--forms", "c,upstream-avx2", "--upstream", "/none"), "no program /none/bench-upstream-avx2"),
        (("--forms", "sse"), "assembly, avx2, avx512, c, upstream,"),
        (("--forms", "upstream-c"), "assembly, avx2, avx512, c, upstream,"),
        (("--forms", "avx2,avx2"), "already"),
        (("--variant", "kc=64"), "LABEL:NAME=VALUE"),
        (("--variant", ":kc=64"), "LABEL:NAME=VALUE"),
        (("--variant", "a b:kc=64"), "LABEL:NAME=VALUE"),
        (("--variant", "a:x=1"), "isa=avx2"),
        (("--variant", "a:isa=x"), "isa=avx2"),
        (("--variant", "a:kc=1"), "kc=64 to 512"),
        (("--variant", "a:kc=64,"), "missing"),
        (("--variant", "a:", "--variant", "a:kc=64"), "already"),
        (("--variant", "a:isa=avx2,tile=64"), "no tile of 64 columns"),
        (("--tune", "kc=1"), "kc=64 to 512"),
        (("--tune", "x=1"), "winograd=0"),
        (("--tune", "tile=64", "--forms", "avx2"), "no tile of 64 columns"),
        (("--threads", "0"), "from 1 to 1024"),
        (("--threads", "two"), "from 1 to 1024"),
        (("--repetitions", "0"), "from 1 to 1000"),
        (("--seconds", "0"), "above 0"),
        (("--seconds", "nan"), "above 0"),
        (("--seconds", ""), "above 0"),
        (("--format", "xml"), "table, json, csv and md"),
        (("--filter", "nothing"), "no row's name holds it"),
        (("--peak", "--filter", "nothing"), "no loop's name holds it"),
        (("left",), "--help"),
        (("--bogus",), "--help"),
        (("--shape",), "--help"),
        (("--peak=1",), "--help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_arguments(arguments: tuple[str, ...], said: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2 and not done.stdout
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("sdgen-bench: ") and said in sentence
