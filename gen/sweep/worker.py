"""Processes that build variants, and one that measures them: a kernel that crashes takes none but that one along."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from gen.errors import UserError
from gen.sweep.errors import SweepError
from gen.sweep.measure import Built, build_variant, failed, measure
from gen.sweep.records import Record
from gen.sweep.variants import Variant

# From a process that has imported all they need and has no threads, whose locks a fork would inherit.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])


def _begin(folder: Path) -> None:
    """What a process begins with: interrupts are the parent's, and what it leaves lies in a folder that is removed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = str(folder)


class Builders:
    """Processes that build variants side by side."""

    def __init__(self, jobs: int, folder: Path) -> None:
        self._folder = folder
        self._pool = ProcessPoolExecutor(jobs, _CONTEXT, _begin, (folder,))

    def build(self, variants: Sequence[Variant], done: Collection[str]) -> list[Built]:
        """The variants, built in a folder of their own."""
        try:
            return list(self._pool.map(partial(build_variant, done=done, folder=self._folder), variants))
        except BrokenProcessPool as error:
            raise SweepError("a process that builds variants ended unexpectedly") from error

    def close(self) -> None:
        """Ends them without what is not begun."""
        self._pool.shutdown(cancel_futures=True)


class Measurer:
    """The process that measures; started when it is needed, and anew where a kernel ends it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: tuple[ForkServerProcess, Connection] | None = None

    def _start(self) -> tuple[ForkServerProcess, Connection]:
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(theirs, self._folder), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def measure(self, built: Built, seconds: float) -> Record:
        """The variant's record; raises SweepError for what concerns all variants."""
        self._running = process, connection = self._running or self._start()
        try:
            connection.send((built, seconds))
            answer = connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            process.join()
            code = process.exitcode or 0
            self.close()
            how = signal.Signals(-code).name if code < 0 else f"status {code}"
            return failed(built, seconds, f"ended the process by {how}")
        if isinstance(answer, str):
            raise SweepError(answer)
        assert isinstance(answer, Record)
        return answer

    def close(self) -> None:
        """Ends the process, whatever it does."""
        if self._running:
            process, connection = self._running
            process.terminate()
            process.join()
            connection.close()
            self._running = None


def _serve(connection: Connection, folder: Path) -> None:
    _begin(folder)
    while True:
        try:
            built, seconds = connection.recv()
        except EOFError:
            return
        try:
            connection.send(measure(built, seconds))
        except UserError as error:
            connection.send(str(error))


@contextmanager
def workers(jobs: int, folder: Path) -> Iterator[tuple[Builders, Measurer]]:
    """The processes, which end with the block."""
    builders, measurer = Builders(jobs, folder), Measurer(folder)
    try:
        yield builders, measurer
    finally:
        measurer.close()
        builders.close()
