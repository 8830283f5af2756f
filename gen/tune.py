"""`python -m gen tune`: finds which of the runtime's choices are faster on this machine than its defaults.

build/bin/sdgen-bench times SD 1.5's products and convolutions with a few values of each tunable, each in turn with the
defaults; what gains more than the noise is put together and timed beside the defaults once more, on the whole set, and
whatever makes a shape slower is dropped. The file that is written is the one that the runtime reads (runtime/tune.c).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from gen.isa import choices, native_levels, parse_levels

BENCH = Path(__file__).resolve().parent.parent / "build" / "bin" / "sdgen-bench"

# What is tried beside the defaults. A kc above 256 makes chains of sums that are less exact. Tile and Winograd's method
# are best chosen by shape, not for all shapes alike.
VALUES: dict[str, tuple[int, ...]] = {
    "kc": (128, 192, 256),
    "mc": (96, 192, 384),
    "nc": (128, 256, 512, 1024),
    "packed_mb": (4, 8, 16, 64),
}
KINDS = ("linear", "conv")  # of rows: those that the tunables change
SET = "sd15"

LEAST_GAIN = 0.005  # smaller ones are not worth a file
ERRORS = 2  # standard errors that a gain has to be above
SLOWEST = 0.99  # least ratio to the defaults' rate on any shape
LOUD = 0.02  # standard error of a mean gain from which on the noise is spoken of
PATIENCE = 3  # times the seconds where a shape is looked at again

DEFAULT = "default"
_TITLE = "sdgen tuning of "
_LINE = re.compile(r"(\w+) \w+=\d+(,\w+=\d+)*")

Values = dict[str, int]


class TuneError(Exception):
    """Nothing can be tuned; the message says why."""


@dataclass(frozen=True)
class Ratio:
    """A shape's rate by that of the defaults, the median of all samples; its standard error; 0 where it is wrong."""

    ratio: float
    noise: float


@dataclass(frozen=True)
class Tried:
    """What became of a value, shape by shape."""

    tunable: str
    value: int
    ratios: dict[str, Ratio]

    @property
    def gain(self) -> float:
        return mean_gain(self.ratios.values())

    @property
    def noise(self) -> float:
        return math.sqrt(sum(ratio.noise**2 for ratio in self.ratios.values())) / max(len(self.ratios), 1)

    @property
    def harmless(self) -> bool:
        """Whether no shape is surely slower."""
        return all(ratio.ratio + ERRORS * ratio.noise >= SLOWEST for ratio in self.ratios.values())

    @property
    def better(self) -> bool:
        return self.harmless and self.gain > max(LEAST_GAIN, ERRORS * self.noise)


@dataclass(frozen=True)
class Tuned:
    """What is best at a level; no values: the defaults. The ratios are those of the last check."""

    level: str
    values: Values
    ratios: dict[str, Ratio]
    tried: list[Tried]


def mean_gain(ratios: Iterable[Ratio]) -> float:
    """The geometric mean of the ratios, less one."""
    logs = [math.log(max(ratio.ratio, 1e-9)) for ratio in ratios]
    return math.exp(sum(logs) / len(logs)) - 1 if logs else 0.0


def text_of(values: Values) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def default_path() -> Path:
    """Where the runtime looks for its tuning file; raises TuneError where that is nowhere."""
    named, folder, home = (os.environ.get(name) for name in ("SDGEN_TUNE_FILE", "XDG_CONFIG_HOME", "HOME"))
    if named:
        return Path(named)
    if named is None and folder:
        return Path(folder) / "sdgen" / "tuning"
    if named is None and home:
        return Path(home) / ".config" / "sdgen" / "tuning"
    raise TuneError("no place for the tuning file: neither SDGEN_TUNE_FILE nor HOME says one; name it with --out FILE")


class Bench:
    """The program that measures; `advance` is called with the share of a run that is done."""

    def __init__(self, program: Path, seconds: float, advance: Callable[[float], None]) -> None:
        if not program.is_file():
            raise TuneError(f"{program} is absent: `make sdgen-bench` builds it")
        if not os.access(program, os.X_OK):
            raise TuneError(f"{program} cannot be run: it is no program")
        self.program = program
        self.seconds = seconds
        self.advance = advance
        self.context: dict[str, Any] = {}

    def run(self, arguments: Sequence[str], seconds: float) -> list[dict[str, Any]]:
        """The rows that it prints."""
        command = [str(self.program), "--format", "json", "--seconds", f"{seconds:g}", *arguments]
        lines = []
        expected, printed = 1, 0
        with tempfile.TemporaryFile("w+") as errors:
            try:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            except OSError as error:
                raise TuneError(f"{self.program} cannot be run: {error.strerror}") from error
            assert process.stdout
            try:
                for line in process.stdout:
                    lines.append(line)
                    if found := re.search(r'"rows": (\d+)', line):
                        expected = max(int(found[1]), 1)
                    elif line.lstrip().startswith('{"name"'):
                        printed += 1
                        self.advance(1 / expected)
                status = process.wait()
            finally:
                process.kill()
                process.wait()
            errors.seek(0)
            said = errors.read().strip().splitlines()
        self.advance(1 - printed / expected)
        try:
            output = json.loads("".join(lines))
            self.context, rows = output["context"], output["benchmarks"]
        except (ValueError, KeyError, TypeError):
            rows = []
        # That a result was wrong its row says.
        if status not in (0, 1) or not rows:
            raise TuneError(": ".join([f"{self.program} failed (exit status {status})", *said[-1:]]))
        return list(rows)

    def compare(
        self, level: str, variants: dict[str, Values], shapes: Sequence[str], patience: int = 1
    ) -> dict[str, dict[str, Ratio]]:
        """The ratios of each variant by shape, each timed in turn with the defaults."""
        arguments = [*shapes, "--variant", f"{DEFAULT}:isa={level}"]
        for label, values in variants.items():
            arguments += ["--variant", f"{label}:isa={level},{text_of(values)}"]
        found: dict[str, dict[str, Ratio]] = {label: {} for label in variants}
        try:
            for row in self.run(arguments, self.seconds * patience):
                if row["label"] in found:
                    wrong = row.get("error_occurred", False)
                    ratio = Ratio(0, 0) if wrong else Ratio(float(row["ratio"]), float(row["ratio_noise"]))
                    found[row["label"]][row["shape"]] = ratio
        except (KeyError, TypeError, ValueError) as error:
            raise TuneError(f"{self.program} printed a row that cannot be understood ({error!r})") from error
        return found


def try_tunable(bench: Bench, level: str, tunable: str, values: Sequence[int]) -> list[Tried]:
    """What becomes of each value of one tunable, but of the default one."""
    variants = {f"{tunable}={value}": {tunable: value} for value in values}
    ratios: dict[str, dict[str, Ratio]] = {label: {} for label in variants}
    for kind in KINDS:
        for label, found in bench.compare(level, variants, ["--set", SET, "--filter", kind]).items():
            ratios[label].update(found)
    default = bench.context.get("defaults", {}).get(tunable)
    return [Tried(tunable, value, ratios[f"{tunable}={value}"]) for value in values if value != default]


def slower_shapes(bench: Bench, level: str, values: Values) -> tuple[dict[str, Ratio], list[str]]:
    """The values beside the defaults on the whole set, and the shapes that are slower, the slowest first.

    A shape that seems slower is timed once more, for longer: the machine is noisy.
    """
    ratios = bench.compare(level, {"tuned": values}, ["--set", SET])["tuned"]
    slower = [shape for shape, ratio in ratios.items() if ratio.ratio < SLOWEST]
    if slower:
        shapes = [argument for shape in slower for argument in ("--shape", shape)]
        ratios |= bench.compare(level, {"tuned": values}, shapes, PATIENCE)["tuned"]
        slower = [shape for shape in slower if ratios[shape].ratio < SLOWEST]
    return ratios, sorted(slower, key=lambda shape: ratios[shape].ratio)


def tune_level(bench: Bench, level: str, begin: Callable[[str], None]) -> Tuned:
    """The best values of a level; `begin` is called with what is measured now."""
    chosen: dict[str, Tried] = {}
    all_tried: list[Tried] = []
    for tunable, values in VALUES.items():
        begin(f"{level}: {tunable}")
        tried_now = try_tunable(bench, level, tunable, values)
        all_tried += tried_now
        better = [tried for tried in tried_now if tried.better]
        if better:
            chosen[tunable] = max(better, key=lambda tried: tried.gain)
    while chosen:
        values_chosen = {tunable: tried.value for tunable, tried in chosen.items()}
        begin(f"{level}: {text_of(values_chosen)} beside the defaults")
        ratios, slower = slower_shapes(bench, level, values_chosen)
        if not slower and mean_gain(ratios.values()) > 0:
            return Tuned(level, values_chosen, ratios, all_tried)
        # That which did least for the slowest shape goes, or did least for all of them.
        shape = slower[0] if slower else ""
        worst = min(chosen.values(), key=lambda tried: (tried.ratios.get(shape, Ratio(1, 0)).ratio, tried.gain))
        del chosen[worst.tunable]
    return Tuned(level, {}, {}, all_tried)


def kept_lines(path: Path, processor: str, levels: Sequence[str]) -> list[str]:
    """What an earlier file of this processor says of other levels."""
    try:
        title, *lines = path.read_text(errors="replace").splitlines()
    except (OSError, ValueError):
        return []
    if title != _TITLE + processor:
        return []
    return [line for line in lines if _LINE.fullmatch(line) and line.split(" ")[0] not in levels]


def write(path: Path, processor: str, tuned: Sequence[Tuned]) -> None:
    """Writes the tuning file; an earlier one stays whole until the new one takes its place."""
    lines = [_TITLE + processor, *kept_lines(path, processor, [one.level for one in tuned])]
    lines += [f"{one.level} {text_of(one.values)}" for one in tuned if one.values]
    descriptor, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write("\n".join(lines) + "\n")
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def slowest(ratios: dict[str, Ratio]) -> str:
    """The shape that gains least, and what."""
    if not ratios:
        return ""
    shape = min(ratios, key=lambda shape: ratios[shape].ratio)
    return f"{shape} {ratios[shape].ratio - 1:+.1%}" if ratios[shape].ratio else f"{shape}: wrong"


def print_results(tuned: Sequence[Tuned]) -> None:
    table = Table("level", "value", "gain, mean", "noise", "slowest shape")
    for one in tuned:
        for tried in one.tried:
            row = (f"{tried.tunable}={tried.value}", f"{tried.gain:+.1%}", f"{tried.noise:.1%}", slowest(tried.ratios))
            table.add_row(one.level, *row)
        gain = f"{mean_gain(one.ratios.values()):+.1%}" if one.values else ""
        table.add_row(one.level, text_of(one.values) or "the defaults", gain, "", slowest(one.ratios), style="bold")
        table.add_section()
    console = Console()
    if not console.is_terminal:
        console.width = 120
    console.print(table)
    noise = max((tried.noise for one in tuned for tried in one.tried), default=0.0)
    if noise > LOUD:
        console.print(
            f"The machine is busy: gains below {ERRORS * noise:.0%} may be hidden by noise (try more --seconds)."
        )


def tune(path: Path | None, seconds: float, levels: Sequence[str], program: Path = BENCH) -> int:
    """Measures, writes the file and says what is in it; returns the exit status."""
    path = path or default_path()
    levels = levels or native_levels()[-1:]
    if not levels:
        raise TuneError("this processor has none of the levels that kernels exist for")
    if path.is_dir():
        raise TuneError(f"{path} is a folder, not a file")
    progress = Progress(
        *(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()),
        console=Console(stderr=True),
    )
    steps = len(KINDS) * len(VALUES) + 1
    task = progress.add_task("", total=steps * len(levels))
    bench = Bench(program, seconds, lambda share: progress.advance(task, share))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()  # said before anything is measured
    except OSError as error:
        raise TuneError(f"{path.parent} cannot be written to: {error.strerror}") from error
    try:
        with progress:
            tuned = [tune_level(bench, level, lambda text: progress.update(task, description=text)) for level in levels]
            progress.update(task, completed=steps * len(levels))
        write(path, str(bench.context.get("cpu", "")), tuned)
    except KeyboardInterrupt:
        print(f"python -m gen: interrupted; {path} is as it was", file=sys.stderr)
        return 130
    print_results(tuned)
    print(f"{path}: written")
    return 0


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and below 3600")
    return value


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options of `python -m gen tune`."""
    parser = commands.add_parser(
        "tune",
        help="find the runtime's best choices for this machine",
        description="Times SD 1.5's shapes with a few values of the runtime's tunables, each in turn with the "
        "defaults, and writes what gains, and makes no shape slower by more than 1%, into the file that sd-cli reads.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        dest="tuning_file",
        metavar="FILE",
        help="(default: SDGEN_TUNE_FILE, else sdgen/tuning in the user's folder of configurations)",
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=0.15, metavar="S", help="time spent on a row (default: %(default)s)"
    )
    parser.add_argument(
        "--levels", default="", metavar="LEVELS", help=f"(default: the richest of this processor) {choices()}"
    )
    parser.add_argument(
        "--bench", type=Path, default=BENCH, metavar="PATH", help="what measures (default: build/bin/sdgen-bench)"
    )


def run(arguments: argparse.Namespace) -> int:
    """The command; the exit status."""
    levels = parse_levels(arguments.levels) if arguments.levels else ()
    try:
        return tune(arguments.tuning_file, arguments.seconds, levels, arguments.bench)
    except TuneError as error:
        print(f"python -m gen: {error}", file=sys.stderr)
        return 2
