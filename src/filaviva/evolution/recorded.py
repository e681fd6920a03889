"""Recorded cases: what others test their readers and publishers with. Added, never changed.

conformance/FILE.json     a list of cases, each with a name of its own
conformance/FOLDER/…      what they speak of, each file as a whole
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from filaviva.errors import ConfigurationError
from filaviva.evolution.findings import Finding
from filaviva.evolution.folder import Folder
from filaviva.evolution.goldens import RESTORE

RECORDED: Final = "conformance"


def digests(folder: Folder) -> dict[str, str]:
    """Give the hash of each case, however it is laid out, and of what they speak of."""
    root = folder.root / RECORDED
    files = [file.relative_to(folder.root).as_posix() for file in sorted(root.glob("*/**/*.json"))]
    found = {path: folder.digest(path) for path in files}
    for file in sorted(root.glob("*.json")):
        path = file.relative_to(folder.root).as_posix()
        for case in _cases(file):
            name = f"{path}: {case['name']}"
            if name in found:
                raise ConfigurationError(f"found two cases {name!r}, expected names of their own")
            found[name] = _digest(case)
    return found


def changed(folder: Folder, found: Mapping[str, str]) -> Iterator[Finding]:
    """Find what was released and is not as it was."""
    for name, digest in folder.recorded.items():
        if name not in found:
            yield Finding(None, f"{name} is released, and gone", RESTORE)
        elif found[name] != digest:
            next_step = "take it back from version control; say something else in a case more"
            yield Finding(None, f"{name} is released, and was edited", next_step)


def _cases(file: Path) -> list[dict[str, Any]]:
    try:
        # Numbers as they are written: 0.10 is not 0.1 to those who count digits.
        content = json.loads(file.read_text(encoding="utf-8"), parse_float=_number)
    except (OSError, ValueError) as broken:
        raise ConfigurationError(f"found {file}, but it cannot be read ({broken})") from None
    named = isinstance(content, list) and all(
        isinstance(case, dict) and isinstance(case.get("name"), str) for case in content
    )
    if not named:
        raise ConfigurationError(f"found {file}, expected a list of cases, each with a name")
    return list(content)


def _number(text: str) -> dict[str, str]:
    return {"$number": text}


def _digest(case: Mapping[str, Any]) -> str:
    text = json.dumps(case, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
