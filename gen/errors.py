"""What a user of the generator's tools can get wrong."""

from __future__ import annotations


class UserError(Exception):
    """Something that was asked for cannot be; the message is one sentence that says what and what is allowed."""
