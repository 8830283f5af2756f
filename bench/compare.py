"""Compares build/bin/sd-cli with the unpatched builds of 'make baseline', from prompt to picture.

With a --require option that is missed the exit status is 1; they are about sdgen beside baseline.
"""

import argparse
import json
import math
import platform
import sys
from dataclasses import asdict
from pathlib import Path

import sdcli

# What is run, with the environment variables for it.
PROGRAMS = {
    "baseline": (sdcli.BUILD / "baseline" / "bin" / "sd-cli", {}),
    "baseline-llamafile": (sdcli.BUILD / "baseline-llamafile" / "bin" / "sd-cli", {}),
    "sdgen": (sdcli.BUILD / "bin" / "sd-cli", {}),
    # What both are on a processor with AVX2 and no more.
    "baseline-avx2": (sdcli.BUILD / "baseline-avx2" / "bin" / "sd-cli", {}),
    "sdgen-avx2": (sdcli.BUILD / "bin" / "sd-cli", {"SDGEN_ISA": "avx2"}),
}
# What is compared, the faster one first.
PAIRS = [("sdgen", "baseline"), ("sdgen", "baseline-llamafile"), ("sdgen-avx2", "baseline-avx2")]


def cpuinfo(field: str) -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith(field):
                return line.split(":", 1)[1].strip()
    return ""


def processor() -> str:
    return cpuinfo("model name") or platform.processor() or platform.machine()


def has_avx512() -> bool:
    return "avx512f" in cpuinfo("flags").split()


def default_programs() -> list[str]:
    """All, but for those that would be on this processor what others are already."""
    return [name for name in PROGRAMS if has_avx512() or not name.endswith("-avx2")]


def best(runs: list[sdcli.Run]) -> sdcli.Run:
    return min(runs, key=lambda run: run.sampling_seconds + run.decode_seconds)


def missed(comparison: sdcli.Comparison, arguments: argparse.Namespace) -> list[str]:
    """What was required and is not reached, in a sentence each."""
    least = {"step": arguments.require_step, "vae": arguments.require_vae, "psnr": arguments.require_psnr}
    sentences = [
        f"{name} is {getattr(comparison, name):.2f}, required is at least {limit:g}"
        for name, limit in least.items()
        if limit is not None and getattr(comparison, name) < limit
    ]
    if arguments.require_memory is not None and comparison.memory > arguments.require_memory:
        sentences.append(f"memory is {comparison.memory:.3f}, required is at most {arguments.require_memory:g}")
    return sentences


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--repeat", type=sdcli.positive, default=1, help="run each so often and take its best (default: 1)"
    )
    parser.add_argument(
        "--only",
        choices=PROGRAMS,
        nargs="+",
        default=default_programs(),
        help="(default: all, but -avx2 only on processors that have more)",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="(default: %(default)s)")
    for name, meaning in (
        ("step", "least ratio of the times of a step"),
        ("vae", "least ratio of the times of the VAE"),
        ("psnr", "least PSNR of the pictures, in dB"),
        ("memory", "greatest ratio of the peaks of memory"),
    ):
        parser.add_argument(f"--require-{name}", type=float, metavar="X", help=meaning)
    arguments, settings = sdcli.parse_settings(__doc__, parser)
    required = any(value is not None for name, value in vars(arguments).items() if name.startswith("require_"))
    if required and not {"sdgen", "baseline"} <= set(arguments.only):
        parser.error("--require options need both sdgen and baseline")

    # In turns, so that a slow minute of the machine does not fall on one program alone.
    runs: dict[str, list[sdcli.Run]] = {name: [] for name in arguments.only}
    for _ in range(arguments.repeat):
        for name in runs:
            program, variables = PROGRAMS[name]
            picture = sdcli.BUILD / "compare" / f"{name}.png"
            runs[name].append(sdcli.run(program, name, settings, picture, variables))
    results = {name: best(repeats) for name, repeats in runs.items()}
    comparisons = [
        sdcli.compare(results[name], results[base]) for name, base in PAIRS if name in results and base in results
    ]

    if arguments.format == "table":
        print(f"{processor()}, {settings.threads} threads, {settings.size}x{settings.size}, {settings.steps} steps")
        print(sdcli.table(list(results.values()), comparisons))
    else:
        benchmarks = [{**asdict(run), "step_seconds": run.step_seconds} for run in results.values()]
        # JSON has no infinity, which the PSNR of two equal pictures is.
        ratios = [{**asdict(ratio), "psnr": ratio.psnr if math.isfinite(ratio.psnr) else None} for ratio in comparisons]
        context = {"processor": processor(), **asdict(settings)}
        result = {"context": context, "benchmarks": benchmarks, "comparisons": ratios}
        print(json.dumps(result, indent=1, default=str))
    if required and (sentences := missed(comparisons[0], arguments)):
        sys.exit("compare: " + "; ".join(sentences))


if __name__ == "__main__":
    main()
