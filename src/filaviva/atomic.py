"""Files that a reader sees whole or not at all."""

import json
import os
import tempfile
from pathlib import Path
from typing import Final

_OWNER: Final = 0o600


def write_text(path: Path, text: str, *, mode: int = _OWNER) -> None:
    """Replace a file in one step; only its owner may read it, if no other mode is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    beside = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        beside.chmod(mode)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)  # it is there only if something went wrong


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file in one step."""
    write_text(path, json.dumps(value, indent=2) + "\n")
