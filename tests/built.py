"""What tests of sd-cli and of the patched ggml need to be built."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def require_sd_cli(path: Path) -> None:
    """Fails the test where `make sd-cli` has not made the file; skips it where the environment leaves it out."""
    if path.exists():
        return
    if os.environ.get("SDGEN_NO_SD_CLI") == "1":
        pytest.skip(f"SDGEN_NO_SD_CLI=1 leaves out what needs {path.name}, which is not built")
    pytest.fail(f"{path} is absent: `make sd-cli` builds it; SDGEN_NO_SD_CLI=1 leaves its tests out", pytrace=False)
