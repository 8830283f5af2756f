"""Kernels and operations of the built library, called on an emulated processor.

The library's image and every array have the same addresses there as in this process, so that the tests, the structures
and the table of kernels are those of the native runs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import Structure
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.emulator.image import Image, load
from tests.emulator.machine import BARRIER
from tests.emulator.process import Emulator
from tests.emulator.toolchain import BUILD, HERE, freestanding
from tests.guarded import Broken, Fault, Flush, Guards, bytes_at, release

# Anywhere that neither this process nor the library is.
STUBS = 0x1000_0000_0000


@functools.cache
def library() -> tuple[Image, Image]:
    """libsdgen.so at the addresses that it has in this process, and what it imports."""
    options = ("-O1", "-fno-tree-loop-distribute-patterns")
    stubs = load(freestanding(BUILD / "stubs.so", [HERE / "stubs.c"], *options), STUBS)
    path = native.LIBRARIES / "libsdgen.so"
    base = native.function_address("sdgen_kernels") - load(path, 0).symbols["sdgen_kernels"]
    return load(path, base, stubs.symbols), stubs


def load_library(emulator: Emulator) -> None:
    """Places the library in an emulator's memory."""
    for image in library():
        emulator.load(image)


class EmulatedGuards(Guards):
    """The arrays of one call on an emulated processor, in whose memory there is nothing beside them."""

    def __init__(self, flush: Flush, emulator: Emulator) -> None:
        super().__init__(flush)
        self.emulator = emulator

    def call(self, what: str, function: int, *arguments: int) -> None:
        self.team(what, function, [arguments])

    def team(self, what: str, function: int, threads: Sequence[Sequence[int]], slow: int = -1) -> None:
        """Calls the function as so many threads, each with its arguments. The thread `slow` (-1: none) runs only while
        no other can."""
        memory = [(block.region, bytes_at(block.region, block.region_size)) for block in self.blocks]
        before = [(region, values.tobytes()) for region, values in memory]
        outcome = self.emulator.call(function, threads, slow, before)
        what = f"{what} on {self.emulator.model}"
        if outcome.fault:
            address = outcome.fault.address
            raise Fault(f"{what}: {outcome.fault.describe(None if address is None else self.place(address))}")
        for (_, values), after in zip(memory, outcome.blocks, strict=True):
            values[:] = np.frombuffer(after, np.uint8)
        if outcome.broken:
            raise Broken(f"{what}: not restored or not kept: {', '.join(outcome.broken)}")
        self.check(what)

    def operate(
        self, what: str, function: int, plan: Structure, op: Structure, work: NDArray[Any], threads: int, slow: int
    ) -> None:
        barrier = None if threads == 1 else BARRIER
        queue = self.copy("queue", np.zeros(native.QUEUE_SIZE // 8, np.int64))
        teams = [
            native.Team(ith, threads, queue.ctypes.data, work.ctypes.data, work.nbytes, barrier, None)
            for ith in range(threads)
        ]
        plan_address, op_address, *team_addresses = (
            self.copy(type(structure).__name__, np.frombuffer(bytes(structure), np.uint8)).ctypes.data
            for structure in (plan, op, *teams)
        )
        self.team(what, function, [(plan_address, op_address, team) for team in team_addresses], slow)
        if queue.any():
            raise Broken(f"{what}: not restored or not kept: queue")


@contextmanager
def emulated_guards(flush: Flush, emulator: Emulator) -> Iterator[EmulatedGuards]:
    """Arrays that are gone when the block ends."""
    arrays = EmulatedGuards(flush, emulator)
    try:
        yield arrays
    finally:
        release(arrays)
