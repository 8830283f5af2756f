"""Predictions: what llvm-mca and OSACA are asked, and what is said where one of them or a model is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gen import predict, registry
from gen.__main__ import main

FAKE = """#!/bin/sh
case "$*" in
*--version*) echo "LLVM version 14.0.6" ;;
*znver*) cat >/dev/null; echo "'znver4' is not a recognized processor for this target (ignoring processor)" >&2 ;;
*-iterations=100) cat >/dev/null; echo "Total Cycles:      4810" ;;
*) cat >/dev/null; echo "Total Cycles:      14410" ;;
esac
"""


FAKE_OSACA = """#!/bin/sh
case "$*" in
*--version*) echo "osaca 0.0.1"; exit ;;
*ZEN4*) echo "KeyError: \"Port '135' not in port list.\"" >&2; exit 1 ;;
esac
while [ "$1" != --yaml-out ]; do shift; done
grep -q '^vfmadd231ps %zmm' "$3" && grep -q '^jne .Ltop' "$3" || exit 3
cat >"$2" <<'END'
Kernel:
- Flags: [FLAGS]
  Instruction: vfmadd231ps
  PortPressure: {'0': 0.5}
Summary:
  LCD: 0.0
  PortPressure: {'0': 48.0, 0DV: 0.0, '5':
      64.0}
END
"""


@pytest.fixture(autouse=True)
def no_osaca(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides OSACA, so that the environment does not decide."""
    monkeypatch.setattr(predict, "find_osaca", lambda: None)


def _fake_osaca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str = "") -> None:
    assert shutil.which("as") and shutil.which("objdump"), "binutils, which every compiler needs"
    program = tmp_path / "osaca"
    program.write_text(FAKE_OSACA.replace("FLAGS", flags))
    program.chmod(0o755)
    monkeypatch.setattr(predict, "find_osaca", lambda: [str(program)])


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an llvm-mca that always says the same, the only one of the PATH beside the shell's tools."""
    program = tmp_path / "llvm-mca-99"
    program.write_text(FAKE)
    program.chmod(0o755)
    (tmp_path / "llvm-mca-9").write_text("not a program")
    monkeypatch.setattr("os.get_exec_path", lambda: [str(tmp_path)])
    return program


def test_cycles_and_share(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "gemm_f32_6x64_avx512", "--json", "--processor", "skylake-x,zen4"]) == 0
    skylake, skylake_ports, zen, _ = json.loads(capsys.readouterr().out)
    assert (skylake["processor"], skylake["cycles"], skylake["share"]) == ("skylake-x", 48.0, 1.0)
    assert (zen["cycles"], zen["share"], zen["note"]) == (None, None, "LLVM 14 does not know znver4, LLVM 16 does")
    assert (skylake["tool"], skylake_ports["tool"], skylake_ports["cycles"]) == ("llvm-mca", "OSACA", None)
    assert skylake_ports["note"] == "OSACA is not installed"


def test_bound_of_ports(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _fake_osaca(tmp_path, monkeypatch)
    assert main(["predict", "gemm_f32_6x64_avx512", "--json", "--processor", "skylake-x,zen4,zen5"]) == 0
    skylake, zen4, zen5 = json.loads(capsys.readouterr().out)[1::2]
    assert (skylake["tool"], skylake["cycles"], skylake["share"]) == ("OSACA", 64.0, 0.75)
    assert zen4["note"] == "OSACA 0.0.1 fails: its data of broadcasts from memory is broken"
    assert zen5["note"] == "OSACA 0.0.1 does not model it"


def test_no_bound_without_data(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _fake_osaca(tmp_path, monkeypatch, flags="lt_unknown, tp_unknown")
    assert main(["predict", "gemm_f32_6x64_avx512", "--json", "--processor", "icelake"]) == 0
    _, icelake = json.loads(capsys.readouterr().out)
    assert (icelake["cycles"], icelake["note"]) == (None, "OSACA 0.0.1 lacks data of vfmadd231ps")


def test_table(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "gemm_f32_6x64_avx512"]) == 0
    title, _, heading, *lines, hint = capsys.readouterr().out.splitlines()
    assert str(fake) in title and title.endswith(" run the loop 'steps' of gemm_f32_6x64_avx512")
    assert heading.split() == ["processor", "tool", "cycles", "share", "note"]
    assert hint.endswith(" osaca, which is not installed: `make venv` sets up .venv with it")
    assert [line.split()[0] for line in lines] == [name for name in predict.MODELS for _ in range(2)]
    assert lines[0].split()[1:4] == ["llvm-mca", "48.0", "100.0%"]


def test_inner_loops_are_marked() -> None:
    product = registry.build(registry.find("gemm_f32_6x64_avx512"))
    assert [loop.role for loop in product.loops] == ["steps", "single_step"]
    steps = [instruction.text for instruction in product.loops[0].instructions]
    assert sum(text.startswith("vfmadd231ps") for text in steps) == 4 * 24
    assert steps[-1] == "jnz .Lsteps"
    # the loop over passes holds the others
    assert [loop.role for loop in registry.build(registry.find("pack_f32_64_avx512")).loops] == ["block", "part_block"]


def test_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.get_exec_path", lambda: [str(tmp_path)])
    assert main(["predict", "gemm_f32_6x64_avx512"]) == 2
    assert "llvm-mca is not installed: it comes with LLVM" in capsys.readouterr().err


def test_unknown_processor(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "gemm_f32_6x64_avx512", "--processor", "z80"]) == 2
    assert "unknown processor 'z80'; there are: skylake-x, icelake, zen4" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gemm_f32_6x64_avx512", "gemm_f32_8x48_avx512"])
def test_tiles_reach_the_peak_of_skylake_x(name: str) -> None:
    """At least 95% of two multiply-adds of 512 bits a cycle, by a model that charges loads too much."""
    try:
        mca = predict.find_mca()
    except predict.PredictionError as error:
        pytest.skip(str(error))
    (prediction,) = predict.predict(registry.build(registry.find(name)), ["skylake-x"], mca)
    assert prediction.share is not None
    assert prediction.share >= 0.95


def test_real_osaca(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two multiply-adds of 512 bits a cycle where Sapphire Rapids has them."""
    monkeypatch.undo()
    osaca = predict.find_osaca()
    assert osaca is not None, "requirements-dev.txt has it"
    kernel = registry.build(registry.find("gemm_f32_6x64_avx512"))
    (prediction,) = predict.predict_by_osaca(kernel, ["sapphirerapids"], osaca)
    assert (prediction.cycles, prediction.share) == (48.0, 1.0)
