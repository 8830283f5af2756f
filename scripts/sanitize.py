"""Runs the graph tests' programs with the runtime's C compiled for the address and undefined behaviour sanitizers.

Only the runtime and the programs are: ggml stays as it was built, and so do the kernels. The cases are those of
tests/native/graphs.c and reuse.c, and random ones, at every level that runs here, several threads included.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import build
from sources import BUILD, ROOT

FOLDER = BUILD / "sanitize"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g", "-O1"]
PROGRAMS = {"graphs": ["graphs", "chain-graphs", "single-graphs"], "reuse": ["reuse"]}
FORMS: list[dict[str, str]] = [{"SDGEN_KERNELS": "c"}, {"SDGEN_ISA": "avx2"}, {"SDGEN_ISA": "avx512"}]
WAYS = [{"SDGEN_TUNE": f"winograd={m}"} for m in (2, 4)]


def run(command: list[str], what: str, **environment: str) -> None:
    variables = {"OMP_WAIT_POLICY": "passive", **os.environ, **environment}
    done = subprocess.run(command, cwd=BUILD / "sd-cli", env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"sanitize: {what} failed:\n{done.stdout}{done.stderr}")


def cases_of(*parts: str) -> list[str]:
    sources = [ROOT / "tests" / "native" / f"{part}.c" for part in parts]
    return [case for source in sources for case in re.findall(r'^    \{"(\w+)", ', source.read_text(), re.MULTILINE)]


def compile_all() -> dict[str, str]:
    """The commands are those that the patched ggml was built with, but for the sanitizers and where objects go."""
    tree = BUILD / "sd-cli"
    listed = subprocess.run(
        [str(build.NINJA), "-C", str(tree), "-t", "compdb"], capture_output=True, text=True, check=True
    )
    entries = json.loads(listed.stdout[listed.stdout.index("[") :])
    runtime = [
        entry
        for entry in entries
        if Path(entry["file"]).is_relative_to(ROOT / "runtime") and entry["file"].endswith(".c")
    ]
    entries_of = {Path(entry["output"]).name + str(index): entry for index, entry in enumerate(runtime)}
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (tree / "CMakeCache.txt").read_text(), re.MULTILINE))
    FOLDER.mkdir(parents=True, exist_ok=True)
    objects, commands = [], []
    for name, entry in entries_of.items():
        objects.append(str(FOLDER / f"{name}.o"))
        words = re.sub(r" -M[DFT]( [^ -][^ ]*)?(?= )", "", entry["command"])  # ninja's list of headers is not for this
        command = [word for word in shlex.split(words) if not re.fullmatch("-O.|-Werror|-DNDEBUG", word)]
        command[command.index("-o") + 1] = objects[-1]
        commands.append([*command, *SANITIZERS])
    ggml = BUILD / "src" / "patched" / "ggml"
    parts = [part for program in PROGRAMS.values() for part in program]
    for part in parts:
        headers = [f"-I{ggml / 'include'}", "-isystem", str(ggml / "src")]
        source = str(ROOT / "tests" / "native" / f"{part}.c")
        compiler = [cache["CMAKE_C_COMPILER"], *shlex.split(cache["CMAKE_C_FLAGS"]), "-std=c17"]
        commands.append([*compiler, *SANITIZERS, *headers, "-c", source, "-o", str(FOLDER / f"{part}.o")])
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda command: run(command, f"compiling {command[-1]}"), commands))
    # What is linked before the library is not taken from it.
    libraries = [str(tree / "ggml" / "src" / f"lib{name}.a") for name in ("ggml", "ggml-cpu", "ggml-base")]
    linker = [cache["CMAKE_CXX_COMPILER"], *SANITIZERS, *shlex.split(cache["OpenMP_CXX_FLAGS"])]
    programs = {}
    for name, own in PROGRAMS.items():
        programs[name] = str(FOLDER / name)
        linked = [*(str(FOLDER / f"{part}.o") for part in own), *objects, *libraries, "-ldl", "-lm", "-lpthread"]
        run([*linker, *linked, "-o", programs[name]], f"linking {name}")
    return programs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=60, help="random graphs of each kind and level (default: 60)")
    seeds = str(parser.parse_args().seeds)
    build.build("sd-cli")
    programs = compile_all()
    graphs, cases, kept = programs["graphs"], cases_of(*PROGRAMS["graphs"]), cases_of(*PROGRAMS["reuse"])
    runs = [[graphs, case] for case in cases] + [[graphs, "pieces"], [graphs, "aborted"]]
    runs += [[graphs, "at_once", "around_attention"]]
    runs += [[graphs, kind, "0", seeds] for kind in ("random", "networks", "tight")]
    runs += [[programs["reuse"], case, threads, os.devnull] for case in kept for threads in ("1", "4")]
    for form in FORMS:
        for arguments in runs:
            run(
                arguments,
                f"{' '.join(arguments[1:])} with {form}",
                **form,
                SDGEN_VERBOSE="2",
                SDGEN_PROFILE=str(FOLDER / "trace.json"),
            )
        print(f"sanitize: {len(cases)} cases and {len(runs) - len(cases)} more runs with {form}", flush=True)
    for way in WAYS:
        run([graphs, "networks", "0", seeds], f"networks with {way}", **way, SDGEN_PROFILE=str(FOLDER / "trace.json"))
    print("sanitize: nothing found")


if __name__ == "__main__":
    main()
