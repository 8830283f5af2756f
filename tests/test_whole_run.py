"""A run of all tests fails where a kernel was run by none of them, and names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import sdgen_native as native
from tests.conftest import kernels_by_level, run_nowhere
from tests.sdgen_native import REPOSITORY


def run_of(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest as if one module, which runs no kernel, were all that there is."""
    module = folder / "test_nothing.py"
    module.write_text("def test_nothing() -> None:\n    pass\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    command += ["-o", f"testpaths={module}", *options]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)


def test_kernels_that_no_test_ran_are_named(tmp_path: Path) -> None:
    done = run_of(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    for kernel in native.kernels():
        assert kernel.name in done.stdout


def test_a_part_of_the_tests_may_leave_kernels_out(tmp_path: Path) -> None:
    for options in (("-k", "nothing"), ("--collect-only",)):
        done = run_of(tmp_path, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "run nowhere" not in done.stdout


def test_one_kernel_is_enough() -> None:
    for level, names in kernels_by_level().items():
        for one in names:
            assert run_nowhere(names, names - {one}) == one, level
            assert not run_nowhere(names, names - {one}, {one})
