"""A sweep on the workers of a Dask cluster: each model of processor measures every variant."""

from __future__ import annotations

import importlib
import logging
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gen.errors import UserError, absent
from gen.sweep import machine
from gen.sweep.errors import SweepError
from gen.sweep.measure import Built, build_variant, failed, measure
from gen.sweep.records import Log, Record
from gen.sweep.run import Tally, bar, count, interruptible
from gen.sweep.variants import Variant

_TIMEOUT = 10  # seconds


def sweep(variants: Sequence[Variant], log: Log, seconds: float, address: str) -> Tally:
    """Measures the variants that the log does not have, on every model of processor among the workers."""
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise SweepError(absent("--scheduler needs", error.name or "distributed")) from error
    with _client(distributed, address) as client:
        jobs = _jobs(variants, _models(client, address), log)
        tally, futures = Tally(), {}
        with interruptible(log), bar(len(jobs)) as progress:
            try:
                for variant, workers, done in jobs:
                    future = client.submit(_job, variant, done, seconds, workers=workers, pure=False)
                    futures[future] = variant
                for future in distributed.as_completed(futures, loop=client.loop):
                    _take(future, futures[future], address, log, tally)
                    progress.advance(futures[future].label)
            finally:
                with suppress(Exception):  # a scheduler that is gone has nothing to cancel
                    client.cancel([future for future in futures if not future.done()])
    if jobs and tally.impossible == len(jobs):
        raise SweepError(f"none of the variants can be made: {tally.reason}")
    return tally


@contextmanager
def _client(distributed: Any, address: str) -> Iterator[Any]:
    for name in ("distributed", "distributed.client"):  # what it says is said in a sentence below
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        # A client that is given an address that makes no sense takes long to be gone.
        distributed.comm.resolve_address(address)
        client = distributed.Client(address, timeout=_TIMEOUT, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SweepError(f"no scheduler can be reached at {address}: {why}") from error
    try:
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=_TIMEOUT)


def _models(client: Any, address: str) -> dict[str, tuple[list[str], tuple[str, ...]]]:
    """The workers and the levels of each model of processor."""
    try:
        client.run_on_scheduler(machine.model)
        told: dict[str, tuple[str, tuple[str, ...]]] = client.run(machine.describe)
    except Exception as error:  # whatever they raise, most of all that they have no gen
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SweepError(
            f"the scheduler at {address} or a worker cannot run this repository's `gen`, which has to be on the "
            f"PYTHONPATH of all of them: {why}"
        ) from error
    if not told:
        raise SweepError(f"the scheduler at {address} has no workers")
    models: dict[str, tuple[list[str], tuple[str, ...]]] = {}
    for worker, (model, levels) in told.items():
        models.setdefault(model, ([], levels))[0].append(worker)
    return models


def _jobs(
    variants: Sequence[Variant], models: dict[str, tuple[list[str], tuple[str, ...]]], log: Log
) -> list[tuple[Variant, list[str], frozenset[str]]]:
    """What is to be measured by whom, and what is done there already."""
    jobs = [
        (variant, workers, log.done(model))
        for model, (workers, levels) in models.items()
        for variant in variants
        if variant.spec.level in levels
    ]
    if not jobs:
        asked = ", ".join(sorted({variant.spec.level for variant in variants}))
        raise SweepError(f"no worker has a processor of level {asked}")
    return jobs


def _job(variant: Variant, done: Collection[str], seconds: float) -> Built | Record | str:
    """On a worker: the variant's record, what was built where there is none to make, or a sentence of what is wrong."""
    try:
        with tempfile.TemporaryDirectory(prefix="sdgen-sweep-") as folder:
            built = build_variant(variant, done, Path(folder))
            if built.broken:
                return failed(built, seconds, built.note)
            return measure(built, seconds) if built.shared else built
    except UserError as error:
        return str(error)


def _take(future: Any, variant: Variant, address: str, log: Log, tally: Tally) -> None:
    """Records what became of a job."""
    try:
        result = future.result()
    except Exception as error:
        if future.status == "cancelled":
            raise SweepError(
                f"the scheduler at {address} was lost; {len(log.records)} results are in {log.path}"
            ) from error
        tally.fail(f"{type(error).__name__}: {error}".splitlines()[0])  # a worker ended, most likely by the kernel
        return
    if isinstance(result, str):
        raise SweepError(f"a worker cannot measure {variant.label}: {result}")
    if isinstance(result, Built):
        count(tally, result.note)
    elif result.key in log.done(result.processor):
        tally.skipped += 1
    else:
        log.append(result)
        tally.add(result)
