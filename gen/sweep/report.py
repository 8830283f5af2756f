"""What records say: the best variants, the levels beside each other, how far the defaults are from the best."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.bar import Bar
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from gen.isa import LEVELS
from gen.sweep.errors import SweepError
from gen.sweep.records import FAILED, TIMED, WRONG, Record, latest, read

_BAR = 16  # characters


@dataclass(frozen=True)
class Group:
    """What is compared: variants of one operation, with one set of parameters, of a level, on one processor."""

    processor: str
    level: str
    operation: str
    parameters: str
    records: tuple[Record, ...]  # timed, the best first

    @property
    def best(self) -> Record:
        """The variant of the largest share."""
        return self.records[0]

    @property
    def title(self) -> str:
        """Its operation and parameters."""
        return f"{self.operation} {self.parameters}".strip()


def gather(paths: Iterable[Path]) -> tuple[list[Record], int]:
    """The records of files, and how many lines were none; raises SweepError for a file that holds none."""
    found: list[Record] = []
    corrupt = 0
    for path in paths:
        records, skipped = read(path)
        if not records:
            what = f": {_lines(skipped)} none" if skipped else ", it is empty"
            raise SweepError(f"{path} holds no results of a sweep{what}")
        found += records
        corrupt += skipped
    return latest(found), corrupt


def _lines(count: int) -> str:
    return "1 line is" if count == 1 else f"{count} lines are"


def skipped(count: int) -> str:
    """The sentence on lines that were skipped."""
    return f"{_lines(count)} no result of a sweep of this version, and skipped"


def groups(records: Iterable[Record]) -> list[Group]:
    """What is compared with what: by processor, then by operation, then by level, lowest first."""
    found: dict[tuple[str, str, str, str], list[Record]] = {}
    for record in records:
        if record.status == TIMED:
            found.setdefault(record.group, []).append(record)
    ranks = {level: rank for rank, level in enumerate(LEVELS)}
    keys = sorted(found, key=lambda key: (key[0], key[2:], ranks.get(key[1], len(ranks)), key[1]))
    return [Group(*key, tuple(sorted(found[key], key=lambda r: -r.share))) for key in keys]


def conclusion(group: Group) -> list[str]:
    """The best, and how far the defaults are from it, in sentences."""
    best, lines, unsurpassed = group.best, list[str](), 0
    for default in (record for record in group.records if record.default):
        of_tile = next(record for record in group.records if record.tile == default.tile)
        behind = [f"{_behind(default, best)} behind the best"] if _tiles_compete(best) and default is not best else []
        if of_tile is not default and (of_tile is not best or not behind):
            behind.append(f"{_behind(default, of_tile)} behind the best of its tile, {of_tile.kernel}")
        if behind:
            lines.append(f"  {default.kernel}, a default, has {default.share:.1%}: {', '.join(behind)}")
        else:
            unsurpassed += 1
    if unsurpassed:
        what = "that one" if _tiles_compete(best) else "the best of its tile"
        lines.append(
            f"  {unsurpassed} defaults are the best of their tiles" if unsurpassed > 1 else f"  a default is {what}"
        )
    return [
        f"{group.title} on {group.processor}: the best of {len(group.records)} is {best.kernel}, "
        f"{best.share:.1%} of the {_peak_name(best)}, {best.rate_median:.1f} {best.unit}",
        *lines,
    ]


def _tiles_compete(record: Record) -> bool:
    """Whether one tile may take the place of another; others are kernels for other shapes."""
    return record.operation in ("gemm", "gemm16")


def _behind(record: Record, best: Record) -> str:
    return f"{1 - record.share / best.share:.1%}"


def _peak_name(record: Record) -> str:
    return "peak" if record.unit.startswith("GFLOP") else "rate of copies"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def best_table(group: Group, top: int) -> Table:
    """The best variants of a group, the best first, and the defaults wherever they stand; by what they differ in."""
    table = Table(title=f"{group.title}, {group.level}, {group.processor}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("")
    table.add_column("tile", no_wrap=True)
    table.add_column("options")
    table.add_column("share", no_wrap=True)
    for name in (group.best.unit, "best", "quiet", "contended", "samples", "error"):
        table.add_column(name, justify="right", no_wrap=True)
    options = _differing(group)
    for place, record in enumerate(group.records, 1):
        if place <= top or record.default:
            error = "-" if record.error is None else f"{record.error:.1e}"
            table.add_row(
                *(str(place), record.shape, _label(record, options), Bar(1, 0, record.share, width=_BAR)),
                f"{record.rate_median:.1f}",
                *map(_percent, (record.share_best, record.share_quiet, record.share_contended)),
                *(f"{record.quiet_samples}/{record.samples}", error),
            )
    table.caption = (
        f"*: a default; shares of the {_peak_name(group.best)}: the best sample, the medians of the quiet and of the "
        "others; the bar, by which they are sorted: the quiet, or all where few are quiet"
    )
    table.caption_justify = "left"
    return table


def _differing(group: Group) -> list[str]:
    """The options that not all of a group's variants have the same value of."""
    names = dict.fromkeys(name for record in group.records for name in record.options)
    return [name for name in names if len({record.options.get(name) for record in group.records}) > 1]


def _label(record: Record, options: Sequence[str]) -> str:
    """What tells a variant from the others of its tile, and whether it is a default."""
    parts = [f"{name} {record.options[name]}" for name in options if name in record.options]
    return " ".join((", ".join(parts), "*" * record.default)).strip()


def summary_table(found: Sequence[Group], processor: str) -> Table:
    """A row for each group of a processor: the median rate of its variants, the best, its ratio to the level below."""
    table = Table(title=f"levels of {processor}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("operation")
    table.add_column("level", no_wrap=True)
    for name in ("variants", "median", "best", "unit", "share", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    below: dict[str, float] = {}
    for group in found:
        if group.processor != processor:
            continue
        rate, other = group.best.rate_median or 0.0, below.get(group.title)
        below[group.title] = rate
        median = statistics.median(record.rate_median or 0.0 for record in group.records)
        table.add_row(
            *(group.title, group.level, str(len(group.records)), f"{median:.1f}", f"{rate:.1f}", group.best.unit),
            *(_percent(group.best.share), "-" if other is None else f"{rate / other:.2f}"),
        )
    table.caption = "median, best: of the variants' median rates; ratio: of the best to that of the level below"
    table.caption_justify = "left"
    return table


def show(records: Sequence[Record], top: int, console: Console) -> None:
    """Prints the tables; raises SweepError where nothing was timed."""
    found = groups(records)
    if not found:
        raise SweepError(f"none of the {len(records)} variants was timed: they are wrong or failed")
    for group in found:
        console.print(best_table(group, top))
    for processor in dict.fromkeys(group.processor for group in found):
        console.print(summary_table(found, processor))
    for status, what in ((WRONG, "is wrong"), (FAILED, "failed")):
        for record in records:
            if record.status == status:
                console.print(f"{record.kernel} {what}: {record.note}", highlight=False)
