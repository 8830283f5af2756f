"""Runs ggml's own test-backend-ops against the patched CPU backend.

It computes every case twice, with the backend as it is, so with these kernels, and with use_ref set, which keeps the
kernels out, and compares. None of its cases is written or changed by this project.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import build

# The operations that the kernels take.
OPERATIONS = ("MUL_MAT", "CONV_2D")
SUMMARY = re.compile(r"(\d+)/(\d+) tests passed")
# What the runtime says at exit with SDGEN_VERBOSE=1.
TAKEN = re.compile(r"^sdgen: took (\d+) of (\d+) nodes", re.MULTILINE)
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def die(message: str) -> NoReturn:
    sys.exit("test_ggml: " + message)


def run(program: Path, operation: str) -> tuple[int, int]:
    """Runs the cases of one operation; returns how many there were and how many nodes the kernels took."""
    environment = {**os.environ, "SDGEN_VERBOSE": "1"}
    command = [str(program), "test", "-b", "CPU", "-o", operation]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(ESCAPES.sub("", line))
        if sys.stderr.isatty():
            print(f"\r{operation}: {sum(': OK' in said for said in lines)} passed", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(end="\r\033[K", file=sys.stderr)
    text = "".join(lines)
    status = process.wait()
    summary, taken = SUMMARY.search(text), TAKEN.search(text)
    if status != 0 or not summary or summary[1] != summary[2]:
        failed = [line for line in lines if "FAIL" in line][:20]
        sys.stderr.write("".join(failed or lines[-20:]))
        die(f"{operation}: ggml's tests failed (exit status {status})")
    if summary[2] == "0":
        die(f"{operation}: ggml has no test of this name; these are tested: {', '.join(OPERATIONS)}")
    return int(summary[2]), int(taken[1]) if taken else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operation", nargs="*", default=OPERATIONS, help=f"(default: {' '.join(OPERATIONS)})")
    operations = parser.parse_args().operation
    program = build.build("test-backend-ops")
    passed = 0
    for operation in operations:
        cases, taken = run(program, operation)
        # Where the kernels took none, ggml was compared with itself.
        if taken == 0 and os.environ.get("SDGEN_KERNELS") != "upstream":
            die(f"{operation}: {cases} cases passed, but the kernels took none of them, so nothing was tested")
        print(f"{operation}: {cases} cases of ggml passed, the kernels took {taken}", flush=True)
        passed += cases
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    main()
