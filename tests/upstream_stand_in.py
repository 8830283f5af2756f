"""Stands for bench/upstream.c in tests of who asks it: computes linear layers as that does, or fails in a way.

Its arguments are the way, or "right", and the threads.
"""

from __future__ import annotations

import os
import re
import signal
import struct
import sys

ASKED, ANSWERS = sys.stdin.buffer, sys.stdout.buffer


def answer(data: bytes) -> None:
    ANSWERS.write(data)
    ANSWERS.flush()


def ran(runs: int) -> bytes:
    return f"ran {1000000 * runs} {500000 * runs}\n".encode()


def product(m: int, n: int, k: int) -> bytes:
    w = struct.unpack(f"{n * k}e", ASKED.read(2 * n * k))
    x = struct.unpack(f"{m * k}f", ASKED.read(4 * m * k))
    rows = [x[i * k : i * k + k] for i in range(m)]
    columns = [w[j * k : j * k + k] for j in range(n)]
    c = [sum(a * b for a, b in zip(row, column, strict=True)) for row in rows for column in columns]
    return struct.pack(f"{m * n}f", *c)


def main(way: str) -> None:
    if way == "ends":
        sys.exit(len(os.sched_getaffinity(0)))
    numbers = re.fullmatch(rb"linear (\d+) (\d+) (\d+)\n", ASKED.readline())
    assert numbers
    m, n, k = map(int, numbers.groups())
    if way == "nonsense":
        answer(b'\x01\xff "x"\n')
    answer(f"inputs {2 * n * k} {4 * m * k + (way == 'other inputs')}\n".encode())
    c = product(m, n, k)
    answer(f"ready {len(c) + (way == 'other result')}\n".encode())
    runs = 0
    while line := ASKED.readline():
        if line == b"result\n":
            answer({"short": c[:-1], "wrong": bytes(len(c))}.get(way, c))
            if way == "short":
                return
            continue
        runs += 1
        if way == "dies" and runs == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        if way == "sleeps" and runs == 3:
            ASKED.read()  # until who asks ends
        answer(b"ran 0 0\n" if way == "no time" else ran(int(line.removeprefix(b"run "))))


if __name__ == "__main__":
    main(sys.argv[1])
