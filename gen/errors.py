"""What a user of the generator's tools can get wrong."""

from __future__ import annotations


class UserError(Exception):
    """Something that was asked for cannot be; the message is one sentence that says what and what is allowed."""


def absent(who: str, package: str) -> str:
    """The sentence on a Python package that is missing; `who` ends with a verb."""
    return f"{who} {package}, which is not installed: `make venv` sets up .venv with it"
