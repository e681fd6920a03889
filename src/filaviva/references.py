"""References within a JSON Schema: what they name."""

from typing import Any


def named(root: Any, reference: str) -> Any:
    """Find what a reference (`#/$defs/Card`) names; KeyError if nothing does."""
    found = root
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found
