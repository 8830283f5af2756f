"""sd-cli makes pictures with a tiny model: the forms against each other, threads, sizes, wrong settings."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.built import require_sd_cli
from tests.profiles import all_rows, read_trace
from tests.sdgen_native import REPOSITORY

SD_CLI = REPOSITORY / "build" / "bin" / "sd-cli"
TIMEOUT = 300


@dataclass(frozen=True)
class Models:
    """The tiny model of bench/checkpoint.py and a folder for pictures."""

    model: Path
    taesd: Path
    pictures: Path

    def run(self, picture: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """sd-cli with few steps, small, unless the arguments say otherwise."""
        command = [
            *(str(SD_CLI), "-m", str(self.model), "--taesd", str(self.taesd), "-o", str(self.pictures / picture)),
            *("-p", "a lovely cat", "-s", "42", "--rng", "cpu", "--cfg-scale", "1", "--sampling-method", "euler"),
            *("--steps", "1", "-W", "256", "-H", "256", "-t", "2", "--disable-image-metadata", *arguments),
        ]
        settings = {name: value for name, value in os.environ.items() if not name.startswith("SDGEN_")}
        settings["SDGEN_TUNE_FILE"] = ""  # not the user's
        return subprocess.run(
            command, env=settings | environment, capture_output=True, text=True, errors="replace", timeout=TIMEOUT
        )

    def picture(self, name: str, *arguments: str, **environment: str) -> Path:
        done = self.run(name, *arguments, **environment)
        assert done.returncode == 0, f"{arguments} {environment}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return self.pictures / name


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    require_sd_cli(SD_CLI)
    folder = tmp_path_factory.mktemp("models")
    script = REPOSITORY / "bench" / "checkpoint.py"
    subprocess.run([sys.executable, str(script), "tiny", "--out", str(folder)], check=True, capture_output=True)
    return Models(folder / "tiny-f16.safetensors", folder / "taesd-f16.safetensors", folder)


def pixels(path: Path) -> NDArray[np.float64]:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), np.float64)


def psnr(one: Path, other: Path) -> float:
    """In decibels; infinite where the pictures are the same."""
    error = float(np.mean((pixels(one) - pixels(other)) ** 2))
    return 10 * float(np.log10(255**2 / error)) if error else float("inf")


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--diffusion-fa", "--steps", "3"), marks=pytest.mark.slow)],
    ids=["plain", "attention"],
)
def test_forms_make_the_same_picture(models: Models, options: tuple[str, ...]) -> None:
    upstream, assembly, c = (
        models.picture(f"{form}-{len(options)}.png", *options, SDGEN_KERNELS=form)
        for form in ("upstream", "assembly", "c")
    )
    assert np.std(pixels(upstream)) > 5, "the picture is of one colour: it would be like any other"
    assert psnr(upstream, assembly) >= 45
    assert psnr(assembly, c) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--diffusion-fa",)], ids=["plain", "attention"])
def test_pictures_with_and_without_fusion(models: Models, options: tuple[str, ...]) -> None:
    fused, single = (
        models.picture(f"fuse-{fuse}.png", "--steps", "2", *options, SDGEN_TUNE=f"fuse={fuse}") for fuse in (1, 0)
    )
    assert np.std(pixels(fused)) > 5
    assert psnr(fused, single) >= 60


def test_assembly_is_the_default_and_threads_do_not_change_the_picture(models: Models) -> None:
    one = models.picture("one.png", "-t", "1", SDGEN_KERNELS="assembly").read_bytes()
    for threads in ("2", "3"):
        assert models.picture(f"threads-{threads}.png", "-t", threads).read_bytes() == one


def test_fewer_threads_than_asked_for(models: Models) -> None:
    """The system grants one thread of the eight: nobody waits for the others."""
    limited = models.picture("limited.png", "-t", "8", OMP_THREAD_LIMIT="1")
    assert limited.read_bytes() == models.picture("unlimited.png").read_bytes()


@pytest.mark.slow
def test_what_is_kept_does_not_change_the_picture(models: Models) -> None:
    """Two prompts, of three steps each: keys and values are looked for, kept and copied in turn."""
    options = ("--steps", "3", "--cfg-scale", "7", "-n", "dogs", "-W", "64", "-H", "64")
    for form in ({"SDGEN_ISA": "avx2"}, {"SDGEN_KERNELS": "c"}):
        computed = models.picture("computed.png", *options, SDGEN_TUNE="reuse=0", **form).read_bytes()
        done = models.run("kept.png", *options, SDGEN_STORE_MB="300", SDGEN_VERBOSE="1", **form)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert (models.pictures / "kept.png").read_bytes() == computed
        looked, copied, kept = map(
            int,
            re.findall(
                r"of (\d+) products that may be the same in each step, copied (\d+) and kept (\d+)", done.stderr
            )[0],
        )
        assert looked == 3 * kept == 3 * copied > 0
        megabytes = re.findall(r"^sdgen: kept transformed weights of ([\d.]+) MiB", done.stderr, re.MULTILINE)
        assert float(megabytes[0]) > 1


def taken(done: subprocess.CompletedProcess[str]) -> tuple[int, int]:
    """How many of the products and convolutions the kernels took."""
    said = re.search(r"^sdgen: took (\d+) of (\d+) nodes", done.stderr, re.MULTILINE)
    assert said, done.stderr[-2000:]
    return int(said[1]), int(said[2])


@pytest.mark.slow
def test_a_trace_tells_what_the_table_does(models: Models, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    done = models.run("traced.png", "--steps", "3", SDGEN_PROFILE=str(path))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (models.pictures / "traced.png").read_bytes() == models.picture("untraced.png", "--steps", "3").read_bytes()
    table, lanes = all_rows(done.stderr), read_trace(path).lanes
    assert sorted(lanes) == [(1, 1), (1, 2)]
    whole = table.pop("all")
    assert any(name.endswith(" reused") for name in table)
    for lane in lanes.values():
        assert {operation.name for operation in lane} == table.keys()
        assert len(lane) == whole.calls
    parts = [part for lane in lanes.values() for part in lane]
    spent = sum(part.end - part.begin for part in parts)
    assert abs(spent / len(lanes) * 1e-9 - whole.seconds) <= 1e-4
    for phase, percent in whole.percent.items():
        assert abs(100 * sum(part.spent(phase) for part in parts) / spent - percent) <= 0.1


def linear_layers(model: Path) -> int:
    """How many linear layers of a checkpoint sd-cli quantizes: it leaves embeddings as they are."""
    with model.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(len(tensor["shape"]) == 2 and "embed" not in name for name, tensor in header.items())


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["f32", "bf16", "q8_0"])
def test_types_of_weights(models: Models, weights: str) -> None:
    """Converted as they are loaded. All is taken but the layers whose weights are quantized."""
    options = ("--type", weights)
    upstream = models.picture(f"{weights}-upstream.png", *options, SDGEN_KERNELS="upstream")
    done = models.run(f"{weights}.png", *options, SDGEN_VERBOSE="1")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert psnr(upstream, models.pictures / f"{weights}.png") >= 45
    some, total = taken(done)
    assert some > 0
    assert total - some == (linear_layers(models.model) if weights == "q8_0" else 0)


SIZES: dict[tuple[int, int], tuple[tuple[str, ...], dict[str, str], float]] = {
    (512, 520): ((), {"SDGEN_KERNELS": "upstream"}, 45),
    (608, 608): (("-t", "1"), {}, math.inf),
    (800, 1200): ((), {"SDGEN_KERNELS": "c"}, 60),
}


@pytest.mark.slow
@pytest.mark.parametrize("width, height", SIZES)
def test_sizes(models: Models, width: int, height: int) -> None:
    """Sizes that are no multiples of 64, compared with what there is time for."""
    size = ("-W", str(width), "-H", str(height), "--diffusion-fa")
    assembly = models.picture(f"{width}x{height}.png", *size)
    # sd-cli makes sizes multiples of what the model takes; never less than what was asked for.
    rows, columns = pixels(assembly).shape[:2]
    assert height <= rows < height + 64 and width <= columns < width + 64
    assert np.std(pixels(assembly)) > 5
    options, environment, decibels = SIZES[width, height]
    other = models.picture(f"{width}x{height}-other.png", *size, *options, **environment)
    assert psnr(assembly, other) >= decibels


@pytest.mark.parametrize(
    "variable, value, allowed",
    [
        ("SDGEN_ISA", "avx1024", "avx2"),
        ("SDGEN_KERNELS", "nonsense", "assembly, c and upstream"),
        ("SDGEN_PROFILE", "yes", "0, 1 and the path of a file that ends in .json"),
        ("SDGEN_PROFILE", "/absent/trace.json", "cannot be written: No such file or directory"),
        ("SDGEN_STORE_MB", "much", "0 to 1048576"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(models: Models, variable: str, value: str, allowed: str) -> None:
    done = models.run("wrong.png", **{variable: value})
    assert done.returncode > 0, "it should end by itself, with a status, not by a signal"
    said = [line for line in (done.stdout + done.stderr).splitlines() if variable in line]
    assert len(said) == 1
    assert value in said[0] and allowed in said[0]
