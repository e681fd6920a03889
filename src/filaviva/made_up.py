"""Idempotency keys that nobody chose: they cover the tries of one call, and no call after it.

They are marked, so that who looks can tell how many jobs have no key of their sender's own.
"""

from typing import Final
from uuid import uuid4

MADE_UP: Final = "auto:"


def made_up() -> str:
    """Make a key that nobody has used."""
    return f"{MADE_UP}{uuid4()}"
