"""Calls of functions by address, and how long they take: a loop in C, which costs less than a call from Python."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gen.native import compiler

# A function that takes fewer arguments ignores the registers of the others.
_ARGUMENTS = 6

# arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18

_SOURCE = """
#include <stdint.h>
#include <time.h>

typedef void function(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double sdgen_seconds(function *f, const uint64_t *a, uint64_t times)
{
    double start = now();
    for (uint64_t i = 0; i < times; i++)
        f(a[0], a[1], a[2], a[3], a[4], a[5]);
    return now() - start;
}
"""


def request_tiles() -> bool:
    """Asks Linux to let this process use AMX's tiles; whether it does."""
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)


def call(function: int, arguments: Sequence[int]) -> None:
    """Calls a function that returns nothing."""
    ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * _ARGUMENTS)(function)(*_all(arguments))


def seconds(function: int, arguments: Sequence[int], times: int) -> float:
    """How long it takes to call a function so many times."""
    result: float = _library().sdgen_seconds(function, (ctypes.c_uint64 * _ARGUMENTS)(*_all(arguments)), times)
    return result


def _all(arguments: Sequence[int]) -> list[int]:
    """Six arguments, negative ones as their two's complement."""
    return [argument & (2**64 - 1) for argument in (*arguments, *[0] * (_ARGUMENTS - len(arguments)))]


@functools.cache
def _library() -> Any:
    with tempfile.TemporaryDirectory(prefix="sdgen-") as name:
        source, path = Path(name, "harness.c"), Path(name, "harness.so")
        source.write_text(_SOURCE)
        compiler.shared_library(path, [source])
        library = ctypes.CDLL(str(path))
    library.sdgen_seconds.restype = ctypes.c_double
    library.sdgen_seconds.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    return library
