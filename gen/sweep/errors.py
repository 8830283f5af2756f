"""What can keep a sweep or a report from being made."""

from __future__ import annotations

from gen.errors import UserError


class SweepError(UserError):
    """A sweep or a report cannot be made; the message is one sentence."""


class Interrupted(UserError):
    """The user broke a sweep off; the message says what is kept and how to go on."""
