"""`python -m gen tune` with a program in the bench's place, and what the runtime makes of its files."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gen import tune
from gen.__main__ import main
from tests import sdgen_native as native
from tests.sdgen_native import REPOSITORY, Level

pytestmark = pytest.mark.slow

PROCESSOR = native.sdgen_processor().contents.name.decode()
SHAPES = ("linear 8x8x8", "linear 64x64x64", "conv3x3 4->4@4x4", "map silu 4x4")
TUNABLES = [field[0] for field in native.Tuning._fields_]
TIMEOUT = 60

# Prints what the bench would, with the ratios of a table: by values, and by shape or "" for all others. Each call is
# noted in a file, and one whose number the table names waits.
PROGRAM = """\
    #!{python} -IS
    import json, os, sys, time
    from pathlib import Path

    script = json.loads(Path({script!r}).read_text())
    arguments = sys.argv[1:]
    of = lambda name: [b for a, b in zip(arguments, arguments[1:]) if a == name]
    notes = Path({notes!r})
    calls = notes.read_text().splitlines() if notes.exists() else []
    notes.write_text("\\n".join([*calls, json.dumps(arguments)]) + "\\n")
    if len(calls) == script["fails_at"]:
        print("sdgen-bench: --variant default:isa=x: this processor does not have it", file=sys.stderr)
        sys.exit(2)
    if len(calls) == script["waits_at"]:
        print("waiting", flush=True)
        time.sleep(60)
    shapes = of("--shape") or [s for s in script["shapes"] if (of("--filter") or [""])[0] in s]
    rows = []
    for shape in shapes:
        for variant in of("--variant"):
            label, values = variant.split(":")
            values = ",".join(value for value in values.split(",") if not value.startswith("isa="))
            ratios = script["ratios"].get(values, {{}})
            ratio = ratios.get(shape, ratios.get("", 1.0))
            if isinstance(ratio, list):  # the first time, and later on
                ratio = ratio["--set" not in arguments]
            row = {{"name": shape + "/" + label, "shape": shape, "label": label}}
            row |= {{"error_occurred": True}} if ratio is None else {{"ratio": ratio, "ratio_noise": script["noise"]}}
            rows.append(row)
    context = {{"cpu": script["cpu"], "rows": len(rows), "defaults": {{"kc": 256, "packed_mb": 16}}}}
    print('{{\\n  "context": ' + json.dumps(context) + ',\\n  "benchmarks": [')
    print(",\\n".join("    " + json.dumps(row) for row in rows))
    print("  ]\\n}}" + script["behind"])
    sys.exit(any("error_occurred" in row for row in rows))
"""


@dataclass
class FakeBench:
    """The program, and a folder for the file that is written."""

    folder: Path
    capture: pytest.CaptureFixture[str]
    ratios: dict[str, Any] = field(default_factory=dict)
    noise: float = 0.001
    cpu: str = PROCESSOR
    waits_at: int = -1
    fails_at: int = -1
    behind: str = ""

    @property
    def file(self) -> Path:
        return self.folder / "config" / "tuning"

    @property
    def calls(self) -> list[list[str]]:
        notes = self.folder / "notes"
        return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []

    def command(self, *arguments: str) -> list[str]:
        program, script = self.folder / "bench", self.folder / "script.json"
        script.write_text(json.dumps({**vars(self), "folder": "", "capture": "", "shapes": SHAPES}))
        text = PROGRAM.format(python=sys.executable, script=str(script), notes=str(self.folder / "notes"))
        program.write_text(textwrap.dedent(text))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return ["tune", "--bench", str(program), "--out", str(self.file), "--levels", "avx2", *arguments]

    def tune(self, *arguments: str) -> tuple[int | str | None, str, str]:
        """The exit status, and what is printed to stdout and stderr."""
        try:
            status: int | str | None = main(self.command(*arguments))
        except SystemExit as left:  # argparse's
            status = left.code
        return (status, *self.capture.readouterr())

    def tuned(self, *arguments: str) -> str:
        status, printed, said = self.tune(*arguments)
        assert status == 0, said
        assert str(self.file) in printed
        return self.file.read_text()


@pytest.fixture
def fake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> FakeBench:
    return FakeBench(tmp_path, capsys)


TITLE = f"sdgen tuning of {PROCESSOR}\n"


def test_what_gains_is_written(fake: FakeBench) -> None:
    fake.ratios = {"kc=128": {"": 1.02}, "kc=192": {"": 1.05}, "nc=128": {"": 1.001}, "kc=192,packed_mb=8": {"": 1.06}}
    fake.ratios["packed_mb=8"] = {"": 1.03}
    assert fake.tuned() == TITLE + "avx2 kc=192,packed_mb=8\n"
    # Each value beside the defaults in one run, and what is best together once more on the whole set.
    for call in fake.calls:
        assert call[call.index("--variant") + 1] == "default:isa=avx2"
    assert fake.calls[-1][-1] == "tuned:isa=avx2,kc=192,packed_mb=8" and "--filter" not in fake.calls[-1]
    assert len(fake.calls) == len(tune.KINDS) * len(tune.VALUES) + 1


def test_nothing_gains(fake: FakeBench) -> None:
    fake.ratios = {"kc=128": {"": 0.97}, "mc=96": {"": 1.004}}
    assert fake.tuned() == TITLE


def test_noise_is_no_gain(fake: FakeBench) -> None:
    fake.ratios, fake.noise = {"kc=128": {"": 1.02}}, 0.03
    assert fake.tuned() == TITLE


def test_value_that_slows_a_shape_is_not_tried_further(fake: FakeBench) -> None:
    fake.ratios = {"kc=128": {"": 1.1, SHAPES[1]: 0.95}, "kc=192": {"": 1.02}}
    assert fake.tuned() == TITLE + "avx2 kc=192\n"


def test_wrong_results_are_not_chosen(fake: FakeBench) -> None:
    fake.ratios = {"kc=128": {"": 1.5, SHAPES[0]: None}, "kc=192": {"": 1.02}}
    assert fake.tuned() == TITLE + "avx2 kc=192\n"


def test_what_fails_the_check_is_dropped(fake: FakeBench) -> None:
    """Of two, the one that did less for the shape that is slower together."""
    fake.ratios = {
        "kc=128": {"": 1.04, SHAPES[1]: 1.0},
        "nc=1024": {"": 1.03},
        "kc=128,nc=1024": {"": 1.05, SHAPES[1]: 0.98},
    }
    assert fake.tuned() == TITLE + "avx2 nc=1024\n"
    again = [call for call in fake.calls if "--shape" in call]
    assert len(again) == 1 and again[0][again[0].index("--shape") + 1] == SHAPES[1]


def test_a_shape_that_was_slower_by_chance_is_looked_at_again(fake: FakeBench) -> None:
    fake.ratios = {"kc=128": {"": 1.04, SHAPES[3]: [0.98, 1.01]}}
    assert fake.tuned() == TITLE + "avx2 kc=128\n"


def test_everything_fails_the_check(fake: FakeBench) -> None:
    fake.ratios = {"kc=128": {"": 1.04, SHAPES[3]: 0.98}}  # which is of the check only
    assert fake.tuned() == TITLE


@pytest.mark.parametrize(
    "before, kept",
    [
        (TITLE + "avx2 kc=64\navx512 nc=128,mc=96\n", "avx512 nc=128,mc=96\n"),
        ("sdgen tuning of another\navx512 nc=128\n", ""),
        (TITLE + "avx512 is broken\n\x00\n", ""),
        ("", ""),
    ],
)
def test_other_levels_of_an_earlier_file_are_kept(fake: FakeBench, before: str, kept: str) -> None:
    fake.file.parent.mkdir()
    fake.file.write_text(before)
    fake.ratios = {"kc=128": {"": 1.04}}
    assert fake.tuned() == TITLE + kept + "avx2 kc=128\n"
    assert [path.name for path in fake.file.parent.iterdir()] == ["tuning"]


def test_interrupt_leaves_the_old_file(fake: FakeBench) -> None:
    fake.waits_at = 3
    fake.file.parent.mkdir()
    fake.file.write_text("old")
    process = subprocess.Popen(
        [sys.executable, "-m", "gen", *fake.command()],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + TIMEOUT
    while len(fake.calls) <= fake.waits_at and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert said.splitlines()[-1] == f"python -m gen: interrupted; {fake.file} is as it was"
    assert "Traceback" not in said
    assert fake.file.read_text() == "old"
    assert [path.name for path in fake.file.parent.iterdir()] == ["tuning"]


def refused(done: tuple[int | str | None, str, str]) -> str:
    """The sentence that says why."""
    status, printed, said = done
    assert status == 2 and not printed
    return said.splitlines()[-1]


def test_absent_bench(fake: FakeBench) -> None:
    done = fake.tune("--bench", str(fake.folder / "absent"))
    assert "absent is absent: `make sdgen-bench` builds it" in refused(done)
    assert done[2].count("\n") == 1 and not fake.file.parent.exists()


def test_bench_that_is_no_program(fake: FakeBench) -> None:
    (fake.folder / "text").write_text("text")
    done = fake.tune("--bench", str(fake.folder / "text"))
    assert "text cannot be run" in refused(done)


def test_bench_that_fails(fake: FakeBench) -> None:
    fake.fails_at = 2
    sentence = refused(fake.tune())
    assert "exit status 2" in sentence and "this processor does not have it" in sentence
    assert not fake.file.exists()


def test_bench_that_prints_nonsense(fake: FakeBench) -> None:
    fake.behind = "}"
    assert "failed" in refused(fake.tune())


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--levels", "avx1024"), "avx512"),
        (("--seconds", "0"), "above 0"),
        (("--seconds", "x"), "above 0"),
        (("--out", "/"), "folder"),
        (("--out", "/dev/null/tuning"), "/dev/null"),
        (("--out", "/proc/tuning"), "/proc cannot be written to: No such file or directory"),
        (("--out", "/proc/absent/tuning"), "/proc/absent cannot be written to: No such file or directory"),
    ],
)
def test_wrong_arguments(fake: FakeBench, arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(fake.tune(*arguments))
    assert not fake.calls


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SDGEN_TUNE_FILE", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(tune.TuneError, match="--out"):
        tune.default_path()
    monkeypatch.setenv("HOME", "/home")
    assert tune.default_path() == Path("/home/.config/sdgen/tuning")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")
    assert tune.default_path() == Path("/config/sdgen/tuning")
    monkeypatch.setenv("SDGEN_TUNE_FILE", "/file")
    assert tune.default_path() == Path("/file")


# ---- the runtime ----


def configured(monkeypatch: pytest.MonkeyPatch, **variables: str) -> tuple[dict[str, int], str]:
    """What the runtime takes, without what stays as it is by default; and what it says."""
    for name in [name for name in os.environ if name.startswith("SDGEN_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config, message = native.Config(), ctypes.create_string_buffer(600)
    assert native.sdgen_config_from_environment(ctypes.byref(config), message, len(message))
    values = {name: getattr(config.tuning, name) for name in TUNABLES}
    return {name: value for name, value in values.items() if value != -1}, message.value.decode()


needs_avx2 = pytest.mark.skipif(Level.AVX2 not in native.native_levels(), reason="the level is not chosen here")


@needs_avx2
def test_runtime_reads_what_is_written(fake: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.ratios = {"kc=128": {"": 1.04}, "packed_mb=64": {"": 1.04}, "kc=128,packed_mb=64": {"": 1.05}}
    fake.tuned()
    chosen = configured(monkeypatch, SDGEN_TUNE_FILE=str(fake.file), SDGEN_ISA="avx2")
    assert chosen == ({"kc": 128, "packed_mb": 64}, "")
    # What SDGEN_TUNE says is said last.
    chosen = configured(monkeypatch, SDGEN_TUNE_FILE=str(fake.file), SDGEN_ISA="avx2", SDGEN_TUNE="kc=96")
    assert chosen == ({"kc": 96, "packed_mb": 64}, "")
    # Another level has no line.
    chosen = configured(monkeypatch, SDGEN_TUNE_FILE=str(fake.file), SDGEN_KERNELS="c")
    assert chosen == ({}, "")


@needs_avx2
@pytest.mark.parametrize("variable, place", [("XDG_CONFIG_HOME", "sdgen"), ("HOME", ".config/sdgen")])
def test_runtime_finds_it_in_the_users_folder(
    variable: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / place).mkdir(parents=True)
    tune.write(tmp_path / place / "tuning", PROCESSOR, [tune.Tuned("avx2", {"kc": 128}, {}, [])])
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert configured(monkeypatch, SDGEN_ISA="avx2", **{variable: str(tmp_path)}) == ({"kc": 128}, "")


@needs_avx2
def test_runtime_takes_no_file_of_another_processor(fake: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.ratios, fake.cpu = {"kc=128": {"": 1.04}}, "Another 3000"
    fake.tuned()
    values, said = configured(monkeypatch, SDGEN_TUNE_FILE=str(fake.file), SDGEN_ISA="avx2")
    assert not values
    assert said == f"{fake.file} is of another processor, Another 3000; it is not used"


@needs_avx2
@pytest.mark.parametrize(
    "content",
    [
        "",
        "\x00\x01\x02",
        "something else\navx2 kc=128\n",
        TITLE + "avx2\n",
        TITLE + "avx2 kc=1\n",
        TITLE + "avx2 kc=128,x=1\n",
        TITLE + "avx2 kc=128\navx2 tile=64\n",
        TITLE + "avx2 kc=128\n\n",
        TITLE + "avx2 kc=128\navx3 kc=128\n",
        TITLE + "avx512 kc=9999\navx2 kc=128\n",
    ],
)
def test_runtime_takes_nothing_of_a_corrupt_file(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tuning"
    file.write_text(content)
    values, said = configured(monkeypatch, SDGEN_TUNE_FILE=str(file), SDGEN_ISA="avx2")
    assert not values
    assert str(file) in said and said.endswith("; it is not used") and "\n" not in said


def test_runtime_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, said = configured(monkeypatch, SDGEN_TUNE_FILE=str(tmp_path / "absent"))
    assert values == {} and "absent cannot be read; it is not used" in said
    assert configured(monkeypatch, XDG_CONFIG_HOME=str(tmp_path)) == ({}, "")
    assert configured(monkeypatch, SDGEN_TUNE_FILE="") == ({}, "")
