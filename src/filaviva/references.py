"""References within a JSON Schema: what they name."""

from typing import Any

from filaviva.errors import ConfigurationError


def named(root: Any, reference: str) -> Any:
    """Find what a reference (`#/$defs/Card`) names; ConfigurationError if nothing does."""
    start, *parts = reference.split("/")
    found = root
    try:
        for part in parts:
            found = found[part.replace("~1", "/").replace("~0", "~")]
    except (LookupError, TypeError):
        start = "nothing"
    if start != "#":
        raise ConfigurationError(
            f"found the reference {reference!r}, expected a pointer to what is in the same schema"
        )
    return found
