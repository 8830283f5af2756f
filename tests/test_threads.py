"""How many threads there are by default, and how evenly they finish where some are slower than others."""

from __future__ import annotations

import ctypes
import math
import os
import re
import subprocess
import sys
from ctypes import Structure
from pathlib import Path

import numpy as np
import pytest

from tests import sdgen_native as native
from tests.built import require_sd_cli
from tests.sdgen_native import Level, Type

NO_LIMIT = 2**31 - 1
SD_CLI = native.REPOSITORY / "build" / "bin" / "sd-cli"

# ---- the default number ----


@pytest.mark.parametrize(
    ("online", "allowed", "quota", "threads"),
    [
        (1, 1, NO_LIMIT, 1),
        (4, 4, NO_LIMIT, 4),
        (6, 6, NO_LIMIT, 3),  # half where there are more than four, as upstream has it
        (64, 64, NO_LIMIT, 32),
        (64, 40, NO_LIMIT, 32),
        (64, 3, NO_LIMIT, 3),
        (64, 64, 5, 5),
        (64, 3, 5, 3),
        (64, 64, 1, 1),
        (0, NO_LIMIT, NO_LIMIT, 4),  # nothing is known
        (0, 2, NO_LIMIT, 2),
        (8, 0, 0, 1),
    ],
)
def test_threads_by_processors(online: int, allowed: int, quota: int, threads: int) -> None:
    assert native.sdgen_threads_of(online, allowed, quota) == threads


V2_MOUNT = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
OTHER_MOUNTS = "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n25 24 0:5 / /proc rw - proc proc rw\n"
V1_MOUNTS = (
    "31 24 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
)
CPU = "/sys/fs/cgroup/cpu,cpuacct"

# What the files hold that are there, and the quota.
TREES: dict[str, tuple[dict[str, str], int]] = {
    "nothing": ({}, NO_LIMIT),
    "no mounts": ({"/proc/self/cgroup": "0::/a\n", "/sys/fs/cgroup/a/cpu.max": "100000 100000\n"}, NO_LIMIT),
    "no group": ({"/proc/self/mountinfo": V2_MOUNT, "/sys/fs/cgroup/cpu.max": "100000 100000\n"}, NO_LIMIT),
    "no quota": ({"/proc/self/cgroup": "0::/a\n", "/proc/self/mountinfo": V2_MOUNT}, NO_LIMIT),
}


def add_v2(name: str, quota: int, path: str = "/a/b", mounts: str = OTHER_MOUNTS + V2_MOUNT, **limits: str) -> None:
    """Limits by the folder, whose slashes are underscores."""
    files = {f"/sys/fs/cgroup{folder.replace('_', '/')}/cpu.max": limit for folder, limit in limits.items()}
    TREES[name] = ({"/proc/self/cgroup": f"0::{path}\n", "/proc/self/mountinfo": mounts} | files, quota)


add_v2("whole", 3, _a_b="300000 100000\n")
add_v2("rounded up", 3, _a_b="250000 100000\n")
add_v2("below one", 1, _a_b="5000 100000\n")
add_v2("another period", 7, _a_b="70000 10000\n")
add_v2("no newline", 2, _a_b="200000 100000")
add_v2("max", NO_LIMIT, _a_b="max 100000\n", _a="max 100000\n")
add_v2("the group above is limited", 2, _a_b="max 100000\n", _a="200000 100000\n")
add_v2("the group above is limited more", 2, _a_b="400000 100000\n", _a="200000 100000\n")
add_v2("the group above is limited less", 2, _a_b="200000 100000\n", _a="400000 100000\n")
add_v2("some group has no file", 4, path="/a/b/c", _a="400000 100000\n")
add_v2("the root of a container", 2, path="/", **{"": "200000 100000\n"})
add_v2("above the root", 4, **{"": "400000 100000\n"})
add_v2("a group beside the root", 3, path="/../other", **{"": "300000 100000\n"}, _other="100000 100000\n")
add_v2("below another group", NO_LIMIT, path="/a/b", _b="100000 100000\n")
add_v2("a path as long as can be", 2, path="/a" * 1900, **{"": "200000 100000\n"})
add_v2("a path that is too long", NO_LIMIT, path="/a" * 5000, **{"": "200000 100000\n"})
CONTAINER = V2_MOUNT.replace(" / ", " /pods/x ", 1)
add_v2("the root is a container's", 2, path="/pods/x/in", mounts=CONTAINER, _in="200000 100000\n")
add_v2("the root is a container's like another", 5, path="/pods/xy", mounts=CONTAINER, **{"": "500000 100000\n"})
for garbage in ("", "\n", "garbage", "100000", "0 100000", "-1 100000", "100000 0", "100000 -5", "1e5 100000", "\0\0"):
    add_v2(f"garbage {garbage!r}", NO_LIMIT, _a_b=garbage)
add_v2("as much as there can be", NO_LIMIT, _a_b="9" * 17 + " 1\n")


def add_v1(name: str, quota: int, group: str = "4:cpu,cpuacct:/a/b\n", **files: str) -> None:
    places = {f"{CPU}{place.replace('_', '/')}": f"{text}\n" for place, text in files.items() if place != "group"}
    limits = {}
    for place, text in places.items():
        limits[f"{place}/cpu.cfs_quota_us"], _, period = text.partition(" ")
        if period:
            limits[f"{place}/cpu.cfs_period_us"] = period
    mounts = {"/proc/self/cgroup": "5:cpuset:/a\n" + group, "/proc/self/mountinfo": OTHER_MOUNTS + V1_MOUNTS}
    TREES[f"v1, {name}"] = (mounts | limits, quota)


add_v1("limited", 3, _a_b="300000 100000")
add_v1("rounded up", 2, _a_b="150000 100000")
add_v1("below one", 1, _a_b="1000 100000")
add_v1("not limited", NO_LIMIT, _a_b="-1 100000")
add_v1("the group above is limited", 2, _a_b="-1 100000", _a="200000 100000")
add_v1("no period", NO_LIMIT, _a_b="200000")
add_v1("garbage", NO_LIMIT, _a_b="x y")
add_v1("another controller", NO_LIMIT, group="4:cpuacct,cpus:/a/b\n", _a_b="100000 100000")
add_v1("lines that are none", 2, group="\n:\nx\n4:cpu\n4:cpu,cpuacct:/a/b\n", _a_b="200000 100000")
both_files, _ = TREES["v1, limited"]
TREES["both versions"] = (
    {
        **both_files,
        "/proc/self/cgroup": "4:cpu,cpuacct:/a/b\n0::/c\n",
        "/proc/self/mountinfo": V1_MOUNTS + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"),
        "/sys/fs/cgroup/unified/c/cpu.max": "200000 100000\n",
    },
    2,
)


@pytest.mark.parametrize("name", TREES)
def test_quota(name: str, tmp_path: Path) -> None:
    files, quota = TREES[name]
    for path, text in files.items():
        file = tmp_path / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert native.sdgen_quota(str(tmp_path).encode()) == quota


def test_quota_of_no_folder() -> None:
    assert native.sdgen_quota(b"/nowhere") == NO_LIMIT
    assert native.sdgen_quota(b"/x" * 4000) == NO_LIMIT


ALLOWED = sorted(os.sched_getaffinity(0))


def on_processors(count: int, *command: str) -> str:
    """What a program prints that may run on so many processors."""
    setter = (
        "import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(','))); os.execv(sys.argv[2], sys.argv[2:])"
    )
    processors = ",".join(map(str, ALLOWED[:count]))
    arguments = [sys.executable, "-c", setter, processors, *command]
    return subprocess.run(arguments, capture_output=True, text=True, errors="replace", timeout=60).stdout


def expected(count: int) -> int:
    """The default with so many processors to run on, and what else holds here."""
    online, quota = os.sysconf("SC_NPROCESSORS_ONLN"), native.sdgen_quota(b"")
    threads: int = native.sdgen_threads_of(online, count, quota)
    return threads


@pytest.mark.parametrize("count", [1, len(ALLOWED)])
def test_affinity_is_honoured(count: int) -> None:
    program = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).sdgen_default_threads())"
    printed = on_processors(count, sys.executable, "-c", program, str(native.LIBRARIES / "libsdgen.so"))
    assert 1 <= int(printed) == expected(count) <= count


@pytest.mark.parametrize("count", [1, len(ALLOWED)])
def test_affinity_is_honoured_by_sd_cli(count: int) -> None:
    require_sd_cli(SD_CLI)
    printed = on_processors(count, str(SD_CLI), "-v", "-m", "/nowhere", "-p", "a cat")
    found = re.search(r"n_threads: (\d+)", printed)
    assert found, printed[-1000:]
    assert int(found[1]) == expected(count)


# ---- the queue ----


@pytest.mark.parametrize("tallied", [False, True])
def test_queue_hands_out_each_item_once(tallied: bool, rng: np.random.Generator) -> None:
    """Whatever the sizes, and in whatever order threads come, those of one that comes seldom among them."""
    for _ in range(3000):
        nth, whole = int(rng.integers(1, 17)), int(rng.integers(1, 9))
        count, most = whole * int(rng.integers(1, 100)), int(rng.integers(1, 5)) * (whole if rng.integers(2) else 1)
        weights = rng.random(nth) ** int(rng.integers(4)) + 1e-3
        order = bytes(rng.choice(nth, 400, p=weights / weights.sum()).astype(np.uint8))
        ranges = native.test_queue(count, whole, most, nth, tallied, order, len(order))
        assert ranges >= count / most, f"{count} items, wholes of {whole}, at most {most}, {nth} threads"


# ---- processors of two speeds ----

# Where the arrays of a simulated operation would be.
NOWHERE = 0x1000_0000_0000
# Sizes of blocks that do not depend on the processor, those of an L2 of 1 MiB and an L3 of 32 MiB.
BLOCKING = native.Blocking(256, 256, 512, 16 << 20)


def linear(m: int, n: int, k: int) -> tuple[str, Structure]:
    w, x = (NOWHERE, Type.F16, 2 * k, (0, 0), (1, 1)), (NOWHERE, 4 * k, (0, 0))
    return "sdgen_matmul", native.Matmul(m, n, k, (1, 1), *w, *x, NOWHERE, 4 * n, (0, 0), 1.0)


def conv2d(channels_in: int, channels_out: int, size: int) -> tuple[str, Structure]:
    image = (NOWHERE, 4 * size, 4 * size**2, 4 * size**2 * channels_in)
    shape = (1, channels_in, channels_out, *4 * (size,), 3, 3, 1, 1, 1, 1, 1, 1)
    op = native.Conv2d(*shape, NOWHERE, Type.F16, *image, NOWHERE, 4 * size**2 * channels_out, 1.0)
    return "sdgen_conv2d", op


def attention(queries: int, keys: int, heads: int, depth: int) -> tuple[str, Structure]:
    q, kv = (4 * depth * heads, 4 * depth, 0), (NOWHERE, Type.F32, 4 * depth * heads, 4 * depth, 0, (1, 1))
    op = native.Attention(queries, keys, heads, 1, depth, depth, NOWHERE, *q, *kv, *kv)
    op.scale, op.c, op.c_stride, op.c_head_stride = 1 / math.sqrt(depth), NOWHERE, q[0], q[1]
    return "sdgen_attention", op


OPERATIONS = {
    "linear 4096x2560x320": linear(4096, 2560, 320),
    "conv 320 at 64x64": conv2d(320, 320, 64),
    "conv 4 to 320 at 64x64": conv2d(4, 320, 64),
    "attention 1024x1024 8x80": attention(1024, 1024, 8, 80),
}


def simulated(level: Level, name: str, factors: list[float]) -> float:
    """How long the operation takes a team whose threads take so many times as long as the fastest."""
    function, op = OPERATIONS[name]
    plan = native.Plan(native.sdgen_kernels(level), BLOCKING, 0, 4)
    size = getattr(native, f"{function}_work_size")(ctypes.byref(plan), ctypes.byref(op), len(factors))
    work = np.zeros(size, np.uint8)
    threads = (len(factors), (ctypes.c_double * len(factors))(*factors), work.ctypes.data, size)
    address = native.function_address(function)
    time: float = native.test_simulate(address, ctypes.byref(plan), ctypes.addressof(op), *threads)
    return time


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("level", [level for level in Level if native.sdgen_kernels(level)], ids=native.level_name)
def test_slow_threads_finish_with_the_others(level: Level, name: str) -> None:
    """Within 5% of what the sum of the speeds would come to, whoever is first where all take at the same time;
    and threads of one speed lose next to nothing."""
    alone = simulated(level, name, [1])
    for fast, slow in ((1, 1), (2, 2), (4, 4)):
        ideal = alone / (fast + slow / 2)
        assert ideal <= simulated(level, name, [1.0] * fast + [2.0] * slow) <= 1.05 * ideal, f"{fast} fast, {slow} slow"
        assert simulated(level, name, [2.0] * slow + [1.0] * fast) <= 1.05 * ideal, f"{slow} slow, {fast} fast"
    for threads in (2, 4, 8):
        assert simulated(level, name, [1.0] * threads) <= 1.03 * alone / threads, f"{threads} threads"
