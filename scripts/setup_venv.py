#!/usr/bin/env python3
"""Sets up .venv: the pinned Python packages, cmake and ninja, and PeachPy; with --peers build/peers-venv instead.

Where all that is there it does nothing. One that was moved, or whose Python is gone, is made anew. PeachPy has no
current release on the Python package index, so it comes from the system where that has it, and else out of the Debian
package, unpacked without root.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
# For bench/peers.py, whose packages are large and of no use to anything else.
PEERS_VENV = ROOT / "build" / "peers-venv"
# In each; holds where it was made, and then a line for each requirements file that is installed.
STAMP = "installed"
BUILD_REQUIREMENTS = ROOT / "requirements.txt"
DEV_REQUIREMENTS = ROOT / "requirements-dev.txt"
PEERS_REQUIREMENTS = ROOT / "requirements-peers.txt"
# Where Debian and its derivatives put the package python3-peachpy.
SYSTEM_PACKAGES = Path("/usr/lib/python3/dist-packages")
DEBIAN_PACKAGE = "python3-peachpy"

NO_PEACHPY = """\
PeachPy is missing, and it could not be fetched ({reason}). Either
  - on Debian or Ubuntu, as root:  apt-get update && apt-get install python3-peachpy
  - elsewhere:  {python} -m pip install git+https://github.com/Maratyszcza/PeachPy
and run make again."""


def die(message: str) -> NoReturn:
    sys.exit("setup_venv: " + message)


def say(message: str) -> None:
    print("setup_venv: " + message, flush=True)


def run(*command: object) -> bool:
    return subprocess.run([str(part) for part in command]).returncode == 0


def quiet(*command: object) -> bool:
    try:
        return subprocess.run([str(part) for part in command], capture_output=True).returncode == 0
    except OSError:
        return False


def stamp_line(requirements: Path) -> str:
    return f"{requirements.name} {hashlib.sha256(requirements.read_bytes()).hexdigest()}"


def create_venv(venv: Path) -> list[str]:
    """Makes venv unless a sound one is there; returns the lines of its stamp."""
    shown = venv.relative_to(ROOT)
    if venv.is_symlink():
        die(f"{shown} is a link; what it leads to is left alone: remove the link")
    stamp = venv / STAMP
    lines = stamp.read_text().splitlines() if stamp.exists() else []
    if lines[:1] == [str(venv)] and quiet(venv / "bin" / "python", "-c", ""):
        return lines
    say(f"creating {shown} with Python {platform.python_version()}")
    # Without pip: Debian keeps ensurepip in a package of its own. pip itself is among the pinned packages.
    if not run(sys.executable, "-m", "venv", "--clear", "--without-pip", venv):
        die(f"'{sys.executable} -m venv' failed; on Debian or Ubuntu, install python3-venv")
    stamp.write_text(f"{venv}\n")
    return [str(venv)]


def install_requirements(venv: Path, files: list[Path], *options: str) -> None:
    if not quiet(sys.executable, "-m", "pip", "--version"):
        die(f"{sys.executable} has no pip; on Debian or Ubuntu, install python3-pip")
    say(f"installing the packages of {' and '.join(file.name for file in files)}")
    command = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "--disable-pip-version-check"]
    command += ["install", "-qq", *options, *(part for file in files for part in ("-r", file))]
    if not run(*command):
        die("pip could not install the packages (its message is above)")


def has_peachpy() -> bool:
    return quiet(VENV_PYTHON, "-c", "import peachpy.x86_64")


def unpack_debian_package(folder: Path) -> str:
    """Unpacks PeachPy's Debian package into folder; returns why that failed, or an empty string."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return "this system has no apt-get and dpkg"
    # With package lists of its own, because a fresh system has none and only root may fetch them for all.
    lists, cache = folder / "lists", folder / "cache"
    (lists / "partial").mkdir(parents=True)
    cache.mkdir()
    # As root, apt-get would drop its privileges to a user who may not write here.
    options = [f"Dir::State::lists={lists}", f"Dir::Cache={cache}", "APT::Sandbox::User=root"]
    apt_get = ["apt-get", *(part for option in options for part in ("-o", option))]
    environment = {**os.environ, "LC_ALL": "C"}
    said = ""
    for command in (["update"], ["download", DEBIAN_PACKAGE]):
        result = subprocess.run([*apt_get, *command], cwd=folder, env=environment, capture_output=True, text=True)
        said += result.stderr
    packages = list(folder.glob("*.deb"))
    if not packages:
        errors = [line for line in said.splitlines() if line.startswith("E:")]
        return "apt-get: " + (errors[0].removeprefix("E:").strip() if errors else "download failed")
    return "" if all(quiet("dpkg", "-x", package, folder) for package in packages) else "dpkg -x failed"


def copy_peachpy(source: Path) -> None:
    site_packages = next((VENV / "lib").glob("python3.*")) / "site-packages"
    # Renamed into place, so that a copy that is broken off is not taken for PeachPy.
    part = site_packages / "peachpy.part"
    for old in (part, site_packages / "peachpy"):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(source / "peachpy", part)
    part.rename(site_packages / "peachpy")


def install_peachpy() -> None:
    if has_peachpy():
        return
    reason = ""
    if (SYSTEM_PACKAGES / "peachpy").is_dir():
        say("taking PeachPy from the system's packages")
        copy_peachpy(SYSTEM_PACKAGES)
    else:
        say("fetching PeachPy's Debian package")
        with tempfile.TemporaryDirectory(prefix="sdgen-") as folder:
            reason = unpack_debian_package(Path(folder))
            if not reason:
                copy_peachpy(Path(folder, *SYSTEM_PACKAGES.parts[1:]))
    if not has_peachpy():
        message = NO_PEACHPY.format(reason=reason or "it cannot be imported", python=VENV_PYTHON.relative_to(ROOT))
        if platform.machine() in ("x86_64", "AMD64"):
            die(message)
        say("no PeachPy, which the build needs on x86-64 only; the generator does not run")


def set_up(venv: Path, files: list[Path]) -> None:
    lines = create_venv(venv)
    missing = [file for file in files if stamp_line(file) not in lines]
    if not missing:
        return
    if venv == PEERS_VENV:
        install_requirements(venv, missing)
    else:
        # The files are complete. Without --no-deps there would be packages that others need only to be built.
        install_requirements(venv, missing, "--no-deps")
        install_peachpy()
    others = [line for line in lines if line.split()[0] not in {file.name for file in missing}]
    (venv / STAMP).write_text("\n".join([*others, *map(stamp_line, missing)]) + "\n")


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (this runs under whatever python3 is)
        version = platform.python_version()
        die(f"Python 3.11 or newer is needed, this is {version}; name another: make PYTHON=python3.11")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dev", action="store_true", help="install what tests and benchmarks need as well")
    parser.add_argument(
        "--peers", action="store_true", help="set up build/peers-venv instead, with what make peers needs"
    )
    arguments = parser.parse_args()
    if arguments.peers:
        set_up(PEERS_VENV, [PEERS_REQUIREMENTS])
    else:
        set_up(VENV, [BUILD_REQUIREMENTS, *([DEV_REQUIREMENTS] if arguments.dev else [])])


if __name__ == "__main__":
    main()
