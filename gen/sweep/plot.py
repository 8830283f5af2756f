"""Plots of records: bars of the best variants, and heat maps of two options against each other."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from gen.errors import absent
from gen.sweep import report
from gen.sweep.errors import SweepError
from gen.sweep.records import Record, described
from gen.sweep.report import Group

_INCH = (4.6, 3.4)  # of a plot, at least
_BAR = 0.3  # inches of a bar


def write_png(records: Sequence[Record], axes: tuple[str, str] | None, path: Path) -> None:
    """Writes the plots as a picture."""
    _write(path, _png(records, axes))


def write_html(records: Sequence[Record], axes: tuple[str, str] | None, top: int, path: Path) -> None:
    """Writes tables and plots as one file that needs no other."""
    console = Console(record=True, file=io.StringIO(), width=150)
    report.show(records, top, console)
    tables = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    picture = base64.b64encode(_png(records, axes)).decode()
    title = "Sweep of " + ", ".join(sorted({group.operation for group in report.groups(records)}))
    _write(
        path,
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        "<style>body { font-family: sans-serif; margin: 2em } img { max-width: 100% } pre { overflow-x: auto }</style>"
        f'</head><body>\n<h1>{html.escape(title)}</h1>\n<img alt="Plots" src="data:image/png;base64,{picture}">\n'
        f"{tables}\n</body></html>\n".encode(),
    )


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise SweepError(f"{path} cannot be written: {error.strerror}") from error


def _png(records: Sequence[Record], axes: tuple[str, str] | None) -> bytes:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SweepError(absent("plots need", error.name or "matplotlib")) from error
    found = report.groups(records)
    if not found:
        raise SweepError("nothing was timed, so there is nothing to plot")
    maps = [(group, pair) for group in found if (pair := axes or widest(group))]
    for group, pair in maps:
        unknown = set(pair) - described(group.best).keys()
        if unknown:
            there = ", ".join(described(group.best))
            raise SweepError(f"--axes: {group.operation} has no option {min(unknown)!r}; there are: {there}")
    columns = min(3, 1 + len(maps))
    rows = math.ceil((1 + len(maps)) / columns)
    tiles = sum(len({record.shape for record in group.records}) for group in found)
    heights = [max(_INCH[1], _BAR * tiles), *[_INCH[1]] * (rows - 1)]
    figure = Figure(figsize=(_INCH[0] * columns, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).ravel()
    _bars(places[0], found)
    for place, (group, pair) in zip(places[1:], maps, strict=False):
        _heat_map(place, group, pair)
    for place in places[1 + len(maps) :]:
        place.set_axis_off()
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    return picture.getvalue()


def widest(group: Group) -> tuple[str, str] | None:
    """The two options whose values' best shares are furthest apart; None where there are not two."""

    def influence(name: str) -> float:
        shares = [max(shares) for shares in _by(group, name).values()]
        return max(shares) - min(shares)

    names = [name for name in described(group.best) if len(_by(group, name)) > 1]
    ranked = sorted(names, key=influence, reverse=True)
    return (ranked[0], ranked[1]) if len(ranked) > 1 else None


def _by(group: Group, name: str) -> dict[Any, list[float]]:
    """The shares of a group by the value of an option."""
    found: dict[Any, list[float]] = {}
    for record in group.records:
        found.setdefault(described(record)[name], []).append(record.share)
    return found


def _bars(place: Any, found: Sequence[Group]) -> None:
    """The best variant of each tile as a share of the peak, processors and levels side by side."""
    bars: list[tuple[str, float, float]] = []
    for group in found:
        tiles: dict[str, Record] = {}
        for record in group.records:
            tiles.setdefault(record.shape, record)
        for shape, record in tiles.items():
            rate = f"{record.rate_median:.0f} {record.unit}"
            label = " ".join(part for part in (group.operation, shape, group.level, group.parameters) if part)
            many = len({other.processor for other in found}) > 1
            bars.append(
                (f"{label}\n{group.processor if many else ''} {rate}".strip(), record.share, record.share_best or 0)
            )
    positions = range(len(bars))
    place.barh(positions, [bar[2] for bar in bars], color="#c9d8ea", label="best sample")
    place.barh(positions, [bar[1] for bar in bars], height=0.5, color="#2f6db3", label="median, quiet")
    place.set_yticks(positions, [bar[0] for bar in bars], fontsize=6)
    place.invert_yaxis()
    place.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    place.axvline(1, color="black", linewidth=0.8)
    place.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2)
    place.set_title("the best of each tile, share of the peak", fontsize=8)
    place.tick_params(axis="x", labelsize=7)


def _heat_map(place: Any, group: Group, pair: tuple[str, str]) -> None:
    """The best share at each pair of values, over all that the other options are."""
    across, down = (sorted(_by(group, name), key=_order) for name in pair)
    best: dict[tuple[Any, Any], float] = {}
    for record in group.records:
        values = described(record)
        at = values[pair[1]], values[pair[0]]
        best[at] = max(best.get(at, 0.0), record.share)
    shares = [[best.get((y, x), math.nan) for x in across] for y in down]
    image = place.imshow(shares, aspect="auto", cmap="viridis")
    image.set_clim(min(best.values()), max(best.values()))
    middle = (min(best.values()) + max(best.values())) / 2
    for (y, x), share in best.items():
        colour = "black" if share > middle else "white"
        place.text(across.index(x), down.index(y), f"{share:.1%}", ha="center", va="center", fontsize=6, color=colour)
    place.set_xticks(range(len(across)), across, fontsize=7)
    place.set_yticks(range(len(down)), down, fontsize=7)
    place.set_xlabel(pair[0], fontsize=7)
    place.set_ylabel(pair[1], fontsize=7)
    place.set_title(f"{group.title}, {group.level}\n{group.processor}", fontsize=7)


def _order(value: Any) -> tuple[int, ...]:
    """Values in the order of their numbers, those of a tile one by one."""
    return tuple(int(part) for part in str(value).split("x") if part)
