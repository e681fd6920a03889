"""Files that a reader sees whole or not at all."""

import json
import os
import tempfile
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step; only its owner may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(beside).replace(path)


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file in one step."""
    write_text(path, json.dumps(value, indent=2) + "\n")
