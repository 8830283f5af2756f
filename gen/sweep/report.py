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
_NOISE = 0.005  # a share that another is ahead by no more than this is as good


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
    best, lines, unsurpassed = group.best, list[str](), list[Record]()
    for default in (record for record in group.records if record.default):
        of_tile = next(record for record in group.records if record.tile == default.tile)
        behind = list[str]()
        if _tiles_compete(best) and _behind(default, best) > _NOISE:
            behind.append(f"{_behind(default, best):.1%} behind the best")
        if _behind(default, of_tile) > _NOISE and (of_tile is not best or not behind):
            behind.append(f"{_behind(default, of_tile):.1%} behind the best of its tile, {of_tile.kernel}")
        if behind:
            lines.append(f"  {default.kernel}, a default, has {default.share:.1%}: {', '.join(behind)}")
        else:
            unsurpassed.append(default)
    if unsurpassed == [best]:
        lines.append("  that is a default")
    elif unsurpassed:
        one = len(unsurpassed) == 1
        of_tiles = "" if _tiles_compete(best) else f" of {'its tile' if one else 'their tiles'}"
        defaults = f"the default {unsurpassed[0].kernel}" if one else f"{len(unsurpassed)} defaults"
        lines.append(f"  no variant{of_tiles} is better than {defaults} by more than the noise, {_NOISE:.1%}")
    return [
        f"{group.title} on {group.processor}: the best of {len(group.records)} is {best.kernel}, "
        f"{best.share:.1%} of the {_peak_name(best)}, {best.rate_median:.1f} {best.unit}",
        *lines,
    ]


def _tiles_compete(record: Record) -> bool:
    """Whether one tile may take the place of another; others are kernels for other shapes."""
    return record.operation in ("gemm", "gemm16")


def _behind(record: Record, best: Record) -> float:
    return 1 - record.share / best.share


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
                *map(_percent, (record.share_best, record.quiet, record.contended)),
                *(f"{record.quiet_samples}/{record.samples}", error),
            )
    table.caption = (
        f"*: a default; shares of the {_peak_name(group.best)}; best: the highest rate by the highest peak; quiet, "
        "contended: medians of rate by peak, sample by sample, so that they may be a little above the best; -: too few "
        "samples; the bar, by which they are sorted: the quiet, or all where few are quiet"
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
    """A row for each group of a processor: its variants' rates and best share, the ratio to the level below."""
    table = Table(title=f"levels of {processor}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("operation")
    table.add_column("level", no_wrap=True)
    for name in ("variants", "median", "best", "unit", "share", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    below: dict[str, float] = {}
    for group in found:
        if group.processor != processor:
            continue
        rates = [record.rate_median or 0.0 for record in group.records]
        median, rate, other = statistics.median(rates), max(rates), below.get(group.title)
        below[group.title] = rate
        table.add_row(
            *(group.title, group.level, str(len(group.records)), f"{median:.1f}", f"{rate:.1f}", group.best.unit),
            *(_percent(group.best.share), "-" if other is None else f"{rate / other:.2f}"),
        )
    table.caption = (
        "median, best: of the variants' median rates; share: the largest, of whichever variant; ratio: of the best "
        "to that of the level below"
    )
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
