"""Makes the source trees under build/src: stable-diffusion.cpp as it is (upstream) and with patches/ applied (patched).

The source is a pinned source distribution, fetched once with pip and checked on every use, or the user's own checkout,
named by SDCPP_SRC, which is only read.
"""

import filecmp
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"

REQUIREMENT = "stable-diffusion-cpp-python==0.4.7"
ARCHIVE = BUILD / "download" / "stable_diffusion_cpp_python-0.4.7.tar.gz"
ARCHIVE_SHA256 = "998d1957260dd5ae4e18a8acc0c14b0a8757aaa9f96515197b6d5bbf46df9282"
# The trees that can be made.
KINDS = ("upstream", "patched")
# The folder of the archive that is taken.
ARCHIVE_FOLDER = "stable_diffusion_cpp_python-0.4.7/vendor/stable-diffusion.cpp/"


def die(message: str) -> NoReturn:
    sys.exit("sources: " + message)


def say(message: str) -> None:
    print("sources: " + message, flush=True)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_archive() -> None:
    """Leaves the checked source distribution at ARCHIVE."""
    if ARCHIVE.exists():
        found = sha256(ARCHIVE)
        if found == ARCHIVE_SHA256:
            return
        say(f"{shown(ARCHIVE)} is corrupt (SHA-256 {found}, not {ARCHIVE_SHA256}): fetching it again")
    else:
        say(f"fetching {REQUIREMENT} (20 MB)")
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        # pip wants the package's metadata even of what it only downloads; without isolation it makes that with the
        # build backend that is in .venv, in two seconds instead of thirty.
        options = ["--disable-pip-version-check", "-qq", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
        command = [sys.executable, "-m", "pip", "download", *options, "--no-binary", ":all:", "-d", folder, REQUIREMENT]
        if subprocess.run(command).returncode != 0:
            die(f"pip could not fetch {REQUIREMENT} (its message is above)")
        fetched = Path(folder, ARCHIVE.name)
        found = sha256(fetched)
        if found != ARCHIVE_SHA256:
            die(f"what pip fetched for {REQUIREMENT} has SHA-256 {found}, not {ARCHIVE_SHA256}: it is not used")
        fetched.replace(ARCHIVE)


def unpack_archive(target: Path) -> None:
    say(f"unpacking {shown(ARCHIVE)}")
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            if member.isfile() and member.name.startswith(ARCHIVE_FOLDER):
                member.name = member.name.removeprefix(ARCHIVE_FOLDER)
                archive.extract(member, target, filter="data")


def copy_checkout(checkout: Path, target: Path) -> None:
    for needed in ("CMakeLists.txt", "src", "ggml/CMakeLists.txt"):
        if not (checkout / needed).exists():
            die(
                f"SDCPP_SRC={checkout} is no checkout of stable-diffusion.cpp: it has no {needed}"
                " (for ggml, 'git submodule update --init --recursive')"
            )

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name == ".git" or Path(folder, name, "CMakeCache.txt").exists()]

    say(f"copying {checkout}")
    shutil.copytree(checkout, target, symlinks=True, ignore=left_out, dirs_exist_ok=True)


def patch_files() -> list[Path]:
    return sorted((ROOT / "patches").glob("*/*.patch"))


def apply_patches(tree: Path, origin: str) -> None:
    # With the ceiling git sees no repository around the tree and applies the patch as plain files.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent), "LC_ALL": "C"}
    for patch in patch_files():
        command = ["git", "apply", "--whitespace=nowarn", str(patch)]
        result = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        if result.returncode != 0:
            places = re.findall(r"patch failed: (.+):(\d+)", result.stderr)
            reason = "; ".join(f"nothing in {file} near line {line} matches" for file, line in places)
            die(
                f"{shown(patch)} does not apply to {origin}: {reason or result.stderr.strip()}\n"
                f"The patches are made for the sources in {REQUIREMENT}; a checkout of about that age works."
            )


def synchronize(source: Path, target: Path) -> None:
    """Makes target hold what source holds, and touches only the files that differ, so that little is compiled again."""
    wanted = {path.relative_to(source) for path in source.rglob("*") if not path.is_dir()}
    for name in wanted:
        old, new = target / name, source / name
        if new.is_symlink() or not old.is_file() or not filecmp.cmp(old, new, shallow=False):
            old.parent.mkdir(parents=True, exist_ok=True)
            old.unlink(missing_ok=True)
            # Not with the time of the archive's file, which could be older than an object made from the last one.
            shutil.copyfile(new, old, follow_symlinks=False)
            if not new.is_symlink():
                shutil.copymode(new, old)
    for path in list(target.rglob("*")):
        if not path.is_dir() and path.relative_to(target) not in wanted:
            path.unlink()


def prepare(kind: str) -> Path:
    """Makes or updates the tree, one of KINDS, and returns its folder."""
    target = BUILD / "src" / kind
    checkout = os.environ.get("SDCPP_SRC")
    stamp = BUILD / "src" / f"{kind}.stamp"
    patches = patch_files() if kind == "patched" else []
    state = "\n".join([ARCHIVE_SHA256, *(f"{sha256(patch)} {shown(patch)}" for patch in patches)])
    if not checkout:
        fetch_archive()
        if stamp.exists() and stamp.read_text() == state:
            return target
    stamp.unlink(missing_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD / "src") as folder:
        tree = Path(folder, "tree")
        tree.mkdir()
        if checkout:
            copy_checkout(Path(checkout).expanduser().resolve(), tree)
        else:
            unpack_archive(tree)
        if kind == "patched":
            apply_patches(tree, checkout or ARCHIVE.name)
        synchronize(tree, target)
    # A checkout may change between two builds, so it is looked at every time.
    if not checkout:
        stamp.write_text(state)
    return target
