"""Measures attention, as one node and unfused, masks, products and the accuracy of norm and gelu through ggml's API.

Each case is run in turn by bench-attention (bench/attention.c) with these kernels (sdgen), by the same program with
them switched off (upstream), and, where products are compared, by unpatched builds without and with GGML_LLAMAFILE
(baseline, baseline-llamafile). Errors are against double precision: the largest, and that as a share of the largest
exact result. The exit status is 1 where an attention is wrong.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from compare import processor
from sdcli import BUILD, positive, show

BUILD_SCRIPT = BUILD.parent / "scripts" / "build.py"

Row = dict[str, Any]


class Program(NamedTuple):
    target: str  # of scripts/build.py
    folder: str  # under build/, which it is built in
    variables: dict[str, str]


PROGRAMS = {
    "sdgen": Program("bench-attention", "sd-cli", {"SDGEN_KERNELS": "assembly"}),
    "upstream": Program("bench-attention", "sd-cli", {"SDGEN_KERNELS": "upstream"}),
    "baseline": Program("bench-attention-baseline", "baseline", {}),
    "baseline-llamafile": Program("bench-attention-baseline-llamafile", "baseline-llamafile", {}),
}
SECTIONS = ("attention", "masks", "matmul", "accuracy")
# What is run where --only does not say it.
DEFAULT_PROGRAMS = {section: list(PROGRAMS) if section == "matmul" else ["sdgen", "upstream"] for section in SECTIONS}

# head sizes, heads and tokens of vision transformers
DIMS = [32, 64, 80]
HEADS = [12, 16]
TOKENS = [256, 2048, 4608, 8192, 18432]
MATMUL_COLUMNS = [256, 2048, 8192]
QUICK = [256, 2048]


class Case(NamedTuple):
    section: str
    arguments: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.section, *map(str, self.arguments)])


class Column(NamedTuple):
    key: str
    title: str
    shown: Callable[[Any], str] = str


def mebibytes(count: float) -> str:
    return f"{count / 2**20:.2f}"


def fixed(digits: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{digits}f}"


def short(value: float) -> str:
    return f"{value:.1e}"


def unless_right(right: bool) -> str:
    return "" if right else "WRONG"


RIGHT = Column("right", "", unless_right)
ERRORS = [Column("absolute", "error", short), Column("relative", "relative", short)]
TIMES = [Column("ms", "ms", fixed(2)), Column("gflops", "GFLOP/s", fixed(1))]
# Those before the program say what was computed.
COLUMNS = {
    "attention": [
        *(Column(name, name) for name in ("dim", "heads", "n", "form", "kv", "program")),
        *(*TIMES, *ERRORS, Column("cosine", "least cosine", fixed(7))),
        *(Column("graph_bytes", "graph MiB", mebibytes), Column("work_bytes", "work MiB", mebibytes), RIGHT),
    ],
    "masks": [
        *(Column(name, name) for name in ("n", "block", "form", "kv", "mask", "program")),
        *(*ERRORS, Column("blind", "query without keys"), RIGHT),
    ],
    "matmul": [
        *(Column(name, name) for name in ("type", "n", "program")),
        *(*TIMES, ERRORS[1], Column("work_bytes", "work MiB", mebibytes)),
    ],
    "accuracy": [*(Column(name, name) for name in ("operation", "formula", "program")), ERRORS[0]],
}


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    for section in arguments.sections:
        if section == "attention":
            for n in arguments.n or (QUICK if arguments.quick else TOKENS):
                yield from (Case(section, (dim, heads, n)) for dim in arguments.dims for heads in arguments.heads)
        elif section == "matmul":
            yield from (Case(section, (n,)) for n in arguments.n or (QUICK if arguments.quick else MATMUL_COLUMNS))
        else:
            yield Case(section)


def run(name: str, case: Case, threads: int, seconds: float) -> list[Row]:
    """What the program says of the case, a row for each measurement."""
    program = PROGRAMS[name]
    path = BUILD / program.folder / "bin" / "bench-attention"
    command = [path, "--threads", threads, "--seconds", seconds, case.section, *case.arguments]
    label = f"{case}, {name}"
    show(label, "running")
    process = subprocess.Popen(
        list(map(str, command)), env=os.environ | program.variables, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    rows: list[Row] = []
    with process.stdout:
        for line in process.stdout:
            rows.append({"program": name, **json.loads(line)})
            if sys.stderr.isatty():
                show(label, f"{len(rows)} done")
    status = process.wait()
    # That a result was wrong its row says.
    if status not in (0, 1) or not rows:
        raise SystemExit(f"\nattention: {label}: {path} failed (exit status {status})")
    return rows


def table(section: str, rows: list[Row]) -> Table:
    """The rows of a section, those of one case by all programs together."""
    keys = [column.key for column in COLUMNS[section]]
    what = keys[: keys.index("program")]
    # No columns for what never happened.
    columns = [
        column for column in COLUMNS[section] if column != RIGHT or not all(row.get("right", True) for row in rows)
    ]
    if any("skipped" in row for row in rows):
        columns.append(Column("skipped", "skipped"))
    made = Table(title=section, title_justify="left")
    for column in columns:
        made.add_column(column.title, justify="left" if isinstance(rows[0].get(column.key), str) else "right")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in what), []).append(row)
    last: Any = None
    for key, group in groups.items():
        case = [value for value in key if isinstance(value, int)]
        if last is not None and case != last:
            made.add_section()
        last = case
        for row in group:
            made.add_row(*(cell(column, row) for column in columns))
    return made


def cell(column: Column, row: Row) -> str:
    if column.key not in row:
        return ""
    # JSON has no infinity, which the error of what is no number is.
    return "none" if row[column.key] is None else escape(column.shown(row[column.key]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short: --n 256 2048, and less time a measurement")
    parser.add_argument("--n", type=positive, nargs="+", help="tokens, and columns of products (default: 256 to 18432)")
    parser.add_argument("--heads", type=positive, nargs="+", default=HEADS, help="(default: 12 16)")
    parser.add_argument("--dims", type=positive, nargs="+", default=DIMS, help="of a head (default: 32 64 80)")
    parser.add_argument(
        "--threads", type=positive, default=len(os.sched_getaffinity(0)), help="(default: all, %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, help="time spent on a measurement, which is the best of its runs (default: 0.5 or 0.1)"
    )
    parser.add_argument("--sections", choices=SECTIONS, nargs="+", default=SECTIONS, help="(default: all)")
    parser.add_argument(
        "--only",
        choices=PROGRAMS,
        nargs="+",
        help="the programs for all sections (default: sdgen and upstream, for matmul all)",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="(default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.seconds is None:
        arguments.seconds = 0.1 if arguments.quick else 0.5
    if not 0 <= arguments.seconds < 3600:
        parser.error(f"--seconds: {arguments.seconds} is not from 0 to 3600")
    return arguments


def main() -> None:
    arguments = parse()
    programs = {section: arguments.only or DEFAULT_PROGRAMS[section] for section in arguments.sections}
    targets = dict.fromkeys(PROGRAMS[name].target for names in programs.values() for name in names)
    # On stderr, where the progress is shown.
    if subprocess.run([sys.executable, str(BUILD_SCRIPT), *targets], stdout=sys.stderr).returncode != 0:
        sys.exit("attention: the programs could not be built (the message is above)")

    rows: list[Row] = []
    for case in cases(arguments):
        for name in programs[case.section]:
            rows += run(name, case, arguments.threads, arguments.seconds)
    if sys.stderr.isatty():
        print(end="\r\033[K", file=sys.stderr)

    if arguments.format == "json":
        context = {"processor": processor(), "threads": arguments.threads, "seconds": arguments.seconds}
        print(json.dumps({"context": context, "benchmarks": rows}, indent=1))
    else:
        console = Console()
        if not console.is_terminal:
            console.width = 200
        console.print(f"{processor()}, {arguments.threads} threads", highlight=False)
        for section in arguments.sections:
            console.print(table(section, [row for row in rows if row["section"] == section]))
    if wrong := sum(not row.get("right", True) for row in rows):
        sys.exit(f"attention: {wrong} results are wrong")


if __name__ == "__main__":
    main()
