"""What a thread's clock tells of an operation: its phases, one behind the other without a gap."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import first_difference
from tests.guarded import Flush, Guards, guards, release
from tests.operations import SMALL_BLOCKS, Attention, Conv2d, Matmul, PlaceAfter, Run, Tile
from tests.sdgen_native import Function, Phase
from tests.test_map import Map
from tests.test_norm import GroupNorm, LayerNorm
from tests.test_permute import Permute


@dataclass
class Told:
    """Of one operation, computed by one thread."""

    begin: int = 0
    end: int = 0
    spent: list[int] = field(default_factory=list)
    phases: list[tuple[Phase, int, int]] = field(default_factory=list)


class ClockedGuards(Guards):
    """The arrays of one call, which is made with a clock."""

    def __init__(self, flush: Flush, told: Told) -> None:
        super().__init__(flush)
        self.told = told

    def operate(
        self, what: str, function: int, plan: Any, op: Any, work: NDArray[Any], threads: int, slow: int
    ) -> None:
        told = self.told
        ended = native.ENDED(lambda _, phase, begin, end: told.phases.append((Phase(phase), begin, end)))
        told.begin = native.sdgen_now()
        clock = native.Clock(mark=told.begin, ended=ended)
        queue = (ctypes.c_int64 * (native.QUEUE_SIZE // 8))()
        team = native.Team(0, 1, ctypes.addressof(queue), work.ctypes.data, work.nbytes, clock=ctypes.pointer(clock))
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(function)
        call(*(ctypes.addressof(structure) for structure in (plan, op, team)))
        told.end, told.spent = clock.mark, list(clock.spent)
        self.check(what)


def silu(_arrays: Guards) -> native.After:
    return native.After(function=Function.SILU)


PlaceGuards = Callable[[Flush], AbstractContextManager[Guards]]
Operation = Any  # of several modules: each has data() and compute()
PACK, TRANSFORM, PRODUCT, EPILOGUE = Phase.PACK, Phase.TRANSFORM, Phase.PRODUCT, Phase.EPILOGUE

# What each operation consists of, and how it is computed.
CASES: dict[str, tuple[Operation, dict[str, Any], set[Phase]]] = {
    "linear": (Matmul(70, 90, 60), {}, {PACK, PRODUCT}),
    "linear, after it": (Matmul(70, 90, 60), {"after": silu}, {PACK, PRODUCT, EPILOGUE}),
    "linear of few rows": (Matmul(3, 90, 60), {}, {PRODUCT}),
    "linear of few rows, after it": (Matmul(3, 90, 60), {"after": silu}, {PRODUCT, EPILOGUE}),
    "convolution": (Conv2d(20, 30, (13, 11)), {}, {PACK, PRODUCT}),
    "winograd": (Conv2d(20, 30, (13, 11)), {"winograd": 4}, {PACK, TRANSFORM, PRODUCT}),
    "winograd, after it": (
        Conv2d(20, 30, (13, 11)),
        {"winograd": 4, "after": silu},
        {PACK, TRANSFORM, PRODUCT, EPILOGUE},
    ),
    "attention": (Attention(200, 300, 24, heads=8), {}, {PACK, PRODUCT, EPILOGUE}),
    "attention, keys split": (Attention(20, 700, 24), {}, {PACK, PRODUCT, EPILOGUE}),
    "map": (Map((100, 200, 1, 1), function=Function.SILU), {}, {Phase.ELEMENTS}),
    "group norm": (GroupNorm(64, 500, 32), {}, {Phase.ELEMENTS}),
    "layer norm": (LayerNorm(100, (200, 1, 1)), {}, {Phase.ELEMENTS}),
    "permutation": (Permute((50, 60, 7, 1), order=(1, 0, 2, 3)), {}, {Phase.ELEMENTS}),
}


def computed(
    operation: Operation, winograd: int = 0, guards: PlaceGuards = guards, **after: PlaceAfter
) -> NDArray[Any]:
    run = Run(Tile(native.native_levels()[-1]), blocking=SMALL_BLOCKS, winograd=winograd, guards=guards)
    result: NDArray[Any] = operation.compute(operation.data(np.random.default_rng(1)), run, **after)
    return result


@pytest.mark.parametrize("case", CASES)
def test_phases(case: str) -> None:
    operation, options, expected = CASES[case]
    told = Told()

    @contextmanager
    def clocked(flush: Flush) -> Iterator[ClockedGuards]:
        arrays = ClockedGuards(flush, told)
        try:
            yield arrays
        finally:
            release(arrays)

    result = computed(operation, guards=clocked, **options)
    assert not first_difference(result, computed(operation, **options)), "the clock changes the result"

    assert {phase for phase, _, _ in told.phases} == expected
    ends = [told.begin, *(end for _, _, end in told.phases)]
    assert [begin for _, begin, _ in told.phases] == ends[:-1]
    assert ends[-1] == told.end and ends == sorted(ends)
    for phase in Phase:
        assert told.spent[phase] == sum(end - begin for other, begin, end in told.phases if other is phase)


def test_names() -> None:
    assert [native.sdgen_phase_name(phase).decode() for phase in Phase] == [phase.name.lower() for phase in Phase]
    assert native.sdgen_phase_name(len(Phase)) is None and native.sdgen_phase_name(-1) is None
