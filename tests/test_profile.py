"""SDGEN_PROFILE: the table of where the time went, and the trace."""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from tests import sdgen_native as native
from tests.patched_ggml import RUNS, TIMEOUT, Graphs, every_form, settings
from tests.profiles import Operation, Trace, all_rows, read_trace, rows, sums
from tests.sdgen_native import Phase

SUMMARY = [
    "products, convolutions, attentions",
    "norms, elementwise operations, copies",
    "left to ggml",
    "waiting for other threads",
]

PACK, PRODUCT, EPILOGUE, ELEMENTS, WAIT = Phase.PACK, Phase.PRODUCT, Phase.EPILOGUE, Phase.ELEMENTS, Phase.WAIT

# The operations of a case, and the phases of each.
CASE = "around_attention"
OPERATIONS: dict[str, set[Phase]] = {
    "ggml NEG 24x37x1x1": {Phase.OTHER},
    "nothing 15x16x3x1": {WAIT},  # the copy of values, at the beginning
    "linear 37x48x24 normalized": {PACK, PRODUCT, WAIT},
    "attention 37x15 3x16": {PACK, PRODUCT, EPILOGUE, WAIT},
    "linear 37x24x48": {PACK, PRODUCT, WAIT},  # what comes after it is added while it is summed
}

# The numbers of threads that a case is computed with, one after the other.
THREADS = (1, 2, 5)

# Of what is printed.
SECOND, PERCENT = 0.5e-4, 0.05


@every_form
def test_table(graphs: Graphs, form: dict[str, str]) -> None:
    said = graphs.run(CASE, SDGEN_PROFILE="1", **form).said
    assert "sdgen: seconds, the mean of 5 threads," in said
    table = all_rows(said)
    whole = table.pop("all")
    assert {name: row.calls for name, row in table.items()} == dict.fromkeys(OPERATIONS, RUNS)
    assert {name: set(row.percent) for name, row in table.items()} == OPERATIONS
    assert {name for name, row in table.items() if row.rate} == {
        name for name in OPERATIONS if "x" in name.split()[1]
    } - {"nothing 15x16x3x1"}
    for row in (*table.values(), whole):
        assert abs(sum(row.percent.values()) - 100) <= PERCENT * len(row.percent)
    assert whole.calls == RUNS * len(OPERATIONS) and whole.share == 100
    assert abs(sum(row.seconds for row in table.values()) - whole.seconds) <= SECOND * (len(table) + 1)

    kinds = sums(said)
    assert list(kinds) == SUMMARY
    assert abs(sum(seconds for seconds, _ in kinds.values()) - whole.seconds) <= SECOND * 5
    assert abs(sum(share for _, share in kinds.values()) - 100) < 0.05
    waiting = sum(row.seconds * row.percent.get(WAIT, 0) / 100 for row in table.values())
    rounding = sum(SECOND + row.seconds * PERCENT / 100 for row in table.values())
    assert abs(kinds["waiting for other threads"][0] - waiting) <= SECOND + rounding
    assert kinds["left to ggml"][0] == table["ggml NEG 24x37x1x1"].seconds


def test_nothing_is_measured_unasked(graphs: Graphs) -> None:
    for environment in ({}, {"SDGEN_PROFILE": "0"}):
        assert not rows(graphs.run(CASE, **environment).said)


def of_run(trace: Trace, run: int) -> dict[str, list[Operation]]:
    """Each thread's part of the operations of a run, by name. The runs with most threads come last."""
    parts: dict[str, list[Operation]] = {}
    for (_, thread), lane in sorted(trace.lanes.items()):
        for name in OPERATIONS:
            of_name = [operation for operation in lane if operation.name == name]
            index = run - len(THREADS) + len(of_name)
            assert len(of_name) == sum(thread <= threads for threads in THREADS)
            if index >= 0:
                parts.setdefault(name, []).append(of_name[index])
    return parts


@every_form
def test_trace(graphs: Graphs, form: dict[str, str], tmp_path: Path) -> None:
    """It says what the table does, and more."""
    path = tmp_path / "trace.json"
    said = graphs.run(CASE, SDGEN_PROFILE=str(path), **form).said
    assert f"sdgen: the trace is in {path}\n" in said
    table, trace = rows(said), read_trace(path)
    assert not trace.note
    assert sorted(trace.lanes) == [(1, thread) for thread in range(1, max(THREADS) + 1)]
    assert [operation.name for operation in trace.lanes[1, 5]] == list(OPERATIONS)
    assert table.keys() == OPERATIONS.keys()
    spent = dict.fromkeys(OPERATIONS, 0.0)
    of_phase = dict.fromkeys(product(OPERATIONS, Phase), 0.0)
    for run, threads in enumerate(THREADS):
        for name, parts in of_run(trace, run).items():
            assert len(parts) == threads
            for part in parts:
                assert {phase for phase, _, _ in part.phases} <= OPERATIONS[name]
                assert sum(part.spent(phase) for phase in Phase) == part.end - part.begin
                spent[name] += (part.end - part.begin) / threads * 1e-9
                for phase in Phase:
                    of_phase[name, phase] += part.spent(phase) / threads * 1e-9
    for name, row in table.items():
        assert abs(spent[name] - row.seconds) <= SECOND + 1e-9
        for phase, percent in row.percent.items():
            assert abs(100 * of_phase[name, phase] / spent[name] - percent) <= PERCENT + 1e-9


def test_graphs_computed_at_once_have_lanes_of_their_own(graphs: Graphs, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    done = graphs.run("at_once", CASE, SDGEN_PROFILE=str(path))
    trace = read_trace(path)
    assert sorted(trace.lanes) == [(place, thread) for place in (1, 2, 3) for thread in (1, 2)]
    calls = Counter(operation.name for lane in trace.lanes.values() for operation in lane)
    table = rows(done.said)
    assert calls == {name: 2 * row.calls for name, row in table.items()}
    assert {row.calls for row in table.values()} == {3 * 4}
    assert done.error <= 3e-6
    assert graphs.run("at_once", CASE).error <= 3e-6


def test_an_error_ends_the_trace_as_well(graphs: Graphs, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    command = [str(graphs.program), "none"]
    done = subprocess.run(command, env=settings(SDGEN_PROFILE=str(path)), capture_output=True, timeout=TIMEOUT)
    assert done.returncode == 1 and b"no such case" in done.stderr
    assert read_trace(path) == Trace({}, "")


@pytest.mark.parametrize(("where", "why"), [("absent/trace.json", "No such file"), ("folder.json", "directory")])
def test_a_trace_that_cannot_be_written_ends_the_program_first(
    graphs: Graphs, tmp_path: Path, where: str, why: str
) -> None:
    (tmp_path / "folder.json").mkdir()
    path = tmp_path / where
    command = [str(graphs.program), CASE]
    variables = settings(SDGEN_PROFILE=str(path))
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 2 and not done.stdout
    (line,) = (line for line in done.stderr.splitlines() if "SDGEN_PROFILE" in line)
    assert line.startswith(f"sdgen: SDGEN_PROFILE={path}: the file cannot be written: ") and why in line


def test_a_full_disk_is_told(graphs: Graphs, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.symlink_to("/dev/full")
    said = graphs.run(CASE, SDGEN_PROFILE=str(path)).said
    assert f"sdgen: the trace could not be written to {path}: No space left on device\n" in said and rows(said)


def test_upstream_has_nothing_to_show(graphs: Graphs, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    variables = settings(SDGEN_PROFILE=str(path), SDGEN_KERNELS="upstream")
    done = subprocess.run([str(graphs.program), CASE], env=variables, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0 and not path.exists()
    assert "sdgen: SDGEN_PROFILE shows nothing with SDGEN_KERNELS=upstream\n" in done.stderr


# ---- the trace alone, of made-up times ----

NAME_OF = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)
NAMES = [ctypes.create_string_buffer(f"operation {index}".encode()) for index in range(8)]


class Made:
    """A trace of operations that never were, in microseconds after its beginning."""

    def __init__(self, path: Path, most: int) -> None:
        self.path = path
        assert native.trace_open(str(path).encode(), most)
        self.begin = native.sdgen_now()
        self.place = native.trace_take_place()

    def time(self, at: int) -> int:
        return int(self.begin + 1000 * at)

    def add(self, thread: int, operations: list[list[tuple[Phase, int]]]) -> None:
        """One after the other, of these phases and how long each takes."""
        lane, at = native.trace_lane(self.place, thread, len(operations)), 0
        for index, phases in enumerate(operations):
            native.trace_begin(lane, self.time(at))
            for phase, length in phases:
                native.trace_phase(lane, phase, self.time(at), self.time(at + length))
                at += length
            native.trace_end(lane, index, self.time(at))
        native.trace_keep(lane)

    def written(self) -> Trace:
        native.trace_free_place(self.place)
        native.trace_write(NAME_OF(lambda index: ctypes.addressof(NAMES[index])))
        return read_trace(self.path)


def lengths(operation: Operation) -> list[tuple[Phase, int]]:
    return [(phase, (end - begin) // 1000) for phase, begin, end in operation.phases]


def test_phases_that_touch_are_one(tmp_path: Path) -> None:
    made = Made(tmp_path / "trace.json", 1000)
    made.add(0, [[(PACK, 1), (PACK, 2), (PRODUCT, 4), (PACK, 8)], [(PACK, 16), (WAIT, 0), (WAIT, 32)], []])
    (lane,) = made.written().lanes.values()
    assert [operation.name for operation in lane] == ["operation 0", "operation 1", "operation 2"]
    assert [lengths(operation) for operation in lane] == [
        [(PACK, 3), (PRODUCT, 4), (PACK, 8)],
        [(PACK, 16), (WAIT, 32)],
        [],
    ]


@pytest.mark.parametrize("pairs", [31, 32, 33, 1000])
def test_many_phases_are_summed_up(tmp_path: Path, pairs: int) -> None:
    made = Made(tmp_path / "trace.json", 1000)
    made.add(0, [[(PACK, 2), (PRODUCT, 3)] * pairs + [(PRODUCT, 5), (EPILOGUE, 7), (WAIT, 9)], [(PACK, 1)]])
    ((operation, after),) = made.written().lanes.values()
    assert operation.end - operation.begin == 1000 * (5 * pairs + 21) and lengths(after) == [(PACK, 1)]
    totals = {PACK: 2 * pairs, PRODUCT: 3 * pairs + 5, EPILOGUE: 7, WAIT: 9}
    assert {phase: operation.spent(phase) // 1000 for phase in totals} == totals
    in_pieces = 64
    assert len(operation.phases) <= in_pieces + len(totals)
    assert (
        lengths(operation)[: min(2 * pairs, in_pieces) - 1]
        == ([(PACK, 2), (PRODUCT, 3)] * pairs)[:in_pieces][: min(2 * pairs, in_pieces) - 1]
    )
    assert operation.summed == (
        set() if pairs == 31 else {EPILOGUE, WAIT} if pairs == 32 else {PACK, PRODUCT, EPILOGUE, WAIT}
    )


def test_what_there_is_no_room_for_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of 40 events: whole lanes while there are no more than 30, then operations alone, then nothing."""
    made = Made(tmp_path / "trace.json", 40)
    operations = [[(PACK, 1), (PRODUCT, 2)]] * 4  # 12 events
    for thread in range(7):
        made.add(thread, operations)
    trace = made.written()
    note = "left out, for there was no room: 40 phases, 4 operations, 0 threads of graphs"
    assert trace.note == note and capfd.readouterr().err == f"sdgen: the trace is in {made.path}; {note}\n"
    kept = [[len(operation.phases) for operation in lane] for _, lane in sorted(trace.lanes.items())]
    assert kept == [[2] * 4] * 2 + [[0] * 4] * 4
    (told,) = (event for event in json.loads(made.path.read_text())["traceEvents"] if event["ph"] == "i")
    assert told["name"] == note


def test_places(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The lowest free one; what has none is left out and told."""
    assert native.trace_take_place() < 0 and not native.trace_lane(0, 0, 1)  # there is no trace
    made = Made(tmp_path / "trace.json", 40)
    assert [native.trace_take_place() for _ in range(2)] == [1, 2]
    native.trace_free_place(1)
    assert [native.trace_take_place() for _ in range(63)] == [1, *range(3, 64), -1]
    native.trace_free_place(-1)
    assert not native.trace_lane(-1, 0, 1)
    made.place = 63
    made.add(0, [[(PACK, 1)]])
    trace = made.written()
    assert list(trace.lanes) == [(64, 1)] and "1 threads of graphs" in trace.note
    assert trace.note in capfd.readouterr().err
