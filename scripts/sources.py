"""Makes the source trees under build/src: stable-diffusion.cpp as it is (upstream) and with patches/ applied (patched).

The source is a pinned source distribution, fetched once with pip and checked on every use, or the user's own checkout,
named by SDCPP_SRC, which is only read. A checkout is taken again by later builds, until SDCPP_SRC names another or is
set to nothing.
"""

import filecmp
import functools
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
# Holds the path of the checkout that was taken last.
REMEMBERED = BUILD / "src" / "checkout"
# The folder of the archive that is taken.
ARCHIVE_FOLDER = "stable_diffusion_cpp_python-0.4.7/vendor/stable-diffusion.cpp/"
# Files of a checkout that no build needs, and that may be large.
MODELS = (".ckpt", ".gguf", ".pt", ".pth", ".safetensors")


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
        # With the hash, because pip runs code of what it downloads, for the metadata, and checks the hash before that.
        # Without isolation that takes the build backend in .venv, and two seconds instead of thirty.
        requirement, files = Path(folder, "requirement.txt"), Path(folder, "files")
        requirement.write_text(f"{REQUIREMENT} --hash=sha256:{ARCHIVE_SHA256}\n")
        options = ["--disable-pip-version-check", "-qq", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
        options += ["--require-hashes", "--no-binary", ":all:", "-d", str(files), "-r", str(requirement)]
        if subprocess.run([sys.executable, "-m", "pip", "download", *options]).returncode != 0:
            die(f"pip could not fetch {REQUIREMENT} (its message is above)")
        fetched = next((file for file in files.iterdir() if sha256(file) == ARCHIVE_SHA256), None)
        if not fetched:
            die(f"what pip fetched for {REQUIREMENT} has not the SHA-256 {ARCHIVE_SHA256}: it is not used")
        fetched.replace(ARCHIVE)


def unpack_archive(target: Path) -> None:
    say(f"unpacking {shown(ARCHIVE)}")
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            contents = archive.extractfile(member) if member.name.startswith(ARCHIVE_FOLDER) else None
            if contents:  # a file
                path = target / member.name.removeprefix(ARCHIVE_FOLDER)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(contents.read())
                path.chmod(member.mode & 0o777 | 0o600)


@functools.cache
def own_checkout() -> Path | None:
    """The checkout to take: what SDCPP_SRC names, and where it is not set what it named last."""
    asked = os.environ.get("SDCPP_SRC")
    if asked is None and REMEMBERED.exists():
        asked = REMEMBERED.read_text()
        say(f"taking SDCPP_SRC={asked} like the last time ('make SDCPP_SRC= ...' takes the pinned sources)")
    if not asked:
        REMEMBERED.unlink(missing_ok=True)
        return None
    checkout = Path(asked).expanduser().resolve()
    for needed in ("CMakeLists.txt", "src", "ggml/CMakeLists.txt"):
        if not (checkout / needed).exists():
            die(
                f"SDCPP_SRC={asked} is no checkout of stable-diffusion.cpp: it has no {needed}"
                " (for ggml, 'git submodule update --init --recursive')"
            )
    REMEMBERED.parent.mkdir(parents=True, exist_ok=True)
    REMEMBERED.write_text(str(checkout))
    return checkout


def is_file(path: Path) -> bool:
    """Whether it is no folder; a link to a folder counts as a file."""
    return path.is_symlink() or not path.is_dir()


def checkout_files(checkout: Path) -> list[Path]:
    """The files to take, relative to the checkout: not git's, not those of build folders, no models."""
    files = []
    for folder, folders, names in os.walk(checkout):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if name != ".git" and not (here / name / "CMakeCache.txt").exists()]
        files += [here / name for name in links + names if name != ".git" and not name.endswith(MODELS)]
    return sorted(file.relative_to(checkout) for file in files)


def fingerprint(checkout: Path) -> str:
    """Changes when a file of the checkout does, judged as make does: by time and size."""
    digest = hashlib.sha256()
    for name in checkout_files(checkout):
        status = (checkout / name).lstat()
        digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def copy_checkout(checkout: Path, target: Path) -> None:
    say(f"copying {checkout}")
    for name in checkout_files(checkout):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(checkout / name, target / name, follow_symlinks=False)


def patch_files() -> list[Path]:
    return sorted((ROOT / "patches").glob("*/*.patch"))


def git_apply(tree: Path, patch: Path, *options: str) -> subprocess.CompletedProcess[str]:
    # With the ceiling git sees no repository around the tree and applies the patch as plain files.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent), "LC_ALL": "C"}
    command = ["git", "apply", "--whitespace=nowarn", *options, str(patch)]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


def apply_patches(tree: Path, origin: str) -> None:
    for patch in patch_files():
        if git_apply(tree, patch, "--reverse", "--check").returncode == 0:
            say(f"{shown(patch)} is already applied to {origin}")
            continue
        result = git_apply(tree, patch)
        if result.returncode != 0:
            places = re.findall(r"patch failed: (.+):(\d+)", result.stderr)
            reason = "; ".join(f"nothing in {file} near line {line} matches" for file, line in places)
            die(
                f"{shown(patch)} does not apply to {origin}: {reason or result.stderr.strip()}\n"
                f"The patches are made for the sources in {REQUIREMENT}; a checkout of about that age works."
            )


def synchronize(source: Path, target: Path) -> None:
    """Makes target hold what source holds, and touches only the files that differ, so that little is compiled again."""
    wanted = {path.relative_to(source) for path in source.rglob("*") if is_file(path)}
    # Away first with what is too much, because a folder may have become a file or a file a folder.
    for path in sorted(target.rglob("*"), reverse=True):
        if is_file(path):
            if path.relative_to(target) not in wanted:
                path.unlink()
        elif not any(path.iterdir()):
            path.rmdir()
    for name in wanted:
        old, new = target / name, source / name
        if new.is_symlink() or old.is_symlink() or not old.is_file() or not filecmp.cmp(old, new, shallow=False):
            old.parent.mkdir(parents=True, exist_ok=True)
            old.unlink(missing_ok=True)
            # Not with the time of the archive's file, which could be older than an object made from the last one.
            shutil.copyfile(new, old, follow_symlinks=False)
            if not new.is_symlink():
                shutil.copymode(new, old)


def prepare(kind: str) -> Path:
    """Makes or updates the tree, one of KINDS, and returns its folder."""
    target = BUILD / "src" / kind
    checkout = own_checkout()
    if not checkout:
        fetch_archive()
    origin = f"{checkout} {fingerprint(checkout)}" if checkout else ARCHIVE_SHA256
    stamp = BUILD / "src" / f"{kind}.stamp"
    patches = patch_files() if kind == "patched" else []
    state = "\n".join([origin, *(f"{sha256(patch)} {shown(patch)}" for patch in patches)])
    if stamp.exists() and stamp.read_text() == state:
        return target
    stamp.unlink(missing_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD / "src") as folder:
        tree = Path(folder, "tree")
        tree.mkdir()
        if checkout:
            copy_checkout(checkout, tree)
        else:
            unpack_archive(tree)
        if kind == "patched":
            apply_patches(tree, str(checkout) if checkout else ARCHIVE.name)
        synchronize(tree, target)
    stamp.write_text(state)
    return target
