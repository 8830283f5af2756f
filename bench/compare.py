"""Compares build/bin/sd-cli with the unpatched builds of 'make baseline', from prompt to picture."""

import argparse
import json
import math
import platform
from dataclasses import asdict
from pathlib import Path

import sdcli

PROGRAMS = {
    "baseline": sdcli.BUILD / "baseline" / "bin" / "sd-cli",
    "baseline-llamafile": sdcli.BUILD / "baseline-llamafile" / "bin" / "sd-cli",
    "sdgen": sdcli.BUILD / "bin" / "sd-cli",
}


def processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def best(runs: list[sdcli.Run]) -> sdcli.Run:
    return min(runs, key=lambda run: run.sampling_seconds + run.decode_seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=1, help="run each so often and take its best (default: 1)")
    parser.add_argument("--only", choices=PROGRAMS, nargs="+", default=list(PROGRAMS), help="(default: all)")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="(default: %(default)s)")
    arguments, settings = sdcli.parse_settings(__doc__, parser)

    # In turns, so that a slow minute of the machine does not fall on one program alone.
    runs: dict[str, list[sdcli.Run]] = {name: [] for name in arguments.only}
    for _ in range(arguments.repeat):
        for name in runs:
            picture = sdcli.BUILD / "compare" / f"{name}.png"
            runs[name].append(sdcli.run(PROGRAMS[name], name, settings, picture))
    results = [best(repeats) for repeats in runs.values()]

    if arguments.format == "table":
        print(f"{processor()}, {settings.threads} threads, {settings.size}x{settings.size}, {settings.steps} steps")
        print(sdcli.table(results))
        return
    last = results[-1]
    benchmarks = []
    for run in results:
        # JSON has no infinity, which the PSNR of two equal pictures is.
        psnr = sdcli.psnr(run.picture, last.picture)
        measured = {"step_seconds": run.step_seconds, "psnr_to_last": psnr if math.isfinite(psnr) else None}
        benchmarks.append({**asdict(run), **measured})
    context = {"processor": processor(), **asdict(settings)}
    print(json.dumps({"context": context, "benchmarks": benchmarks}, indent=1, default=str))


if __name__ == "__main__":
    main()
