"""What sweeps write down: a line of JSON for each variant, appended when it is measured."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from gen.sweep.errors import SweepError

VERSION = 1

TIMED, WRONG, FAILED = "timed", "wrong", "failed"

_HANDFUL = 5  # samples, of fewer of which a median means nothing


@dataclass(frozen=True)
class Record:
    """A variant as it was measured.

    `key` stands for the kernel's text and the parameters. Rates are in `unit`, GFLOP/s or GB/s, and shares are those of
    the peak, a loop of multiply-adds, or of copies, that was measured in turn with it: the best is the highest rate by
    the highest peak, the others are medians, of all samples, of the quiet and of the contended ones. Samples count only
    where nothing disturbed the peak. Numbers are None where there is none.
    """

    version: int
    key: str
    status: str  # timed; wrong: not timed; failed: it crashed
    note: str
    kernel: str
    operation: str
    types: list[str]
    tile: list[int]
    level: str
    options: dict[str, int]
    parameters: dict[str, int]
    default: bool  # as the runtime has it
    processor: str
    error: float | None
    error_limit: float | None
    unit: str
    rate: float | None  # of the best sample
    rate_median: float | None
    peak: float | None
    share_best: float | None
    share_median: float | None
    share_quiet: float | None
    share_contended: float | None
    samples: int
    quiet_samples: int
    seconds: float
    time: str

    @property
    def share(self) -> float:
        """By which variants are compared: the median of the quiet samples, if there are enough, else of all."""
        share = self.share_median if self.quiet is None else self.quiet
        return math.nan if share is None else share

    @property
    def quiet(self) -> float | None:
        """The median share of the quiet samples, None where they are few."""
        return self.share_quiet if self.quiet_samples >= _HANDFUL else None

    @property
    def contended(self) -> float | None:
        """The median share of the others, None where they are few."""
        return self.share_contended if self.samples - self.quiet_samples >= _HANDFUL else None

    @property
    def group(self) -> tuple[str, str, str, str]:
        """What variants are compared within: processor, level, operation with types, parameters."""
        parameters = " ".join(f"{name}={value}" for name, value in self.parameters.items())
        return self.processor, self.level, "_".join((self.operation, *self.types)), parameters

    @property
    def shape(self) -> str:
        """The tile, as the name has it."""
        return "x".join(map(str, self.tile))

    def line(self) -> str:
        """The record as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"


_KINDS: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "str": (str,),
    "bool": (bool,),
    "float": (float, int),
    "float | None": (float, int, type(None)),
    "list[str]": (list,),
    "list[int]": (list,),
    "dict[str, int]": (dict,),
}


def parse(line: str) -> Record | None:
    """The record of a line, None where the line is none of this version."""
    try:
        values = json.loads(line)
    except ValueError:
        return None
    if not isinstance(values, dict) or values.get("version") != VERSION:
        return None
    if values.keys() != {field.name for field in fields(Record)}:
        return None
    if not all(isinstance(values[field.name], _KINDS[str(field.type)]) for field in fields(Record)):
        return None
    numbers = [*values["options"].values(), *values["parameters"].values(), *values["tile"]]
    if not all(type(number) is int for number in numbers) or not all(isinstance(kind, str) for kind in values["types"]):
        return None
    if values["status"] not in (TIMED, WRONG, FAILED):
        return None
    shares = ("rate", "rate_median", "peak", "share_best", "share_median")
    if values["status"] == TIMED and not all((values[name] or 0) > 0 for name in shares):
        return None
    return Record(**values)


def read(path: Path) -> tuple[list[Record], int]:
    """The records of a file, and how many lines are none."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError as error:
        raise SweepError(f"{path} cannot be read: {error.strerror}") from error
    lines = [line for line in text.split("\n") if line.strip()]
    found = [record for record in map(parse, lines) if record]
    return found, len(lines) - len(found)


def latest(records: Iterable[Record]) -> list[Record]:
    """Of records of the same variant and processor the last one."""
    return list({(record.processor, record.key): record for record in records}.values())


class Log:
    """A file that records are appended to, in one piece each; what it held stays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        self.corrupt = 0
        if path.exists():
            self.records, self.corrupt = read(path)
            if self.corrupt and not self.records:
                raise SweepError(f"{path} holds no results of a sweep and is left as it is; name another file by --out")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise SweepError(f"{path} cannot be written: {error.strerror}") from error
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # whoever wrote the last line was stopped in it

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        empty = self.path.is_file() and not os.fstat(self._file).st_size
        os.close(self._file)
        if empty:
            self.path.unlink()

    def done(self, processor: str) -> frozenset[str]:
        """The keys of what was measured on a processor; what failed is tried again."""
        return frozenset(r.key for r in self.records if r.processor == processor and r.status != FAILED)

    def append(self, record: Record) -> None:
        """Adds a record: a single write, which no interrupt divides."""
        line = record.line().encode()
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise SweepError(f"{self.path} cannot be written: {error.strerror}") from error
        if written != len(line):
            raise SweepError(f"{self.path} cannot be written: no space is left")
        self.records.append(record)


def described(record: Record) -> dict[str, Any]:
    """What identifies a variant, for tables: tile and options."""
    return {"tile": record.shape, **record.options}
