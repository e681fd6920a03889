"""Ids as a person types them."""

from uuid import UUID

import typer


def identifier(text: str) -> UUID:
    """Read an id; what cannot be one is a usage error."""
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter(f"found {text!r}, expected an id (a UUID)") from None


def optional(text: str | None) -> UUID | None:
    """Read an id that may be left out."""
    return None if text is None else identifier(text)
