"""The commands `sweep` and `report`: what they take. What they need beside the generator is imported when they run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gen.isa import choices, native_levels, parse_levels
from gen.sweep.errors import SweepError

_SECONDS = 1.0
_OUT = Path("build", "sweep.jsonl")


def add_sweep(commands: Any) -> None:
    """The command `sweep`."""
    command = commands.add_parser(
        "sweep",
        help="build, check and time variants of kernels",
        description="Builds variants of a kernel, or of a family's kernels; checks each against double precision; "
        "times it in the first-level cache, in turn with a loop of multiply-adds in registers (what moves data: with "
        "copies); and appends a line of JSON to FILE. What FILE holds already is not measured again, so that a sweep "
        "that was interrupted goes on by the same command. It takes about a second and a half for each variant: three "
        "minutes for a kernel's 108, nine for the 324 of a level's gemm.",
        epilog="Example: python -m gen sweep gemm --isa avx2 --set unroll=4,8 --set k=128,320 --tile 6x16,4x24",
    )
    command.add_argument(
        "name", metavar="KERNEL|FAMILY", help="a kernel's name as `list` prints it, or gemm, dot_f16, ..."
    )
    command.add_argument(
        "--isa", metavar="LEVELS", help=f"those the processor has by default; a kernel has its own: {choices()}"
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=V1,V2,...",
        help="values of an option (unroll, align, prefetch_b, ...) or of a parameter of what is timed (k, n, depth), "
        "in place of those that are tried otherwise; may be repeated",
    )
    command.add_argument("--tile", metavar="RxC,...", help="tiles in place of those that are tried otherwise")
    command.add_argument(
        "--seconds", type=_seconds, default=_SECONDS, metavar="S", help="time spent on a variant (%(default)g)"
    )
    command.add_argument(
        "--jobs",
        type=_jobs,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="processes that build (%(default)s)",
    )
    command.add_argument(
        "--out", type=Path, default=_OUT, metavar="FILE", help="where results are appended (%(default)s)"
    )
    command.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask cluster that measures instead, e.g. tcp://host:8786: each model of processor among its workers "
        "measures every variant; start one worker with one thread on each machine",
    )


def add_report(commands: Any) -> None:
    """The command `report`."""
    command = commands.add_parser(
        "report",
        help="tables and plots of sweeps",
        description="Prints the best variants by processor and level, and the levels beside each other; draws plots.",
        epilog="Example: python -m gen report build/sweep.jsonl --html build/sweep.html",
    )
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what `sweep` wrote")
    command.add_argument("--top", type=_jobs, default=5, metavar="N", help="variants shown of each group (%(default)s)")
    command.add_argument("--html", type=Path, metavar="FILE", help="write tables and plots to this file")
    command.add_argument("--png", type=Path, metavar="FILE", help="write the plots to this file")
    command.add_argument(
        "--axes",
        type=_axes,
        metavar="X,Y",
        help="the options of the heat maps, e.g. unroll,prefetch_b (those of the most influence by default)",
    )


def sweep(chosen: argparse.Namespace) -> None:
    """Runs the command `sweep`."""
    from gen.sweep import cluster, report, run
    from gen.sweep.records import Log, latest
    from gen.sweep.variants import parse_tiles, variants

    tiles = parse_tiles(chosen.tile) if chosen.tile else ()
    settings = dict(chosen.set)
    levels = parse_levels(chosen.isa) if chosen.isa else _levels(chosen.name, bool(chosen.scheduler))
    wanted = variants(chosen.name, levels, settings, tiles)
    with Log(chosen.out) as log:
        if log.corrupt:
            print(f"{chosen.out}: {report.skipped(log.corrupt)}")
        if chosen.scheduler:
            tally = cluster.sweep(wanted, log, chosen.seconds, chosen.scheduler)
        else:
            tally = run.sweep(wanted, log, chosen.seconds, chosen.jobs)
        print(tally.sentence(log))
        asked = {(variant.spec.name, variant.parameters) for variant in wanted}
        records = [r for r in latest(log.records) if (r.kernel, tuple(r.parameters.items())) in asked]
    for record in records:
        if record.status != "timed":
            print(f"{record.kernel}: {record.status}: {record.note}")
    for group in report.groups(records):
        print("\n".join(report.conclusion(group)))


def show_report(chosen: argparse.Namespace) -> None:
    """Runs the command `report`."""
    from rich.console import Console

    from gen.sweep import plot, report

    records, corrupt = report.gather(chosen.files)
    if corrupt:
        print(report.skipped(corrupt))
    console = Console()
    report.show(records, chosen.top, console if console.is_terminal else Console(width=120))
    if chosen.png:
        plot.write_png(records, chosen.axes, chosen.png)
    if chosen.html:
        plot.write_html(records, chosen.axes, chosen.top, chosen.html)


def _levels(name: str, elsewhere: bool) -> tuple[str, ...]:
    """The levels where none is named: the kernel's own, or this processor's."""
    from gen import isa, registry

    own = [spec.level for spec in registry.specs(isa.LEVELS) if spec.name == name]
    levels = tuple(own) or (tuple(isa.LEVELS) if elsewhere else native_levels())
    if not levels:
        raise SweepError(f"this processor has none of the levels that kernels exist for: {', '.join(isa.LEVELS)}")
    return levels


def _setting(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, values = text.partition("=")
    parts = values.split(",")
    if not name or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=V1,V2,... with numbers V")
    return name, tuple(dict.fromkeys(map(int, parts)))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0 and up to 3600")
    return seconds


def _jobs(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 1024")
    return int(text)


def _axes(text: str) -> tuple[str, str]:
    names: Sequence[str] = text.split(",")
    if len(names) != 2 or not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not two options with a comma between them")
    return names[0], names[1]
