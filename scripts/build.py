"""Builds one of the project's targets with cmake and ninja."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from sources import BUILD, KINDS, ROOT, prepare, shown

PYTHON = ROOT / ".venv" / "bin" / "python"
NINJA = PYTHON.parent / "ninja"

# What is left to ggml is built for the same processors as the kernels' lowest level. Elsewhere the compiler's own
# default stays, and the runtime computes with its portable form.
X86_64_V3 = "-march=x86-64-v3" if platform.machine() in ("x86_64", "AMD64") else ""
# Gives every ggml the targets bench-attention and bench-upstream.
BENCH_OPTIONS = {"CMAKE_PROJECT_ggml_INCLUDE": str(ROOT / "bench" / "ggml.cmake")}
SDGEN_OPTIONS = {"SDGEN_SOURCE_DIR": str(ROOT), "SDGEN_PYTHON": str(PYTHON)}
PATCHED_OPTIONS = {
    **SDGEN_OPTIONS,
    **BENCH_OPTIONS,
    "GGML_SDGEN": "ON",
    "GGML_NATIVE": "OFF",
    "GGML_LLAMAFILE": "ON",
    "GGML_BUILD_TESTS": "ON",
    "SD_SERVER_BUILD_FRONTEND": "OFF",
    "CMAKE_C_FLAGS": f"{X86_64_V3} {os.environ.get('CFLAGS', '')}".strip(),
    "CMAKE_CXX_FLAGS": f"{X86_64_V3} {os.environ.get('CXXFLAGS', '')}".strip(),
}
LLAMAFILE_OPTIONS = {**BENCH_OPTIONS, "GGML_LLAMAFILE": "ON"}
AVX2_OPTIONS = {**BENCH_OPTIONS, "GGML_NATIVE": "OFF"}


@dataclass(frozen=True)
class Target:
    source: str  # one of the trees of sources.py, or a folder of the repository
    folder: str  # under build/
    options: dict[str, str]
    ninja_target: str
    product: str  # below folder
    install: str = ""  # where the product is copied to, under build/


TARGETS = {
    "sd-cli": Target("patched", "sd-cli", PATCHED_OPTIONS, "sd-cli", "bin/sd-cli", "bin/sd-cli"),
    "test-backend-ops": Target("patched", "sd-cli", PATCHED_OPTIONS, "test-backend-ops", "bin/test-backend-ops"),
    "baseline": Target("upstream", "baseline", BENCH_OPTIONS, "sd-cli", "bin/sd-cli"),
    "baseline-llamafile": Target("upstream", "baseline-llamafile", LLAMAFILE_OPTIONS, "sd-cli", "bin/sd-cli"),
    # What upstream is on a processor with AVX2 and no more, for comparisons on one that has more.
    "baseline-avx2": Target("upstream", "baseline-avx2", AVX2_OPTIONS, "sd-cli", "bin/sd-cli"),
    "native": Target("runtime", "native", SDGEN_OPTIONS, "all", "."),
    "sdgen-bench": Target("runtime", "native", SDGEN_OPTIONS, "sdgen-bench", "bench/sdgen-bench", "bin/sdgen-bench"),
    "bench-attention": Target("patched", "sd-cli", PATCHED_OPTIONS, "bench-attention", "bin/bench-attention"),
    "bench-attention-baseline": Target("upstream", "baseline", BENCH_OPTIONS, "bench-attention", "bin/bench-attention"),
    "bench-attention-baseline-llamafile": Target(
        "upstream", "baseline-llamafile", LLAMAFILE_OPTIONS, "bench-attention", "bin/bench-attention"
    ),
    **{
        name: Target("upstream", folder, options, "bench-upstream", "bin/bench-upstream", f"bin/{name}")
        for name, folder, options in (
            ("bench-upstream", "baseline", BENCH_OPTIONS),
            ("bench-upstream-llamafile", "baseline-llamafile", LLAMAFILE_OPTIONS),
            ("bench-upstream-avx2", "baseline-avx2", AVX2_OPTIONS),
        )
    },
}


def die(message: str) -> NoReturn:
    sys.exit("build: " + message)


def run(command: list[str], failure: str) -> None:
    # With the ceiling, stable-diffusion.cpp's build does not take this repository's commit for its own.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(BUILD / "src")}
    if subprocess.run(command, env=environment).returncode != 0:
        die(f"{failure} (the message is above)")


def configure(target: Target, source: Path, folder: Path) -> None:
    """Runs cmake where its options are not those of the last time; ninja notices changed CMake files by itself."""
    # Not the script .venv/bin/cmake: a folder with spaces in its name is too much for the script's first line.
    command = [str(PYTHON), "-m", "cmake", "-S", str(source), "-B", str(folder), "-G", "Ninja"]
    command += [f"-DCMAKE_MAKE_PROGRAM={NINJA}", "-DCMAKE_BUILD_TYPE=Release"]
    command += [f"-D{name}={value}" for name, value in target.options.items()]
    compilers = {name: os.environ.get(name, "") for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS")}
    state = json.dumps([command, compilers], indent=1)
    stamp = folder / "configured.json"
    if (folder / "build.ninja").exists() and stamp.exists() and stamp.read_text() == state:
        return
    stamp.unlink(missing_ok=True)
    run([*command, "--fresh", "--log-level=WARNING"], f"cmake could not configure {shown(folder)}")
    stamp.write_text(state)


def install(product: Path, place: Path) -> None:
    if place.exists() and place.stat().st_mtime_ns == product.stat().st_mtime_ns:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place, so that a copy that runs goes on running.
    copy = place.with_suffix(".new")
    shutil.copy2(product, copy)
    copy.replace(place)


def build(name: str) -> Path:
    """Builds the target and returns where its product is."""
    target = TARGETS[name]
    source = prepare(target.source) if target.source in KINDS else ROOT / target.source
    folder = BUILD / target.folder
    configure(target, source, folder)
    jobs = str(len(os.sched_getaffinity(0)))
    run([str(NINJA), "-C", str(folder), "-j", jobs, target.ninja_target], f"{name} could not be built")
    product = folder / target.product
    if target.install:
        install(product, BUILD / target.install)
        product = BUILD / target.install
    print(f"build: {shown(product)} is ready", flush=True)
    return product


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS, nargs="+")
    for name in parser.parse_args().target:
        build(name)


if __name__ == "__main__":
    main()
