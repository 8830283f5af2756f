"""One variant: built, checked against double precision, timed in turn with the loop that makes the peak.

A neighbour on the same physical core slows real kernels and a loop of NOPs, but not a loop of multiply-adds in
registers: samples in whose time the NOPs ran at nine tenths of their best rate or faster are quiet ones. Samples whose
loop of multiply-adds was slower than nine tenths of its best rate have no share: what disturbed it was not there when
the kernel ran.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import statistics
import tempfile
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gen import registry
from gen.dsl import DslError, Kernel
from gen.isa import LEVELS
from gen.native import Call, NativeError, NativeKernel, build
from gen.native.objects import compile_kernels, family_of, open_library
from gen.sweep import machine, records
from gen.sweep.records import Record
from gen.sweep.variants import Variant, workload_of
from gen.sweep.workloads import Checked, Timed, aligned

_QUIET = 0.9  # of the best rate of NOPs, or of the peak
_LEAST_SAMPLES = 5
_MOST_SAMPLES = 4000
_SAMPLE_SECONDS = 5e-4
_PEAK_FLOP = 3.2e7  # of a sample of the peak
_NOPS = 1e6  # of a sample
_WARM_UP = 20
_SEED = 1


@dataclass(frozen=True)
class Built:
    """A variant and its key; the library, unless it was measured before or cannot be made, for the reason noted.

    It is broken where the compiler fails: that is no property of the variant, and recorded.
    """

    variant: Variant
    key: str
    shared: Path | None
    note: str
    broken: bool = False


def build_variant(variant: Variant, done: Collection[str], folder: Path) -> Built:
    """Builds a variant in a folder, unless its key is one of those that are done."""
    try:
        kernel = family_of(variant.spec).build(variant.spec)
    except DslError as error:
        return Built(variant, "", None, str(error).splitlines()[0])
    key = key_of(kernel, variant)
    if key in done:
        return Built(variant, key, None, "")
    place = Path(tempfile.mkdtemp(dir=folder))  # its own: variants may have the same text, and so the same key
    try:
        compile_kernels([kernel], place, place / "kernel.so")
    except NativeError as error:
        return Built(variant, key, None, str(error).splitlines()[0], broken=True)
    return Built(variant, key, place / "kernel.so", "")


def key_of(kernel: Kernel, variant: Variant) -> str:
    """A hash of the kernel's assembly, but for its banner and its name, and of the parameters."""
    code = registry.assembly(kernel).partition("*/")[2].replace(kernel.spec.name, "kernel")
    kind = "_".join((kernel.spec.operation, *kernel.spec.types, kernel.spec.level))
    return hashlib.sha256(f"{kind} {variant.spec.tile} {variant.parameters}\n{code}".encode()).hexdigest()[:16]


def measure(built: Built, seconds: float) -> Record:
    """Checks and times a variant that was built."""
    spec = built.variant.spec
    workload, kernel = workload_of(spec), _opened(built)
    parameters, rng = dict(built.variant.parameters), np.random.default_rng(_SEED)
    checks = list(workload.check(kernel, rng, parameters))
    worst = max(checks, key=_excess)
    record = _record(built, workload.unit, seconds)
    record.update(error=_finite(worst.error), error_limit=worst.limit)
    if any(check.error > check.limit for check in checks):
        return Record(**{**record, "status": records.WRONG, "note": "differs from the result in double precision"})
    with machine.alone():
        record.update(_time(workload.time(kernel, rng, parameters), workload.unit, spec.level, seconds))
    return Record(**record)


def failed(built: Built, seconds: float, note: str) -> Record:
    """The record of a variant that could not be measured."""
    record = _record(built, workload_of(built.variant.spec).unit, seconds)
    return Record(**{**record, "status": records.FAILED, "note": note})


def _opened(built: Built) -> NativeKernel:
    assert built.shared is not None
    return open_library(built.shared, [built.variant.spec])[built.variant.spec.name]


def _excess(check: Checked) -> float:
    return check.error / check.limit if check.limit else check.error


def _finite(error: float) -> float | None:
    return error if error < float("inf") else None


def _record(built: Built, unit: str, seconds: float) -> dict[str, Any]:
    spec = built.variant.spec
    numbers = ("error", "error_limit", "rate", "rate_median", "peak")
    shares = ("share_best", "share_median", "share_quiet", "share_contended")
    return {
        "version": records.VERSION,
        "key": built.key,
        "status": records.TIMED,
        "note": "",
        "kernel": spec.name,
        "operation": spec.operation,
        "types": list(spec.types),
        "tile": list(spec.tile),
        "level": spec.level,
        "options": built.variant.options,
        "parameters": dict(built.variant.parameters),
        "default": built.variant.is_default,
        "processor": machine.model(),
        "unit": f"G{unit}/s",
        **dict.fromkeys((*numbers, *shares)),
        "samples": 0,
        "quiet_samples": 0,
        "seconds": seconds,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


# ---- timing ----


@dataclass(frozen=True)
class _Repeated:
    """A call so many times, and what that amounts to."""

    call: Call
    times: int
    amount: float

    def rate(self) -> float:
        """Of one sample."""
        return self.amount / self.call.seconds(self.times)


class _Probes:
    """Loops that measure the processor; remembers how fast the NOPs ran at best."""

    def __init__(self) -> None:
        specs = {spec.name: spec for spec in registry.specs(LEVELS) if spec.operation.startswith("probe")}
        self.kernels = build(specs.values())
        self.rows = {name: registry.family_of(spec).row(spec) for name, spec in specs.items()}
        self.best_nops = 0.0
        self.nops = self.repeated("probe_nop_avx2", 1, _NOPS)
        for _ in range(_WARM_UP):  # the clock rises
            self.nop_rate()

    def repeated(self, name: str, column: int, amount: float) -> _Repeated:
        """A probe of about that amount, of what a column of its row counts in a round."""
        per_round = int(self.rows[name][column])
        rounds = int(amount / per_round)
        return _Repeated(self.kernels[name].bind(rounds), 1, float(rounds * per_round))

    def nop_rate(self) -> float:
        """Of one sample."""
        rate = self.nops.rate()
        self.best_nops = max(self.best_nops, rate)
        return rate


_lock = threading.Lock()


@functools.cache
def _probes() -> _Probes:
    return _Probes()


def _copy(size: int) -> _Repeated:
    """Copies in the cache, of as many bytes as the kernel reads and writes."""
    src, dst = aligned(np.ones(size, np.uint8)), aligned(np.ones(size, np.uint8), 2048)
    function = ctypes.cast(ctypes.CDLL(None).memcpy, ctypes.c_void_p).value
    assert function is not None
    return _repeated(Timed(Call(function, (dst.ctypes.data, src.ctypes.data, size), None, (src, dst)), 2.0 * size))


def _repeated(timed: Timed) -> _Repeated:
    """The call so many times that it is a sample."""
    times = 1
    while (took := timed.call.seconds(times)) < _SAMPLE_SECONDS / 2:
        times *= 2
    times = max(1, round(times * _SAMPLE_SECONDS / took))
    return _Repeated(timed.call, times, timed.amount * times)


@dataclass(frozen=True)
class _Sample:
    rate: float
    peak: float
    nops: float  # the lower of before and after

    @property
    def share(self) -> float:
        return self.rate / self.peak


def _time(timed: Timed, unit: str, level: str, seconds: float) -> dict[str, Any]:
    with _lock:
        probes = _probes()
        kernel = _repeated(timed)
        if unit == "FLOP":
            peak = probes.repeated(f"probe_fma_f32_{level}", 2, _PEAK_FLOP)
        else:
            peak = _copy(int(timed.amount / 2))
        end, samples = time.monotonic() + seconds, list[_Sample]()
        while len(samples) < _LEAST_SAMPLES or (time.monotonic() < end and len(samples) < _MOST_SAMPLES):
            before, rate, after = probes.nop_rate(), kernel.rate(), probes.nop_rate()
            samples.append(_Sample(rate, peak.rate(), min(before, after)))
    best, top = max(sample.rate for sample in samples), max(sample.peak for sample in samples)
    sound = [sample for sample in samples if sample.peak >= _QUIET * top]
    quiet = [sample for sample in sound if sample.nops >= _QUIET * probes.best_nops]
    contended = [sample for sample in sound if sample.nops < _QUIET * probes.best_nops]
    return {
        "rate": best / 1e9,
        "rate_median": statistics.median(sample.rate for sample in samples) / 1e9,
        "peak": top / 1e9,
        "share_best": best / top,
        "share_median": _median(sound),
        "share_quiet": _median(quiet),
        "share_contended": _median(contended),
        "samples": len(sound),
        "quiet_samples": len(quiet),
    }


def _median(samples: Collection[_Sample]) -> float | None:
    return statistics.median(sample.share for sample in samples) if samples else None


__all__ = ["Built", "build_variant", "failed", "key_of", "measure"]
