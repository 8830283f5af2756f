"""Seeds, and what was not run here and why. Nothing is built: `make test` does that."""

from __future__ import annotations

import os
import zlib
from collections import Counter

import hypothesis
import numpy as np
import pytest

SEED = int(os.environ.get("SDGEN_SEED", "1"))

hypothesis.settings.register_profile("sdgen", derandomize=True, deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("sdgen")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on the seed and the test's name only."""
    return np.random.default_rng([SEED, zlib.crc32(request.node.name.encode())])


def pytest_report_header() -> list[str]:
    lines = [f"sdgen seed: {SEED} (SDGEN_SEED)"]
    try:
        from tests import sdgen_native as native
    except pytest.fail.Exception as absent:
        return [*lines, f"sdgen: {absent}"]
    processor = native.sdgen_processor().contents
    levels = ", ".join(native.level_name(level) for level in native.native_levels())
    return [*lines, f"sdgen processor: {processor.name.decode()}", f"sdgen levels run natively: {levels}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    try:
        from tests import sdgen_native as native
    except pytest.fail.Exception:
        return
    missing = Counter(kernel.level for kernel in native.kernels() if not native.runs_natively(kernel.level))
    for level, count in sorted(missing.items()):
        terminalreporter.write_line(
            f"not run natively: {count} kernels of level {native.level_name(level)}, which this processor does not have"
        )
