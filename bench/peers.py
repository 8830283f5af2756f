"""Times a step and the VAE decoding of Stable Diffusion 1.5 in OpenVINO and in PyTorch beside upstream and sdgen.

A step is two evaluations of the UNet. All are run in turns, with random weights, and the medians are shown. OpenVINO
and PyTorch compute diffusers' modules in single precision, PyTorch in eager mode and the faster memory format. They
compute everything once before, and stay in memory (up to 12 GB) until the end. What is missing or fails is left out.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import checkpoint
import compare
import sdcli

FOLDER = sdcli.BUILD / "peers"
PYTHON = sdcli.BUILD / "peers-venv" / "bin" / "python"
WORKER = Path(__file__).resolve().parent / "peers_worker.py"
PEERS = {"pytorch": "PyTorch", "openvino": "OpenVINO"}
# Of compare.py, by level, the one last that all are compared with.
PROGRAMS = {"best": ["baseline", "baseline-llamafile", "sdgen"], "avx2": ["baseline-avx2", "sdgen-avx2"]}
ALL = {level: [*programs[:-1], *PEERS, programs[-1]] for level, programs in PROGRAMS.items()}
# What keeps the peers to a level: oneDNN in both, and PyTorch's own loops and MKL.
VARIABLES = {
    "best": {},
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}
# Of the pictures' width, which the UNet halves three times in latents of an eighth.
MULTIPLE = 64
# The arguments that JSON repeats.
CONTEXT = ("level", "threads", "size", "steps", "repeat")


class Unavailable(Exception):
    """Why a peer is left out."""


@dataclass
class Result:
    step: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, step: float, decode: float) -> None:
        self.step.append(step)
        self.decode.append(decode)


class Worker:
    """A peer in a process of its own, which computes when it is told to."""

    def __init__(self, name: str, level: str, settings: sdcli.Settings) -> None:
        if not PYTHON.exists():
            raise Unavailable("build/peers-venv is missing, which 'make peers' sets up")
        self.name = name
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.log = FOLDER / f"{name}.log"
        # A level that is all that the processor has is nothing to be kept to.
        kept = level if compare.has_avx512() else "best"
        command = [PYTHON, WORKER, name, "--size", settings.size, "--threads", settings.threads, "--level", kept]
        # Without what lies about for other Pythons, and without a look at the network.
        offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": ""}
        try:
            with self.log.open("w") as log:
                self.process = subprocess.Popen(
                    list(map(str, command)),
                    env=os.environ | offline | VARIABLES[level],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        except OSError as error:
            raise Unavailable(f"{PYTHON} does not run ({error.strerror})") from error

    def event(self) -> dict[str, Any]:
        """The next event that is more than progress."""
        assert self.process.stdout
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if "failed" in event:
                raise Unavailable(event["failed"])
            if "progress" not in event:
                return event
            sdcli.show(self.name, event["progress"])
        status = self.process.wait()
        ending = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raise Unavailable(f"its process ended ({ending}); what it said: {self.log}")

    def start(self) -> list[str]:
        """Waits until it can be measured; returns what is to know of it."""
        notes: list[str] = self.event()["ready"]["notes"]
        return notes

    def measure(self) -> tuple[float, float]:
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        event = self.event()
        return event["step_seconds"], event["decode_seconds"]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def say(label: str, step: float, decode: float) -> None:
    sdcli.show(label, f"{step:.2f} s a step, VAE {decode:.2f} s")
    end_line()


def end_line() -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)


def run(arguments: argparse.Namespace, settings: sdcli.Settings) -> tuple[dict[str, Result], dict[str, str]]:
    """The results, and why others have none."""
    results = {name: Result() for name in arguments.only}
    left_out: dict[str, str] = {}
    workers: dict[str, Worker] = {}

    @contextlib.contextmanager
    def leave_out_if_unavailable(name: str) -> Iterator[None]:
        try:
            yield
        except Unavailable as reason:
            left_out[name] = str(reason)
            del results[name]
            sdcli.show(name, f"{PEERS[name]} is left out: {reason}")
            end_line()

    with contextlib.ExitStack() as stack:
        for name in filter(PEERS.__contains__, arguments.only):
            with leave_out_if_unavailable(name):
                workers[name] = Worker(name, arguments.level, settings)
                stack.callback(workers[name].close)
                results[name].notes = workers[name].start()
        for _ in range(arguments.repeat):
            for name in list(results):
                if name in PEERS:
                    with leave_out_if_unavailable(name):
                        sdcli.show(name, "computing")
                        results[name].add(*workers[name].measure())
                        say(name, results[name].step[-1], results[name].decode[-1])
                else:
                    program, variables = compare.PROGRAMS[name]
                    made = sdcli.run(program, name, settings, FOLDER / f"{name}.png", variables)
                    results[name].add(made.step_seconds, made.decode_seconds)
    return results, left_out


def table(results: dict[str, Result], reference: str) -> Table:
    made = Table()
    made.add_column("")
    compared = reference in results
    for title in ("a step, s", "VAE decode, s", *((f"step / {reference}", f"VAE / {reference}") if compared else ())):
        made.add_column(title, justify="right")
    for name, result in results.items():
        times = [median(result.step), median(result.decode)]
        cells = [f"{time:.2f}" for time in times]
        if compared:
            of = [median(results[reference].step), median(results[reference].decode)]
            cells += [f"{time / other:.2f}" for time, other in zip(times, of, strict=True)]
        made.add_row(name, *cells)
    return made


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sdcli.add_sizes(parser)
    parser.add_argument("--repeat", type=sdcli.positive, default=3, help="measure each so often (default: %(default)s)")
    parser.add_argument(
        "--level",
        choices=PROGRAMS,
        default="best",
        help="the instructions: all there are, or AVX2 (default: %(default)s)",
    )
    names = list(dict.fromkeys(name for level in ALL.values() for name in level))
    parser.add_argument("--only", choices=names, nargs="+", help="(default: all of the level)")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="(default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.size % MULTIPLE:
        parser.error(f"--size: {arguments.size} is not a multiple of {MULTIPLE}")
    arguments.only = list(dict.fromkeys(arguments.only or ALL[arguments.level]))
    if others := [name for name in arguments.only if name not in ALL[arguments.level]]:
        parser.error(f"--only: {', '.join(others)} cannot be run at the level {arguments.level}")
    return arguments


def main() -> None:
    arguments = parse()
    settings = sdcli.Settings(checkpoint.sd15(), steps=arguments.steps, size=arguments.size, threads=arguments.threads)
    results, left_out = run(arguments, settings)
    if not results:
        sys.exit("peers: nothing could be measured")

    if arguments.format == "json":
        context = {"processor": compare.processor(), **{name: getattr(arguments, name) for name in CONTEXT}}
        benchmarks = [
            {
                "name": name,
                "step_seconds": median(result.step),
                "decode_seconds": median(result.decode),
                "step_samples": result.step,
                "decode_samples": result.decode,
                "notes": result.notes,
            }
            for name, result in results.items()
        ]
        print(json.dumps({"context": context, "benchmarks": benchmarks, "left_out": left_out}, indent=1))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    sizes = f"{arguments.threads} threads, {arguments.size}x{arguments.size}, medians of {arguments.repeat}"
    console.print(f"{compare.processor()}, level {arguments.level}, {sizes}")
    console.print(table(results, PROGRAMS[arguments.level][-1]))
    for name, result in results.items():
        if result.notes:
            console.print(escape(f"{PEERS[name]}: {'; '.join(result.notes)}"))
    for name, reason in left_out.items():
        console.print(escape(f"{PEERS[name]} is left out: {reason}"))


if __name__ == "__main__":
    main()
