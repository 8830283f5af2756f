"""winograd.h: the matrices of Winograd's algorithms as C constants, for the runtime's C form.

`python -m gen.winograd.header FILE` writes it alone, and needs no PeachPy: where no assembly is made.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gen.frames import TEMPLATES
from gen.winograd.matrices import ALGORITHMS, UPSAMPLED, literal

TEMPLATES.filters["literal"] = literal


def winograd_header() -> str:
    """The text of winograd.h."""
    return TEMPLATES.get_template("winograd.h.j2").render(algorithms={**ALGORITHMS, "up": UPSAMPLED})


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(winograd_header())
