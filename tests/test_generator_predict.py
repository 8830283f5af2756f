"""Predictions: what llvm-mca is asked, and what is said where it or a model is missing."""

from __future__ import annotations

import json
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
    skylake, zen = json.loads(capsys.readouterr().out)
    assert (skylake["processor"], skylake["cycles"], skylake["share"]) == ("skylake-x", 48.0, 1.0)
    assert (zen["cycles"], zen["share"], zen["note"]) == (None, None, "LLVM 14 does not know znver4")


def test_table(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "gemm_f32_6x64_avx512"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.startswith(f"gemm_f32_6x64_avx512, a pass of the loop steps by {fake}")
    assert [line.split()[0] for line in lines] == list(predict.MODELS)
    assert lines[0].split()[1:3] == ["48.0", "100.0%"]


def test_inner_loops_are_marked() -> None:
    product = registry.build(registry.find("gemm_f32_6x64_avx512"))
    assert [loop.role for loop in product.loops] == ["steps", "single_step"]
    steps = [instruction.text for instruction in product.loops[0].instructions]
    assert sum(text.startswith("vfmadd231ps") for text in steps) == 4 * 24
    assert steps[-1] == "jnz .Lsteps"
    # the loop over passes holds the others
    assert [loop.role for loop in registry.build(registry.find("pack_f32_64_avx512")).loops] == ["block", "place"]


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
