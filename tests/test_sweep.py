"""Sweeps and their reports: which variants there are, what is written down, and what is left after a mishap."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console

from gen import isa, native, registry
from gen.__main__ import main
from gen.native import compiler
from gen.native.objects import _TABLE
from gen.sweep import cluster, commands, measure, report, run, workloads
from gen.sweep.measure import Built
from gen.sweep.records import FAILED, TIMED, WRONG, Log, Record, parse
from gen.sweep.variants import Variant, operations, variants, workload_of
from gen.sweep.worker import Measurer
from gen.sweep.workloads import Timed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
NATIVE = isa.native_levels() if Path("/proc/cpuinfo").exists() else ()
GEMM = "gemm_f32_6x16_avx2"
# A sweep of two variants.
TINY = ["sweep", GEMM, *("--set", "unroll=4,2"), *("--set", "align=32"), *("--set", "prefetch_a=0")]
TINY += [*("--set", "prefetch_b=0"), *("--seconds", "0.01"), *("--jobs", "1")]

runs_natively = pytest.mark.skipif("avx2" not in NATIVE, reason="this processor does not have level avx2")


def lines_of(path: Path) -> list[Record]:
    """The records of a file, all of whose lines are some."""
    text = path.read_text()
    assert text.endswith("\n")
    records = [parse(line) for line in text.splitlines()]
    assert all(records)
    return [record for record in records if record]


def record(**fields: object) -> Record:
    """A made-up record."""
    base = Record(
        version=1,
        key="k",
        status=TIMED,
        note="",
        kernel=GEMM,
        operation="gemm",
        types=["f32"],
        tile=[6, 16],
        level="avx2",
        options={"unroll": 4, "align": 32},
        parameters={"k": 320},
        default=True,
        processor="A <1>",
        error=1e-7,
        error_limit=1e-6,
        unit="GFLOP/s",
        rate=100.0,
        rate_median=99.0,
        peak=110.0,
        share_best=0.91,
        share_median=0.9,
        share_quiet=0.9,
        share_contended=None,
        samples=9,
        quiet_samples=9,
        seconds=1.0,
        time="2026-01-01T00:00:00+00:00",
    )
    return replace(base, **fields)  # type: ignore[arg-type]


# ---- variants ----


@pytest.mark.parametrize("level", ["avx2", "avx512"])
def test_a_sweep_of_gemm_is_large_and_takes_less_than_twenty_minutes(level: str) -> None:
    found = variants("gemm", (level,), {}, ())
    assert len(found) == len(set(found))
    assert sum(variant.spec.tile == found[0].spec.tile for variant in found) >= 100
    assert len(found) * (commands._SECONDS + 0.5) < 20 * 60
    assert found[0].is_default and found[0].options == {"unroll": 4, "align": 32, "prefetch_a": 0, "prefetch_b": 0}


def test_what_varies() -> None:
    settings = {"unroll": (2, 8), "k": (64, 320)}
    found = variants("gemm_f32", ("avx2",), settings, ((4, 24),))
    assert {variant.spec.tile for variant in found} == {(4, 24)}
    assert {variant.options["unroll"] for variant in found} == {2, 8}
    assert {variant.parameters for variant in found} == {(("k", 64),), (("k", 320),)}
    assert len(found) == 2 * 3 * 3 * 3 * 2
    (one,) = variants("unpack", ("avx2",), {"align": (32,)}, ())
    assert one.label == "unpack_f32_8_avx2 k=256"
    assert {variant.spec.types for variant in variants("dot", ("avx2",), {}, ())} == {("f32",), ("f16",), ("bf16",)}


def test_tiles_that_some_levels_have() -> None:
    found = variants("gemm", ("avx2", "avx512"), {}, ((4, 24), (2, 16)))
    assert {(one.spec.tile, one.spec.level) for one in found} == {
        *(((4, 24), "avx2"), ((2, 16), "avx2"), ((2, 16), "avx512")),
    }


def test_every_family_that_has_options_can_be_swept() -> None:
    with_options = {spec.operation for family in registry.FAMILIES for spec in family.kernels if family.options}
    assert set(operations()) == with_options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gem"], "unknown kernel or family 'gem'; with options to vary there are gemm[_f32], gemm16[_f32], "
         "dot[_f32|_f16|_bf16], pack["),
        (["pack_patches"], "pack_patches has no options to vary; with options to vary there are gemm[_f32], "),
        (["pack_patches_f32"], "pack_patches_f32 has no options to vary; with options"),
        (["gemm", "--isa", "avx3"], "unknown level 'avx3'; there are: levels avx2, avx512"),
        ([GEMM, "--isa", "avx512"], f"{GEMM} is of level avx2, but asked for is avx512"),
        (["gemm", "--isa", "avx2", "--set", "speed=9"], "gemm has no option 'speed'; there are, with their defaults: "),
        (["gemm", "--isa", "avx2", "--set", "align=48"], "--set align=48: the value has to be a power of two"),
        (["gemm", "--isa", "avx2", "--set", "k=0"], "--set k=0: the value has to be from 1 to 1048576"),
        (["gemm", "--isa", "avx2", "--tile", "6x17"], "--tile 6x17: gemm of avx2 has no such tile: it has ROWSx"),
        (["gemm", "--isa", "avx512", "--tile", "6x64,4x24"], "--tile 4x24: gemm of avx512 has no such tile: it has "
         "ROWSxCOLUMNS with columns a multiple of 16, like 6x32, 6x64, 8x48"),
        (["gemm", "--isa", "avx2", "--tile", "8x16"], "--tile 8x16: gemm of avx2 has no such tile, because "
         "gemm_f32_8x16_avx2: 18 vector registers asked for at once, 16 exist: it has ROWSxCOLUMNS"),
        (["gemm", "--isa", "avx2", "--tile", "six"], "--tile six: tiles are ROWSxCOLUMNS"),
        (["pack_f32", "--isa", "avx2", "--tile", "9"], "--tile 9: pack of avx2 has tiles 1, 2, 3, 4, 5, 6, 16"),
    ],
)  # fmt: skip
def test_arguments_that_make_no_sense(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"python -m gen: {message}") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gemm", "--seconds", "0"], "--seconds: '0' is no number of seconds above 0"),
        (["gemm", "--seconds", "nan"], "--seconds: 'nan' is no number of seconds above 0"),
        (["gemm", "--jobs", "0"], "--jobs: '0' is no number from 1 to 1024"),
        (["gemm", "--set", "unroll"], "--set: 'unroll' is not NAME=V1,V2,... with numbers V"),
    ],
)
def test_arguments_that_are_no_numbers(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sweep", *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


# ---- measuring ----


@runs_natively
@pytest.mark.parametrize("operation", operations())
def test_workloads(operation: str) -> None:
    """What is built as it should be is right, and is timed with what is as large as it says."""
    spec = next(spec for spec in registry.specs(("avx2",)) if spec.operation == operation)
    kernel, workload = native.build([spec])[spec.name], workload_of(spec)
    rng, parameters = np.random.default_rng(1), workload.parameters
    checks = list(workload.check(kernel, rng, parameters))
    assert len(checks) >= 2 and all(check.error <= check.limit for check in checks)
    timed = workload.time(kernel, rng, parameters)
    assert timed.amount > 100 and timed.call.seconds(2) > 0


def fake_library(path: Path, body: str) -> Path:
    """A library whose kernel is made up."""
    source = path.with_suffix(".c")
    text = _TABLE.format(prototypes=f"static void f(void) {{ {body} }}", rows=f'{{.name = "{GEMM}", .function = f}}')
    source.write_text(text)
    compiler.shared_library(path, [source])
    return path


@runs_natively
def test_kernels_that_are_wrong_or_crash(tmp_path: Path) -> None:
    """Neither is timed; what comes after is."""
    (variant,) = variants(GEMM, ("avx2",), {"unroll": (4,), "align": (32,), "prefetch_a": (0,), "prefetch_b": (0,)}, ())
    wrong = Built(variant, "wrong", fake_library(tmp_path / "wrong.so", ""), "")
    crash = Built(variant, "crash", fake_library(tmp_path / "crash.so", "__builtin_trap();"), "")
    right = measure.build_variant(variant, (), tmp_path)
    measurer = Measurer(tmp_path)
    try:
        records = [measurer.measure(built, 0.01) for built in (wrong, crash, right)]
    finally:
        measurer.close()
    assert [one.status for one in records] == [WRONG, FAILED, TIMED]
    assert all(one.rate is None and one.samples == 0 for one in records[:2])
    assert records[1].note == "ended the process by SIGILL"
    timed = records[2]
    assert timed.error is not None and timed.error_limit is not None and 0 < timed.error <= timed.error_limit
    assert timed.samples >= 1 and 0 <= timed.quiet_samples <= timed.samples
    assert timed.share_best and timed.share_median and timed.share_median > 0.1 and timed.share_best < 1.2
    assert timed.rate and timed.rate_median and timed.peak and timed.rate_median <= timed.rate < 1.2 * timed.peak
    assert parse(timed.line()) == timed


def test_the_key_is_that_of_the_code() -> None:
    """Not of names: alignment by 32 bytes is the default's, and its text the same."""
    spec = registry.find(GEMM)
    plain, named = spec, replace(spec, options=(("align", 32),))
    other = spec.with_options(align=64)
    keys = [
        measure.key_of(registry.family_of(spec).build(one), Variant(one, (("k", k),)))
        for one, k in ((plain, 320), (named, 320), (other, 320), (plain, 64))
    ]
    assert keys[0] == keys[1] and len(set(keys)) == 3


# ---- whole sweeps ----


@runs_natively
def test_sweep_and_resumption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second sweep measures what the first did not; a line that was broken off stays what it is."""
    out = tmp_path / "folder" / "out.jsonl"
    assert main([*TINY, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert f"2 variants timed: {out}\n" in printed
    assert "gemm_f32 k=320 on " in printed and "the best of 2 is gemm_f32_6x16_avx2" in printed
    assert "default" in printed
    first = lines_of(out)
    assert [one.options["unroll"] for one in first] == [4, 2] and first[0].default and not first[1].default
    assert all(one.status == TIMED and one.parameters == {"k": 320} for one in first)

    cut = json.dumps({"version": 1})[:-3]
    out.write_text(first[0].line() + cut)
    assert main([*TINY, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "1 line is no result of a sweep of this version, and skipped" in printed
    assert "1 variants timed, 1 like ones recorded before: " in printed
    lines = out.read_text().splitlines()
    assert lines[:2] == [first[0].line().rstrip(), cut]
    again = parse(lines[2])
    assert again and again.kernel == first[1].kernel and again.key == first[1].key


@runs_natively
def test_progress_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "_EVERY", 0)
    assert main([*TINY, "--out", str(tmp_path / "out.jsonl")]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("1 of 2 variants") and second.startswith("2 of 2 variants")


@runs_natively
def test_variants_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    assert main([*TINY, "--set", "unroll=3,5", "--out", str(out)]) == 2
    assert "none of the variants can be made: gemm_f32_6x16_avx2_unroll3: unroll is 3, but" in capsys.readouterr().err
    assert not out.exists()


@runs_natively
def test_variants_that_cannot_be_compiled(tmp_path: Path) -> None:
    """The first cannot; it is recorded as that, and the second is timed, and the first tried again another time."""
    marker, compiler, out = tmp_path / "marker", tmp_path / "cc", tmp_path / "out.jsonl"
    compiler.write_text(f'#!/bin/sh\nmkdir {marker} 2>/dev/null && exit 1\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    command = [sys.executable, "-m", "gen", *TINY, "--jobs", "1", "--out", str(out)]
    # A process of its own: those that build have the environment of the first one that started any.
    for expected in ([FAILED, TIMED], [FAILED, TIMED, TIMED]):
        subprocess.run(command, cwd=ROOT, env={**os.environ, "CC": str(compiler)}, check=True, capture_output=True)
        assert [one.status for one in lines_of(out)] == expected


@runs_natively
def test_interrupt(tmp_path: Path) -> None:
    """Leaves whole lines, no process and nothing in the folder for temporary files."""
    out, scratch = tmp_path / "out.jsonl", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "gen", "sweep", GEMM, "--seconds", "0.05", "--jobs", "1", "--out", str(out)]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, process_group=0)
    deadline = time.monotonic() + 120
    while not (out.exists() and out.stat().st_size) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    kept = len(lines_of(out))
    said = f"python -m gen: interrupted; {kept} results are in {out}, and the same command goes on\n"
    assert error.endswith(said)  # behind lines of progress, where it is slow
    assert 0 < kept < 108
    assert [path.suffix for path in scratch.iterdir()] == [".lock"]
    while time.monotonic() < deadline:  # those of Python's own notice a little later that it is gone
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("processes are left")


def test_files_that_are_none_of_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("notes\n")
    for arguments, message in (
        ([*TINY, "--out", str(other)], "holds no results of a sweep and is left as it is; name another file by --out"),
        ([*TINY, "--out", str(tmp_path)], "cannot be read: Is a directory"),
        ([*TINY, "--out", str(other / "out")], "cannot be written: "),
        (["report", str(other)], "holds no results of a sweep: 1 line is none"),
        (["report", str(tmp_path / "absent")], "cannot be read: No such file or directory"),
        (["report", os.devnull], "holds no results of a sweep, it is empty"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert other.read_text() == "notes\n"


@runs_natively
def test_compiler_and_levels_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out.jsonl")]
    monkeypatch.setenv("CC", "no-such-compiler")
    assert main([*TINY, *out]) == 2
    assert capsys.readouterr().err == "python -m gen: CC=no-such-compiler: there is no such C compiler\n"
    monkeypatch.delenv("CC")
    monkeypatch.setattr("gen.isa.native_levels", lambda: ("avx2",))
    assert main(["sweep", "gemm", "--isa", "avx512", *out]) == 2
    assert capsys.readouterr().err == "python -m gen: this processor does not have level avx512, only avx2\n"
    assert not list(tmp_path.iterdir())


def test_only_what_a_command_needs_is_imported() -> None:
    """The generator does without numpy and the like, and sweeps say what they lack."""
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('numpy', 'matplotlib', 'distributed')))\n"
        "from gen.__main__ import main\n"
        "assert main(['show', 'moments_f32_avx2']) == 0\n"
        "sys.exit(main(['sweep', 'gemm', '--isa', 'avx2']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True)
    message = "python -m gen: sweep needs numpy, which is not installed: `make venv` sets up .venv with it\n"
    assert (done.returncode, done.stderr) == (2, message)


# ---- a cluster ----


def local_cluster(**options: Any) -> Any:
    """A cluster of this process; the library has no types."""
    return importlib.import_module("distributed").LocalCluster(**options)


@runs_natively
def test_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with local_cluster(**options) as local:
        for sentence in ("2 variants timed: ", "0 variants timed, 2 like ones recorded before: "):
            assert main([*TINY, "--out", str(out), "--scheduler", local.scheduler_address]) == 0
            assert sentence in capsys.readouterr().out
    assert [one.status for one in lines_of(out)] == [TIMED, TIMED]


@runs_natively
def test_schedulers_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "_TIMEOUT", 0.3)
    arguments = [*TINY, "--out", str(tmp_path / "out.jsonl"), "--scheduler"]
    for address in ("tcp://127.0.0.1:1", "nonsense"):
        assert main([*arguments, address]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"python -m gen: no scheduler can be reached at {address}: ") and error.count("\n") == 1
    with local_cluster(n_workers=0, processes=False, dashboard_address=None) as local:
        assert main([*arguments, local.scheduler_address]) == 2
        assert "has no workers\n" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main([*arguments, "nonsense"]) == 2
    assert "--scheduler needs distributed, which is not installed: `make venv`" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# ---- records and reports ----


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"status": "done"},
        {"rate": None},
        {"share_best": float("nan")},
        {"tile": ["6"]},
        {"options": {"unroll": "4"}},
        {"kernel": 6},
        {"more": 1},
    ],
    ids=str,
)
def test_lines_that_are_no_records(change: dict[str, object]) -> None:
    values = json.loads(record().line())
    assert parse(json.dumps(values)) == record()
    assert parse(json.dumps({**values, **change})) is None
    assert parse(record().line()[:-9]) is None and parse("7") is None


def test_log_appends_and_leaves_nothing_where_there_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Log(path):
        assert path.exists()
    assert not path.exists()
    with Log(path) as log:
        log.append(record())
        log.append(record(key="failed", status=FAILED))
        log.append(record(key="other", processor="B"))
    with Log(path) as log:
        assert log.done("A <1>") == {"k"} and log.done("B") == {"other"}
        assert len(log.records) == 3


MADE_UP = (
    record(),
    record(key="b", kernel=f"{GEMM}_unroll8", options={"unroll": 8, "align": 32}, default=False, share_quiet=0.95),
    record(key="c", kernel=f"{GEMM}_align64", options={"unroll": 4, "align": 64}, default=False, share_quiet=0.85),
    record(key="d", kernel=f"{GEMM}_align64_unroll8", options={"unroll": 8, "align": 64}, default=False, status=WRONG,
           note="differs from the result in double precision"),
    record(key="e", kernel="gemm_f32_6x64_avx512", tile=[6, 64], level="avx512", rate_median=198.0),
    record(key="f", processor="B"),
)  # fmt: skip


def made_up_file(tmp_path: Path) -> Path:
    path = tmp_path / "made-up.jsonl"
    path.write_text("".join(one.line() for one in (record(share_quiet=0.1), *MADE_UP)) + "not a record\n")
    return path


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The later of two records of a variant counts."""
    assert main(["report", str(made_up_file(tmp_path)), "--top", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("1 line is no result of a sweep of this version, and skipped\n")
    rows = [line.split() for line in printed.splitlines()]
    bars = ["███████████████▏", "██████████████▍"]  # of 16 characters
    numbers = ["9/9", "1.0e-07"]
    best = ["1", "6x16", "unroll", "8,", "align", "32", bars[0], "99.0", "91.0%", "95.0%", "-", *numbers]
    default = [
        "2",
        "6x16",
        "unroll",
        "4,",
        "align",
        "32",
        "*",
        bars[1],
        "99.0",
        "91.0%",
        "90.0%",
        "-",
        *numbers,
    ]
    assert best in rows and default in rows
    assert "align 64" not in printed
    assert ["1", "6x64", "*", bars[1], "198.0", "91.0%", "90.0%", "-", *numbers] in rows  # nothing differs
    levels = [row for row in rows if row[:2] == ["gemm_f32", "k=320"]]
    assert [row[2:4] + row[-1:] for row in levels] == [["avx2", "3", "-"], ["avx512", "1", "2.00"], ["avx2", "1", "-"]]
    assert f"{GEMM}_align64_unroll8 is wrong: differs from the result" in printed


def test_conclusion() -> None:
    first = report.groups(MADE_UP)[0]
    assert report.conclusion(first) == [
        f"gemm_f32 k=320 on A <1>: the best of 3 is {GEMM}_unroll8, 95.0% of the peak, 99.0 GFLOP/s",
        f"  {GEMM}, a default, has 90.0%: 5.3% behind the best",
    ]


def test_what_is_within_the_noise_is_as_good() -> None:
    unrolled = record(key="b", kernel=f"{GEMM}_unroll8", default=False, share_quiet=0.904)
    (group,) = report.groups([record(), unrolled])
    assert group.best is unrolled
    line = f"  no variant is better than the default {GEMM} by more than the noise, 0.5%"
    assert report.conclusion(group)[1:] == [line]
    (group,) = report.groups([record(), replace(unrolled, share_quiet=0.8)])
    assert report.conclusion(group)[1:] == ["  that is a default"]
    (group,) = report.groups([replace(one, operation="map_silu") for one in (record(), unrolled)])
    assert report.conclusion(group)[1:] == [line.replace("variant", "variant of its tile")]


def test_few_samples_have_no_median(capsys: pytest.CaptureFixture[str]) -> None:
    few = record(share_contended=7.63, samples=13, share_quiet=0.5)
    assert few.contended is None and few.quiet == 0.5
    half = record(share_contended=0.6, samples=9, quiet_samples=4, share_quiet=0.1)
    assert half.contended == 0.6 and half.quiet is None and half.share == 0.9
    report.show([few], 1, Console(width=120))
    assert "763" not in capsys.readouterr().out


def test_the_best_rate_of_a_level_is_none_below_the_median(capsys: pytest.CaptureFixture[str]) -> None:
    other = record(key="b", default=False, share_quiet=0.95, rate_median=80.0)
    report.show([record(), other], 1, Console(width=120))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gemm_f32", "k=320", "avx2", "2", "89.5", "99.0", "GFLOP/s", "95.0%", "-"] in rows


def test_a_disturbed_peak_makes_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five samples one whose peak ran at an eighth of its rate."""
    rates = {"kernel": iter([9.0] * 5), "peak": iter([10.0, 10.0, 1.25, 10.0, 10.0])}

    class Steady:
        def __init__(self, name: str) -> None:
            self.name = name

        def rate(self) -> float:
            return next(rates[self.name])

    class Probes:
        best_nops = 1.0

        def repeated(self, *_: object) -> Steady:
            return Steady("peak")

        def nop_rate(self) -> float:
            return 0.5  # contended

    monkeypatch.setattr(measure, "_probes", Probes)
    monkeypatch.setattr(measure, "_repeated", lambda _: Steady("kernel"))
    timed = measure._time(cast(Timed, None), "FLOP", "avx2", 0)
    assert (timed["samples"], timed["quiet_samples"], timed["share_contended"]) == (4, 0, 0.9)
    assert timed["share_median"] == timed["share_best"] == 0.9


def test_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    png, page = tmp_path / "plots" / "a.png", tmp_path / "a.html"
    file = str(made_up_file(tmp_path))
    assert main(["report", file, "--png", str(png), "--html", str(page)]) == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert "data:image/png;base64," in text and "A &lt;1&gt;" in text and "A <1>" not in text
    assert main(["report", file, "--png", str(png), "--axes", "unroll,align"]) == 0
    capsys.readouterr()
    assert main(["report", file, "--png", str(png), "--axes", "unroll,speed"]) == 2
    assert "--axes: gemm_f32 has no option 'speed'; there are: tile, unroll, align" in capsys.readouterr().err
    assert main(["report", file, "--html", str(png / "a")]) == 2
    assert "cannot be written: " in capsys.readouterr().err


def test_alignment_of_what_is_timed() -> None:
    array = workloads.aligned(np.arange(100, dtype=np.float32), 2048)
    assert array.ctypes.data % 4096 == 2048 and np.array_equal(array, np.arange(100))
