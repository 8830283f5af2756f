"""Runs sd-cli with fixed settings, shows how far it is, and reads times and memory from it."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image

import checkpoint

BUILD = Path(__file__).resolve().parent.parent / "build"

# What sd-cli logs when a part is done, and the field of Run that takes its seconds.
LOGGED = {
    "text_seconds": re.compile(r"get_learned_condition completed, taking ([\d.]+)s"),
    "sampling_seconds": re.compile(r"sampling completed, taking ([\d.]+)s"),
    "decode_seconds": re.compile(r"decode_first_stage completed, taking ([\d.]+)s"),
    "total_seconds": re.compile(r"generate_image completed in ([\d.]+)s"),
}
PROGRESS = re.compile(r"\| (\d+)/(\d+) - ")


@dataclass(frozen=True)
class Settings:
    model: Path
    taesd: Path | None = None
    steps: int = 2
    size: int = 512
    threads: int = 1
    prompt: str = "a lovely cat"
    seed: int = 42

    def arguments(self, picture: Path) -> list[str]:
        taesd = ["--taesd", str(self.taesd)] if self.taesd else []
        return [
            *("-m", str(self.model), *taesd, "-p", self.prompt, "-s", str(self.seed), "-o", str(picture)),
            *("-W", str(self.size), "-H", str(self.size), "-t", str(self.threads)),
            *("--steps", str(self.steps), "--sampling-method", "euler", "--rng", "cpu"),
            # The fastest that upstream has; it is no loss of precision.
            *("--diffusion-fa", "--disable-image-metadata"),
        ]


@dataclass(frozen=True)
class Run:
    label: str
    text_seconds: float
    sampling_seconds: float
    decode_seconds: float
    total_seconds: float
    steps: int
    peak_mib: float
    picture: Path

    @property
    def step_seconds(self) -> float:
        return self.sampling_seconds / self.steps


def psnr(one: Path, other: Path) -> float:
    """Peak signal-to-noise ratio of two pictures in decibels; infinite where they are the same."""
    a, b = (np.asarray(Image.open(path).convert("RGB"), np.float64) for path in (one, other))
    if a.shape != b.shape:
        raise SystemExit(f"{one} and {other} are not of one size")
    error = float(np.mean((a - b) ** 2))
    return float("inf") if error == 0 else 10 * float(np.log10(255**2 / error))


def show(label: str, message: str) -> None:
    # On a terminal one line that changes, elsewhere a line each.
    start, end = ("\r\033[K", "") if sys.stderr.isatty() else ("", "\n")
    print(f"{start}{label}: {message}", end=end, file=sys.stderr, flush=True)


def follow(output: IO[str], label: str) -> tuple[dict[str, float], str]:
    """Reads sd-cli's output to its end; returns the seconds that it logged and the whole text."""
    seconds: dict[str, float] = {}
    lines = []
    shown = message = ""
    for line in output:
        lines.append(line)
        for field, pattern in LOGGED.items():
            if match := pattern.search(line):
                seconds[field] = float(match[1])
        if "sampling_seconds" in seconds:
            message = "decoding"
        elif "text_seconds" in seconds and (match := PROGRESS.search(line)):
            message = f"step {match[1]} of {match[2]}"
        if message != shown:
            show(label, message)
            shown = message
    return seconds, "".join(lines)


def run(program: Path, label: str, settings: Settings, picture: Path, variables: dict[str, str]) -> Run:
    """Makes the picture, with these environment variables set."""
    if not program.exists():
        raise SystemExit(f"{program} does not exist; 'make sd-cli' and 'make baseline' build it")
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.unlink(missing_ok=True)
    show(label, "loading the model and reading the prompt")
    command = [str(program), *settings.arguments(picture)]
    process = subprocess.Popen(
        command,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout
    with process.stdout:
        seconds, text = follow(process.stdout, label)
    # wait4, because it alone tells the memory of this one process.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or len(seconds) < len(LOGGED) or not picture.exists():
        with tempfile.NamedTemporaryFile("w", prefix="sd-cli-", suffix=".log", delete=False) as log:
            log.write(text)
        tail = "".join(text.splitlines(keepends=True)[-5:])
        raise SystemExit(
            f"\n{label}: sd-cli failed (exit status {process.returncode}); all it said: {log.name}\n{tail}"
        )
    result = Run(label=label, **seconds, steps=settings.steps, peak_mib=usage.ru_maxrss / 1024, picture=picture)
    show(label, f"{result.step_seconds:.2f} s a step, VAE {result.decode_seconds:.2f} s, {result.peak_mib:.0f} MiB")
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return result


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return int(text)


def add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=positive, default=2, help="(default: %(default)s)")
    parser.add_argument("--size", type=positive, default=512, help="width and height (default: %(default)s)")
    parser.add_argument(
        "--threads", type=positive, default=len(os.sched_getaffinity(0)), help="(default: all, %(default)s)"
    )


def parse_settings(description: str | None, parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Settings]:
    """Adds the options for Settings to the parser and parses the command line."""
    parser.description = description
    parser.add_argument("--model", type=Path, help="a checkpoint (default: a synthetic SD 1.5, written if missing)")
    parser.add_argument("--tiny", action="store_true", help="take the tiny U-Net with TAESD, which is much quicker")
    add_sizes(parser)
    arguments = parser.parse_args()
    if arguments.model and arguments.tiny:
        parser.error("--model and --tiny exclude each other")
    if arguments.model and not arguments.model.exists():
        parser.error(f"--model: {arguments.model} does not exist")
    model, taesd = checkpoint.tiny() if arguments.tiny else (arguments.model or checkpoint.sd15(), None)
    return arguments, Settings(model, taesd, arguments.steps, arguments.size, arguments.threads)


@dataclass(frozen=True)
class Comparison:
    """How many times as fast run is as base, how much memory it takes of base's, and how alike the pictures are."""

    run: str
    base: str
    step: float
    vae: float
    total: float
    memory: float
    psnr: float


def compare(run: Run, base: Run) -> Comparison:
    return Comparison(
        run=run.label,
        base=base.label,
        step=base.step_seconds / run.step_seconds,
        vae=base.decode_seconds / run.decode_seconds,
        total=base.total_seconds / run.total_seconds,
        memory=run.peak_mib / base.peak_mib,
        psnr=psnr(run.picture, base.picture),
    )


def table(runs: list[Run], comparisons: list[Comparison]) -> str:
    lines = [f"{'':28} {'s/step':>8} {'VAE s':>8} {'total s':>8} {'peak MiB':>9}"]
    for run in runs:
        lines.append(
            f"{run.label:28} {run.step_seconds:8.2f} {run.decode_seconds:8.2f} {run.total_seconds:8.2f}"
            f" {run.peak_mib:9.0f}"
        )
    lines += ["", f"{'':28} {'step':>8} {'VAE':>8} {'total':>8} {'memory':>9} {'PSNR dB':>8}"]
    for ratio in comparisons:
        lines.append(
            f"{ratio.run + ' / ' + ratio.base:28} {ratio.step:7.2f}x {ratio.vae:7.2f}x {ratio.total:7.2f}x"
            f" {ratio.memory:8.2f}x {ratio.psnr:8.1f}"
        )
    return "\n".join(lines)
