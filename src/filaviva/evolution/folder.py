"""The files of contracts: schemas, golden messages, and which of them are released.

schemas/TYPE/VERSION.json           what the code says
schemas/TYPE/VERSION.result.json    of what its handler returns
schemas/TYPE/VERSION.rN.json        what was released before it was widened
golden/TYPE/VERSION[.NAME].json     messages as they are sent: CloudEvents
golden/TYPE/VERSION.result[.NAME].json
conformance/…                       recorded cases, if there are any (`recorded`)
released.json                       the hashes of what never changes any more
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

import simplejson

from filaviva import canonical
from filaviva.errors import ConfigurationError
from filaviva.evolution.catalog import PARTS, Key, Part
from filaviva.evolution.writing import write_text
from filaviva_contracts import exact, wire_type

SCHEMAS: Final = "schemas"
GOLDEN: Final = "golden"
RELEASED: Final = "released.json"
_NOTE: Final = "Written by `filaviva contracts release`: what is named here never changes."
_PARTS: Final = ("files", "retired", "recorded")
_FROM_HISTORY: Final = "take it from version control, both sides of a merge"
_NAME: Final = re.compile(r"(?P<version>[1-9][0-9]*)(?P<result>\.result)?(?:\.(?P<more>.+))?\.json")
_REVISION: Final = re.compile(r"r([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Place:
    """One file: what it is of, and its path in the folder."""

    type: str
    version: int
    part: Part
    name: str | None  # r1 of a schema, any name of a golden message
    path: str

    @property
    def key(self) -> Key:
        return self.type, self.version


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder with its lock as it was when it was opened."""

    root: Path
    released: Mapping[str, str]
    retired: Mapping[str, str]
    recorded: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, root: Path) -> "Folder":
        """Read which files are released; a folder that is not there yet is an empty one."""
        path = root / RELEASED
        if not path.exists():
            return cls(root, {}, {})
        content = _json(path)
        if not _is_lock(content):
            raise ConfigurationError(
                f"found {path}, but it names no files with their hashes; {_FROM_HISTORY}"
            )
        return cls(root, *(content.get(name, {}) for name in _PARTS))

    def lock(
        self,
        files: Mapping[str, str],
        *,
        retired: Mapping[str, str] | None = None,
        recorded: Mapping[str, str] | None = None,
    ) -> None:
        """Write down what is released; what is not given stays as it is."""
        gone = self.retired if retired is None else retired
        cases = self.recorded if recorded is None else recorded
        content: dict[str, Any] = {"note": _NOTE, "files": dict(sorted(files.items()))}
        if gone:
            content["retired"] = dict(sorted(gone.items()))
        if cases:
            content["recorded"] = dict(sorted(cases.items()))
        self.write(RELEASED, content)

    def read(self, path: str) -> Any:
        """Read one file; numbers of golden messages keep every digit."""
        found = _json(self.root / path)
        # Schemas are compared with those that pydantic makes: there a fraction is a float.
        return found if path.startswith(GOLDEN) else json.loads(canonical.dumps(found))

    def exists(self, path: str) -> bool:
        """Tell whether a file is there."""
        return (self.root / path).is_file()

    def write(self, path: str, content: Any) -> None:
        """Write one file."""
        text = simplejson.dumps(content, indent=2, ensure_ascii=False, use_decimal=True)
        write_text(self.root / path, f"{text}\n")

    def digest(self, path: str) -> str:
        """Give the hash of a file, whatever ends its lines."""
        content = (self.root / path).read_bytes().replace(b"\r\n", b"\n")
        return f"sha256:{hashlib.sha256(content).hexdigest()}"

    def is_released(self, key: Key) -> bool:
        """Tell whether a version is released."""
        return any(place.key == key for place in self.places(self.released))

    def retirement(self, key: Key) -> str | None:
        """Tell why a version is not read any more; None if it should be."""
        return self.retired.get(wire_type(*key))

    def revisions(self, key: Key, part: Part) -> list[Place]:
        """Give the released schemas of one part of a version, the oldest first."""
        found = [
            place
            for place in self.places(self.released)
            if place.path.startswith(SCHEMAS)
            and (place.key, place.part) == (key, part)
            and self.exists(place.path)
        ]
        return sorted(found, key=_age)

    def schemas(self) -> list[Place]:
        """Give every schema file."""
        return self._all(SCHEMAS)

    def goldens(self) -> list[Place]:
        """Give every golden message, released or not."""
        return self._all(GOLDEN)

    def _all(self, folder: str) -> list[Place]:
        files = sorted((self.root / folder).glob("*/*"))
        return self.places(file.relative_to(self.root).as_posix() for file in files)

    def places(self, paths: Any) -> list[Place]:
        """Read paths; ConfigurationError if one says nothing."""
        return list(_places(paths, self.root))


def schema_path(key: Key, part: Part, name: str | None = None) -> str:
    """Name the file of a schema."""
    return _path(SCHEMAS, key, part, name)


def golden_path(key: Key, part: Part, name: str | None = None) -> str:
    """Name the file of a golden message."""
    return _path(GOLDEN, key, part, name)


def _path(folder: str, key: Key, part: Part, name: str | None) -> str:
    kind, version = key
    middle = ".result" if part == "result" else ""
    end = f".{name}" if name else ""
    return f"{folder}/{kind}/{version}{middle}{end}.json"


def _places(paths: Iterator[str], root: Path) -> Iterator[Place]:
    for path in paths:
        parts = PurePosixPath(path).parts
        match = _NAME.fullmatch(parts[-1]) if len(parts) == 3 else None  # noqa: PLR2004 - folder, type, file
        if match is None:
            raise ConfigurationError(
                f"found {root / path}, expected TYPE/VERSION.json, TYPE/VERSION.NAME.json, "
                "TYPE/VERSION.result.json or TYPE/VERSION.result.NAME.json"
            )
        part = PARTS[1] if match["result"] else PARTS[0]
        yield Place(parts[1], int(match["version"]), part, match["more"], path)


def _age(place: Place) -> float:
    match = _REVISION.fullmatch(place.name or "")
    return float(match[1]) if match else float("inf")


def _json(path: Path) -> Any:
    try:
        return exact.loads(path.read_bytes())
    except (OSError, exact.Malformed) as broken:
        raise ConfigurationError(
            f"found {path}, but it cannot be read ({broken}); expected a JSON file; {_FROM_HISTORY}"
        ) from None


def _is_lock(found: Any) -> bool:
    return isinstance(found, dict) and all(
        isinstance(part, dict) and all(isinstance(each, str) for each in part.values())
        for part in (found.get(name, {}) for name in _PARTS)
    )
