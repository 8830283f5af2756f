"""Compares build/bin/sd-cli with the unpatched builds of 'make baseline', from prompt to picture."""

import argparse
import json
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
    report = {
        "context": {"processor": processor(), **asdict(settings)},
        "benchmarks": [
            {**asdict(run), "step_seconds": run.step_seconds, "psnr_to_last": sdcli.psnr(run.picture, last.picture)}
            for run in results
        ],
    }
    print(json.dumps(report, indent=1, default=str))


if __name__ == "__main__":
    main()
