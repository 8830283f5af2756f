"""The command line: `python -m gen`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gen import predict, registry, tune
from gen.dsl import DslError, Kernel
from gen.errors import UserError, absent
from gen.family import Family
from gen.isa import UnknownLevelError, choices, parse_levels
from gen.sweep import commands as measuring
from gen.sweep.errors import Interrupted

_ISA_HELP = f"comma-separated; {choices()}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gen",
        description="Writes the micro-kernels: .S files, kernels.h, kernels.inc, manifest.json and kernels.d.",
        epilog="Example: python -m gen --isa avx2 --out build/kernels/",
    )
    parser.add_argument(
        "--isa", default="all", metavar="LEVELS", help=f"levels to write kernels for (all by default): {_ISA_HELP}"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder to write into, made where it is missing: NAME.S for each kernel and, beside them, kernels.h, "
        "kernels.inc, winograd.h, manifest.json and kernels.d; what else lies there is left alone",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    listing = commands.add_parser("list", help="list the kernels", description="Lists the kernels.")
    listing.add_argument("--isa", default=argparse.SUPPRESS, metavar="LEVELS", help=f"levels to list: {_ISA_HELP}")
    listing.add_argument(
        "--json",
        action="store_true",
        help="as JSON, with everything that is known of each kernel; they are built for it, which takes some seconds",
    )

    show = commands.add_parser("show", help="print a kernel's assembly", description="Prints a kernel's assembly.")
    show.add_argument("name", help="a kernel's name, as `list` prints it")

    prediction = commands.add_parser(
        "predict",
        help="simulate a kernel's inner loop",
        description="A kernel's inner loop by llvm-mca's and OSACA's models of processors: a help, not a measurement.",
    )
    prediction.add_argument("name", help="a kernel's name, as `list` prints it")
    prediction.add_argument(
        "--processor",
        default=",".join(predict.MODELS),
        metavar="NAMES",
        help=f"comma-separated, all by default: {', '.join(predict.MODELS)}",
    )
    prediction.add_argument("--json", action="store_true", help="as JSON")
    tune.add_command(commands)
    for command in (show, prediction):
        command.add_argument(
            "--set",
            action="append",
            default=[],
            type=_option,
            metavar="OPTION=N",
            help="an option other than the default, e.g. unroll=8; may be repeated",
        )
    measuring.add_sweep(commands)
    measuring.add_report(commands)
    return parser


def _option(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not OPTION=N with a number N")
    return name, int(value)


def _list(levels: Sequence[str], as_json: bool) -> None:
    specs = registry.specs(levels)
    if as_json:
        print(json.dumps([registry.describe(registry.build(spec)) for spec in specs], indent=1))
    elif sys.stdout.isatty():
        console = Console()
        console.print(_families(levels))
        table = Table("name", "operation", "types", "tile", "level", "needs beside it")
        table.columns[0].no_wrap = True
        for spec in specs:
            tile, extensions = "x".join(map(str, spec.tile)), " ".join(spec.extensions)
            table.add_row(spec.name, spec.operation, " ".join(spec.types), tile, spec.level, extensions)
        console.print(table)
    else:
        for spec in specs:
            print(spec.name)


def _families(levels: Sequence[str]) -> Table:
    """A line on what each family's kernels do; families that are made alike share one."""
    found: dict[str, list[Family]] = {}
    for family in registry.FAMILIES:
        if any(spec.level in levels for spec in family.kernels):
            found.setdefault(family.summary, []).append(family)
    table = Table("kernels", "", "what they do")
    table.columns[1].justify = "right"
    for summary, families in found.items():
        count = sum(spec.level in levels for family in families for spec in family.kernels)
        table.add_row(", ".join(family.name for family in families), str(count), summary)
    return table


def _predict(kernel: Kernel, processors: Sequence[str], as_json: bool) -> None:
    mca, osaca = predict.find_mca(), predict.find_osaca()
    pairs = zip(
        predict.predict(kernel, processors, mca),
        predict.predict_by_osaca(kernel, processors, osaca),
        strict=True,
    )
    predictions = [prediction for pair in pairs for prediction in pair]
    if as_json:
        print(json.dumps([asdict(prediction) for prediction in predictions], indent=1))
        return
    loop = f"the loop {kernel.loops[0].role!r} of {kernel.spec.name}"
    print(f"How fast models of processors, those of {mca} and of OSACA, run {loop}")
    print("cycles: of one pass; share: of the most multiply-adds that the processor can make in so many cycles")
    print(f"{'processor':<15}{'tool':<8}{'cycles':>8}{'share':>8}  note")
    for prediction in predictions:
        cycles = "-" if prediction.cycles is None else f"{prediction.cycles:.1f}"
        share = "-" if prediction.share is None else f"{prediction.share:.1%}"
        print(f"{prediction.processor:<15}{prediction.tool:<8}{cycles:>8}{share:>8}  {prediction.note}".rstrip())
    if osaca is None:
        print(absent("The lines of OSACA need", "osaca"))


def _written(changed: Sequence[Path]) -> str:
    """What was written into a folder where some of it changed."""
    kernels = sum(path.suffix == ".S" for path in changed)
    names = [f"{kernels} kernels (NAME.S)"] if kernels else []
    names += [path.name for path in changed if path.suffix != ".S"]
    return f"{', '.join(names)} and {registry.DEPFILE} written"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit status: 2 where something asked for cannot be, 130 after an interrupt."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "list":
            _list(parse_levels(chosen.isa), chosen.json)
        elif chosen.command == "show":
            print(registry.assembly(registry.build(registry.find(chosen.name, dict(chosen.set)))), end="")
        elif chosen.command == "predict":
            kernel = registry.build(registry.find(chosen.name, dict(chosen.set)))
            _predict(kernel, chosen.processor.split(","), chosen.json)
        elif chosen.command == "sweep":
            measuring.sweep(chosen)
        elif chosen.command == "report":
            measuring.show_report(chosen)
        elif chosen.command == "tune":
            return tune.run(chosen)
        elif chosen.out is None:
            commands = "list, show, predict, sweep, report, tune"
            parser.error(f"--out DIR is needed to write kernels (or a command: {commands})")
        else:
            changed = registry.generate(parse_levels(chosen.isa), chosen.out)
            print(f"{chosen.out}: {_written(changed) if changed else 'nothing changed'}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever reads has enough, as `head` does
        return 0
    except (Interrupted, KeyboardInterrupt) as error:
        print(f"python -m gen: {str(error) or 'interrupted'}", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        print(f"python -m gen: {absent(f'{chosen.command} needs', error.name or 'a package')}", file=sys.stderr)
        return 2
    except (
        *(UnknownLevelError, registry.UnknownKernelError, predict.PredictionError, UserError),
        *(DslError, OSError),
    ) as error:
        print(f"python -m gen: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
