"""What SDGEN_PROFILE makes: the table on stderr and the trace, read and checked for what is so of any."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.sdgen_native import Phase

# In the order of the table's columns.
COLUMNS = [*list(Phase)[1:], Phase.OTHER]

ROW = re.compile(r"^(\S.*?) +(\d+) +(\d+\.\d{4}) +(\d+\.\d\d)%(.{17})((?: +(?:\d+\.\d|-)){7})$", re.MULTILINE)
SUM = re.compile(r"^(\S.*?)  +(\d+\.\d{4}) +(\d+\.\d{2})%$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """An operation's row, or that of all of them."""

    calls: int
    seconds: float
    share: float
    rate: str  # GFLOP/s and share of the peak, or nothing
    percent: dict[Phase, float]  # of the phases that there are


def all_rows(said: str) -> dict[str, Row]:
    table = {}
    for name, calls, seconds, share, rate, percent in ROW.findall(said):
        phases = {phase: float(value) for phase, value in zip(COLUMNS, percent.split(), strict=True) if value != "-"}
        table[name] = Row(int(calls), float(seconds), float(share), rate.strip(), phases)
    return table


def rows(said: str) -> dict[str, Row]:
    """Of each operation."""
    return {name: row for name, row in all_rows(said).items() if name != "all"}


def sums(said: str) -> dict[str, tuple[float, float]]:
    """Seconds and share of each kind of operation, below the table."""
    return {name: (float(seconds), float(share)) for name, seconds, share in SUM.findall(said)}


@dataclass
class Operation:
    """One operation on one thread; times are nanoseconds."""

    name: str
    begin: int
    end: int
    phases: list[tuple[Phase, int, int]] = field(default_factory=list)
    summed: set[Phase] = field(default_factory=set)

    def spent(self, phase: Phase) -> int:
        return sum(end - begin for other, begin, end in self.phases if other is phase)


@dataclass
class Trace:
    lanes: dict[tuple[int, int], list[Operation]]  # by process and thread
    note: str


def nanoseconds(microseconds: float) -> int:
    exact = round(microseconds * 1000)
    assert abs(exact - microseconds * 1000) < 1e-3
    return exact


def read_trace(path: Path) -> Trace:
    """The trace; operations of a lane follow one another, and so do an operation's phases, within it."""
    content = json.loads(path.read_text())
    assert set(content) == {"displayTimeUnit", "otherData", "traceEvents"}
    lanes: dict[tuple[int, int], list[Operation]] = {}
    names, processes = {}, set()
    for event in content["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"]
        elif event["ph"] == "M" and event["name"] == "process_name":
            processes.add(event["pid"])
        elif event["ph"] == "X":
            lane = lanes.setdefault((event["pid"], event["tid"]), [])
            begin, end = nanoseconds(event["ts"]), nanoseconds(event["ts"]) + nanoseconds(event["dur"])
            assert 0 <= begin <= end
            if event["cat"] == "operation":
                assert not lane or lane[-1].end <= begin
                lane.append(Operation(event["name"], begin, end))
                continue
            assert event["cat"] == "phase"
            operation, phase = lane[-1], Phase[event["name"].upper()]
            assert (operation.phases[-1][2] if operation.phases else operation.begin) <= begin and end <= operation.end
            operation.phases.append((phase, begin, end))
            if event.get("args"):
                assert event["args"] == {"summed": True}
                operation.summed.add(phase)
        else:
            assert event["ph"] == "i" or event["name"] == "process_sort_index"
    assert set(lanes) <= set(names) and {pid for pid, _ in lanes} <= processes
    assert all(name == f"thread {tid}" for (_, tid), name in names.items())
    return Trace(lanes, content["otherData"]["note"])
