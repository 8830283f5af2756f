"""Seeds, and what was not run here and why. Nothing is built: `make test` does that."""

from __future__ import annotations

import contextlib
import functools
import os
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import hypothesis
import numpy as np
import pytest

from tests.emulator.process import Emulator

if TYPE_CHECKING:
    from tests.patched_ggml import Graphs

# What a user's tuning file says of this processor is not for tests; those of the file name one.
os.environ["SDGEN_TUNE_FILE"] = ""

SEED = int(os.environ.get("SDGEN_SEED", "1"))

hypothesis.settings.register_profile("sdgen", derandomize=True, deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("sdgen")


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that depend on the seed and the test's name only."""
    return np.random.default_rng([SEED, zlib.crc32(request.node.name.encode())])


@pytest.fixture(scope="session")
def emulators() -> Iterator[Callable[[str], Emulator]]:
    """Emulated processors by model, started when first asked for."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda model: stack.enter_context(Emulator(model)))


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Graphs:
    """The program that computes graphs by the patched ggml."""
    from tests.patched_ggml import Graphs, build

    return Graphs(build("graphs", tmp_path_factory.mktemp("graphs"), "chain-graphs", "single-graphs"))


def pytest_report_header() -> list[str]:
    lines = [f"sdgen seed: {SEED} (SDGEN_SEED)"]
    try:
        from tests import sdgen_native as native
    except pytest.fail.Exception as absent:
        return [*lines, f"sdgen: {absent}"]
    processor = native.sdgen_processor().contents
    levels = ", ".join(native.level_name(level) for level in native.native_levels())
    return [*lines, f"sdgen processor: {processor.name.decode()}", f"sdgen levels run natively: {levels}"]


@pytest.fixture(autouse=True)
def _how_a_kernel_ran(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """Notes of each test of one kernel how it runs it, for the summary."""
    parameters = getattr(request.node, "callspec", None)
    kernel = parameters and parameters.params.get("kernel")
    if kernel:
        record_property("emulated" if "emulators" in request.fixturenames else "native", kernel.name)


def kernels_run(reporter: pytest.TerminalReporter, how: str) -> set[object]:
    """The names of the kernels that tests ran in this way, and passed."""
    return {value for report in reporter.getreports("passed") for key, value in report.user_properties if key == how}


def kernels_by_level() -> dict[str, set[object]]:
    """The names of all that are built."""
    try:
        from tests import sdgen_native as native
    except pytest.fail.Exception:  # nothing is built: the tests say so
        return {}
    names: dict[str, set[object]] = {}
    for kernel in native.kernels():
        names.setdefault(native.level_name(kernel.level), set()).add(kernel.name)
    return names


def is_whole_run(config: pytest.Config) -> bool:
    """Whether all tests were asked for."""
    from_testpaths = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return from_testpaths and not config.option.keyword and not config.option.collectonly


def run_nowhere(names: set[object], *ran: set[object]) -> str:
    """Those of the kernels that no test ran, in a line; empty where there are none."""
    return ", ".join(sorted(map(str, names.difference(*ran))))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run of all tests that leaves a kernel of any level out has failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and is_whole_run(session.config) and session.exitstatus == pytest.ExitCode.OK:
        ran = [kernels_run(reporter, how) for how in ("native", "emulated")]
        if any(run_nowhere(names, *ran) for names in kernels_by_level().values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    native, emulated = (kernels_run(terminalreporter, how) for how in ("native", "emulated"))
    if not native and not emulated and not is_whole_run(config):
        return
    for level, names in kernels_by_level().items():
        terminalreporter.write_line(f"{level}: {len(names & native)} kernels native, {len(names & emulated)} emulated")
        missing = run_nowhere(names, native, emulated)
        if missing and is_whole_run(config):
            terminalreporter.write_line(f"{level}: run nowhere: {missing}", red=True)
