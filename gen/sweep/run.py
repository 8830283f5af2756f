"""A sweep from its variants to its records, here or on a cluster."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from gen.native import compiler
from gen.sweep import machine
from gen.sweep.errors import Interrupted, SweepError
from gen.sweep.measure import failed
from gen.sweep.records import FAILED, TIMED, WRONG, Log, Record
from gen.sweep.variants import Variant
from gen.sweep.worker import workers

_EVERY = 30  # seconds between lines of progress where stderr is no terminal
_BATCH = 8  # variants that are built before they are timed, for each process that builds


@dataclass
class Tally:
    """What became of a sweep's variants."""

    measured: int = 0
    skipped: int = 0
    impossible: int = 0
    reason: str = ""  # why the first one of them cannot be made
    wrong: int = 0
    failed: int = 0
    failure: str = ""  # of the first one

    def add(self, record: Record) -> None:
        """Counts a variant that was measured."""
        self.measured += record.status == TIMED
        self.wrong += record.status == WRONG
        if record.status == FAILED:
            self.fail(record.note)

    def fail(self, why: str) -> None:
        """Counts a variant that failed."""
        self.failed += 1
        self.failure = self.failure or why

    def sentence(self, log: Log) -> str:
        """All of it."""
        parts = [f"{self.measured} variants timed"]
        parts += [f"{self.skipped} like ones recorded before"] if self.skipped else []
        parts += [f"{self.wrong} wrong"] if self.wrong else []
        parts += [f"{self.failed} failed ({self.failure})"] if self.failed else []
        parts += [f"{self.impossible} cannot be made ({self.reason})"] if self.impossible else []
        return f"{', '.join(parts)}: {log.path}"


@dataclass
class Bar:
    """The progress that is shown: a bar, or lines where that is disabled."""

    progress: Progress
    task: TaskID
    said: float = field(default_factory=time.monotonic)  # when the last line was printed

    def advance(self, text: str) -> None:
        """One variant further."""
        self.progress.update(self.task, advance=1, description=text)
        self.progress.refresh()
        if self.progress.disable and time.monotonic() - self.said >= _EVERY:
            self.said = time.monotonic()
            task = self.progress.tasks[0]
            left = f", about {task.time_remaining:.0f} s left" if task.time_remaining else ""
            print(f"{task.completed:.0f} of {task.total:.0f} variants{left}", file=sys.stderr, flush=True)


@contextmanager
def bar(total: int) -> Iterator[Bar]:
    """A progress bar on stderr, or lines where that is no terminal.

    Either is drawn when a variant is done and not by a thread, which would disturb.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal) as progress:
        yield Bar(progress, progress.add_task("building", total=total))


@contextmanager
def interruptible(log: Log) -> Iterator[None]:
    """Says what an interrupt leaves."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; {len(log.records)} results are in {log.path}, and the same command goes on"
        ) from None


def sweep(variants: Sequence[Variant], log: Log, seconds: float, jobs: int) -> Tally:
    """Measures the variants that the log does not have, on this machine."""
    compiler.find()  # before anything is started
    processor, levels = machine.describe()
    lacking = sorted({variant.spec.level for variant in variants} - set(levels))
    if lacking:
        raise SweepError(f"this processor does not have level {lacking[0]}, only {', '.join(levels) or 'none'}")
    tally = Tally()
    with (
        interruptible(log),
        tempfile.TemporaryDirectory(prefix="sdgen-sweep-") as folder,
        workers(jobs, Path(folder)) as (builders, measurer),
        bar(len(variants)) as progress,
    ):
        # Nothing is built while something is timed.
        for start in range(0, len(variants), _BATCH * jobs):
            for built in builders.build(variants[start : start + _BATCH * jobs], log.done(processor)):
                if built.broken:
                    record = failed(built, seconds, built.note)
                    log.append(record)
                    tally.add(record)
                elif built.shared is None:
                    count(tally, built.note)
                elif built.key in log.done(processor):
                    tally.skipped += 1  # the same text as a variant before
                else:
                    record = measurer.measure(built, seconds)
                    log.append(record)
                    tally.add(record)
                if built.shared:
                    shutil.rmtree(built.shared.parent)
                progress.advance(built.variant.label)
    if tally.impossible == len(variants):
        raise SweepError(f"none of the variants can be made: {tally.reason}")
    return tally


def count(tally: Tally, note: str) -> None:
    """Counts a variant that was not measured: because it cannot be made, or because it was before."""
    if note:
        tally.impossible += 1
        tally.reason = tally.reason or note
    else:
        tally.skipped += 1
