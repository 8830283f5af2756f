"""Runs ggml's own test-backend-ops against the patched CPU backend.

It computes every case twice, with the backend as it is, so with these kernels, and with use_ref set, which keeps the
kernels out, and compares. None of its cases is written or changed by this project. That cases of ggml pass says nothing
of kernels that declined them, so what they took is counted too.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import build

# The operations that the kernels take.
OPERATIONS = ("MUL_MAT", "CONV_2D", "CONV_3D", "SOFT_MAX", "UPSCALE", "PAD")
SUMMARY = re.compile(r"(\d+)/(\d+) tests passed")
# What the runtime says at exit with SDGEN_VERBOSE=1.
TAKEN = re.compile(r"sdgen: took (\d+) of \d+ (?:other )?nodes")
# A case, and what is in its parentheses.
CASE = re.compile(r"^  (\w+)\((.+)\): (?!not supported)", re.MULTILINE)
PARAMETER = re.compile(r"(\w+)=(\[[^\]]*\]|[^,]+)")
WEIGHT_TYPES = ("f32", "f16", "bf16")
# Nodes of fewer elements may be left to ggml where nothing else is to be done with them, as runtime/ggml/plan.c has it.
FEW = 4096
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def die(message: str) -> NoReturn:
    sys.exit("test_ggml: " + message)


def kernel_fits(case: dict[str, str]) -> bool:
    """Whether the image with its padding is at least as large as the kernel with its dilation."""
    image, kernel = (json.loads(case[name]) for name in ("ne_input", "ne_kernel"))
    return all(image[i] + 2 * int(case[f"padding{i}"]) > int(case[f"dilation{i}"]) * (kernel[i] - 1) for i in range(2))


def frames_fit(case: dict[str, str]) -> bool:
    """The same of a convolution of frames."""
    return all(
        int(case[f"I{axis}"]) + 2 * int(case[f"p{i}"]) > int(case[f"d{i}"]) * (int(case[f"K{axis}"]) - 1)
        for i, axis in enumerate("WHD")
    )


def nodes_to_take(operation: str, case: dict[str, str]) -> int:
    """How many nodes of the case the kernels have to take."""
    if operation == "MUL_MAT":
        return int(case["o"]) if case["type_a"] in WEIGHT_TYPES and case["type_b"] == "f32" else 0
    if operation == "CONV_2D":
        return int(case["type_kernel"] in WEIGHT_TYPES and kernel_fits(case))
    if operation == "CONV_3D":
        return int(case["type_kernel"] in WEIGHT_TYPES and frames_fit(case))
    if operation == "SOFT_MAX":
        return int(math.prod(json.loads(case["ne"])) >= FEW)
    if operation == "PAD":
        return int(case["circular"] == "0")
    if operation == "UPSCALE" and "scale_factor" in case and case["mode"] == "nearest":
        return int(math.prod(json.loads(case["ne"])) * int(case["scale_factor"]) ** 2 >= FEW)
    return 0


def run(program: Path, operation: str) -> tuple[int, int, int]:
    """Runs the cases of one operation; returns how many they are and the nodes that kernels took and had to take."""
    # Waiting threads sleep, since other programs may have the processors too.
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ, "SDGEN_VERBOSE": "1"}
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
    summary, taken = SUMMARY.search(text), sum(map(int, TAKEN.findall(text)))
    if status != 0 or not summary or summary[1] != summary[2]:
        failed = [line for line in lines if "FAIL" in line][:20]
        sys.stderr.write("".join(failed or lines[-20:]))
        die(f"{operation}: ggml's tests failed (exit status {status})")
    if summary[2] == "0":
        die(f"{operation}: ggml has no test of this name; these are tested: {', '.join(OPERATIONS)}")
    to_take = sum(nodes_to_take(name, dict(PARAMETER.findall(case))) for name, case in CASE.findall(text))
    return int(summary[2]), taken, to_take


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operation", nargs="*", default=OPERATIONS, help=f"(default: {' '.join(OPERATIONS)})")
    operations = parser.parse_args().operation
    program = build.build("test-backend-ops")
    passed = 0
    for operation in operations:
        cases, taken, to_take = run(program, operation)
        # What the kernels do not take, ggml compares with itself.
        if taken < max(to_take, 1) and os.environ.get("SDGEN_KERNELS") != "upstream":
            die(f"{operation}: {cases} cases passed, but of the {to_take} nodes for the kernels they took {taken}")
        print(f"{operation}: {cases} cases of ggml passed, the kernels took {taken}", flush=True)
        passed += cases
    print(f"{passed} passed, 0 failed")


if __name__ == "__main__":
    main()
