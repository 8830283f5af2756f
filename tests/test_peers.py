"""bench/peers.py without the peers: its options, what it measures, and what becomes of peers that fail."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.sdgen_native import REPOSITORY

pytestmark = pytest.mark.slow

BENCH = REPOSITORY / "bench"
# In a worker's place: takes one second more each time, and where it plays OpenVINO ends at the third.
WORKER = """\
import json, sys
print(json.dumps({"progress": "making the models"}), flush=True)
print(json.dumps({"ready": {"notes": [sys.argv[1]]}}), flush=True)
for i, _ in enumerate(sys.stdin):
    if sys.argv[1] == "openvino" and i == 2:
        sys.exit(3)
    print(json.dumps({"step_seconds": i + 1.0, "decode_seconds": i + 2.0}), flush=True)
"""


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module, with workers that only say that they compute."""
    monkeypatch.syspath_prepend(str(BENCH))
    module = importlib.import_module("peers")
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    for name, value in (("PYTHON", Path(sys.executable)), ("WORKER", worker), ("FOLDER", tmp_path / "peers")):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(importlib.import_module("checkpoint"), "sd15", lambda: tmp_path / "none.safetensors")
    return module


def call(peers: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["peers.py", *arguments])
    peers.main()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "100"], "100 is not a multiple of 64"),
        (["--repeat", "0"], "0 is not a number above 0"),
        (["--level", "avx2", "--only", "baseline"], "baseline cannot be run at the level avx2"),
        (["--level", "sse"], "invalid choice"),
    ],
)
def test_options_are_checked(arguments: list[str], message: str) -> None:
    done = subprocess.run([sys.executable, BENCH / "peers.py", *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr


def test_models_have_the_weights_of_stable_diffusion(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the worker compares its models with.
    monkeypatch.syspath_prepend(str(BENCH))
    checkpoint = importlib.import_module("checkpoint")
    assert sum(tensor.size for tensor in checkpoint.unet(tiny=False)) == 859_520_964
    assert sum(tensor.size for tensor in checkpoint.vae_decoder()) == 49_490_199


def test_medians_and_a_peer_that_ends(
    peers: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(peers, monkeypatch, "--only", "pytorch", "openvino", "--repeat", "3", "--format", "json")
    said = capsys.readouterr()
    result = json.loads(said.out)
    (pytorch,) = result["benchmarks"]
    assert pytorch["name"] == "pytorch"
    assert (pytorch["step_seconds"], pytorch["decode_seconds"]) == (2, 3)
    assert pytorch["step_samples"] == [1, 2, 3]
    assert pytorch["notes"] == ["pytorch"]
    assert result["left_out"].keys() == {"openvino"}
    assert "OpenVINO is left out: its process ended (exit status 3)" in said.err
    assert "pytorch: making the models" in said.err


def test_table(peers: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    call(peers, monkeypatch, "--only", "pytorch", "--repeat", "1", "--threads", "1")
    out = capsys.readouterr().out
    assert "1 threads, 512x512, medians of 1" in out
    assert "PyTorch: pytorch" in out


def test_without_their_environment(
    peers: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "PYTHON", tmp_path / "none")
    with pytest.raises(SystemExit, match="nothing could be measured"):
        call(peers, monkeypatch, "--only", "pytorch", "openvino")
    said = capsys.readouterr().err
    for name in ("PyTorch", "OpenVINO"):
        assert f"{name} is left out: build/peers-venv is missing, which 'make peers' sets up" in said


@pytest.mark.parametrize(("peer", "module"), [("pytorch", "torch"), ("openvino", "openvino")])
def test_worker_says_what_cannot_be_imported(peer: str, module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("raise ImportError('it is broken')\n")
    command = [
        sys.executable,
        str(BENCH / "peers_worker.py"),
        peer,
        "--size",
        "64",
        "--threads",
        "1",
        "--level",
        "best",
    ]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert json.loads(done.stdout) == {"failed": f"{module} cannot be imported (it is broken)"}
