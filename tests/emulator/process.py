"""A machine in a process of its own, and the two ends of the pipe to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.emulator.image import Image
from tests.emulator.machine import Machine, Outcome
from tests.emulator.models import MODELS

REPOSITORY = Path(__file__).resolve().parent.parent.parent
_SECONDS = 120  # that a call may take: far more than any of ours does


class EmulatorError(Exception):
    """The emulator cannot be started, or is gone."""


class Emulator:
    """An emulated processor of a model; a context manager that ends it."""

    def __init__(self, model: str) -> None:
        if model not in MODELS:
            raise EmulatorError(f"emulator: there is no model {model!r}; there are {', '.join(MODELS)}")
        self.model = model
        self.images: list[Image] = []
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, model, str(theirs.fileno())],
                cwd=REPOSITORY,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._pipe = Connection(ours.detach())
        self._receive()  # that it is ready, or why not

    def load(self, image: Image) -> None:
        """Places an image; it stays."""
        self._ask("load", image)
        self.images.append(image)

    def call(
        self,
        function: int,
        threads: Sequence[Sequence[int]] = ((),),
        slow: int = -1,
        blocks: Sequence[tuple[int, bytes]] = (),
    ) -> Outcome:
        """Calls a function by the System V ABI as so many threads: see `Machine.call`."""
        outcome: Outcome = self._ask("call", function, tuple(map(tuple, threads)), slow, tuple(blocks))
        return outcome

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            self._pipe.send((method, arguments))
        except OSError as error:
            raise EmulatorError(f"emulator of {self.model}: its process is gone") from error
        return self._receive()

    def _receive(self) -> Any:
        if not self._pipe.poll(_SECONDS):
            self.close()
            raise EmulatorError(f"emulator of {self.model}: no answer in {_SECONDS} s; does the code called ever end?")
        try:
            answer, error = self._pipe.recv()
        except (EOFError, OSError) as gone:
            self.close()
            status = self._process.returncode
            raise EmulatorError(f"emulator of {self.model}: its process ended with status {status}") from gone
        if error:
            raise EmulatorError(error)
        return answer

    def close(self) -> None:
        """Ends the process."""
        self._pipe.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Emulator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _serve(model: str, pipe: Connection) -> None:
    """Answers what `Emulator` asks until it closes its end."""
    try:
        machine = Machine(model)
    except Exception as error:
        pipe.send((None, f"{type(error).__name__}: {error}"))
        return
    pipe.send((None, ""))
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((getattr(machine, method)(*arguments), ""))
        except Exception as error:
            pipe.send((None, f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    try:
        _serve(sys.argv[1], Connection(int(sys.argv[2])))
    finally:
        # At a usual end Bochs prints of what it leaks, and may crash.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
