#!/usr/bin/env python3
"""Sets up .venv: the pinned Python packages, cmake and ninja, and PeachPy.

PeachPy has no current release on the Python package index, so it comes from the system where that has it, and else out
of the Debian package, unpacked without root.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "requirements.txt"
# Where Debian and its derivatives put the packages python3-peachpy and python3-opcodes.
SYSTEM_PACKAGES = Path("/usr/lib/python3/dist-packages")
PEACHPY_MODULES = ("peachpy", "opcodes")
DEBIAN_PACKAGES = ("python3-peachpy", "python3-opcodes")

NO_PEACHPY = """\
PeachPy is missing, and it could not be fetched ({reason}). Either
  - on Debian or Ubuntu, as root:  apt-get update && apt-get install python3-peachpy
  - elsewhere:  {python} -m pip install git+https://github.com/Maratyszcza/PeachPy
and run make again."""


def die(message: str) -> None:
    sys.exit("setup_venv: " + message)


def say(message: str) -> None:
    print("setup_venv: " + message, flush=True)


def run(*command: object) -> bool:
    return subprocess.run([str(part) for part in command]).returncode == 0


def quiet(*command: object) -> bool:
    return subprocess.run([str(part) for part in command], capture_output=True).returncode == 0


def create_venv() -> None:
    if VENV_PYTHON.exists() and quiet(VENV_PYTHON, "-c", ""):
        return
    say(f"creating {VENV.relative_to(ROOT)} with Python {sys.version.split()[0]}")
    # Without pip: Debian keeps ensurepip in a package of its own. pip itself is among the pinned packages.
    if not run(sys.executable, "-m", "venv", "--clear", "--without-pip", VENV):
        die(f"'{sys.executable} -m venv' failed; on Debian or Ubuntu, install python3-venv")


def install_requirements() -> None:
    if not quiet(sys.executable, "-m", "pip", "--version"):
        die(f"{sys.executable} has no pip; on Debian or Ubuntu, install python3-pip")
    say(f"installing the packages of {REQUIREMENTS.name}")
    pip = (sys.executable, "-m", "pip", "--python", VENV_PYTHON, "--disable-pip-version-check")
    if not run(*pip, "install", "-qq", "-r", REQUIREMENTS):
        die("pip could not install the packages (its message is above)")


def has_peachpy() -> bool:
    return quiet(VENV_PYTHON, "-c", "import peachpy.x86_64")


def unpack_debian_packages(folder: Path) -> str:
    """Unpacks PeachPy's Debian packages into folder; returns why that failed, or an empty string."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return "this system has no apt-get and dpkg"

    def download() -> bool:
        return (
            subprocess.run(["apt-get", "download", *DEBIAN_PACKAGES], cwd=folder, capture_output=True).returncode == 0
        )

    if not download():
        # A fresh system has no package lists yet; only root may fetch them.
        if os.geteuid() != 0:
            return "apt-get download failed; 'apt-get update' as root may help"
        say("updating apt's package lists")
        if not quiet("apt-get", "update") or not download():
            return "apt-get download failed"
    if not all(quiet("dpkg", "-x", package, folder) for package in folder.glob("*.deb")):
        return "dpkg -x failed"
    return ""


def copy_modules(source: Path) -> None:
    site_packages = next((VENV / "lib").glob("python3.*")) / "site-packages"
    for module in PEACHPY_MODULES:
        shutil.copytree(source / module, site_packages / module, dirs_exist_ok=True)


def install_peachpy() -> None:
    if has_peachpy():
        return
    reason = ""
    if all((SYSTEM_PACKAGES / module).is_dir() for module in PEACHPY_MODULES):
        say("taking PeachPy from the system's packages")
        copy_modules(SYSTEM_PACKAGES)
    else:
        say("fetching PeachPy's Debian package")
        with tempfile.TemporaryDirectory(prefix="sdgen-") as folder:
            # apt-get drops its privileges to a user who has to be able to write here.
            Path(folder).chmod(0o777)
            reason = unpack_debian_packages(Path(folder))
            if not reason:
                copy_modules(Path(folder, *SYSTEM_PACKAGES.parts[1:]))
    if not has_peachpy():
        die(NO_PEACHPY.format(reason=reason or "it cannot be imported", python=VENV_PYTHON.relative_to(ROOT)))


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (this runs under whatever python3 is)
        die(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}; name another: make PYTHON=python3.11")
    create_venv()
    install_requirements()
    install_peachpy()


if __name__ == "__main__":
    main()
