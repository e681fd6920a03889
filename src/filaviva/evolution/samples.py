"""Samples: outlines of real payloads, some for each version of a contract.

Before: a worker has run jobs of a type that is sampled. After: their outlines are kept, the last
seen ones, and how often each was seen. May happen twice: the same outline is counted.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.errors import ConfigurationError
from filaviva.evolution.catalog import Key
from filaviva.evolution.outline import Outline

_KEEP: Final = """
INSERT INTO filaviva.contract_samples AS known (type, version, hash, outline)
SELECT type, version, hash, outline::jsonb
FROM unnest($1::text[], $2::int[], $3::bytea[], $4::text[]) AS x(type, version, hash, outline)
ORDER BY type, version, hash
ON CONFLICT (type, version, hash) DO UPDATE SET
    seen = known.seen + 1, last_seen_at = clock_timestamp()
"""
_TRIM: Final = """
DELETE FROM filaviva.contract_samples AS sample USING (
    SELECT type, version, hash FROM filaviva.contract_samples
    WHERE (type, version, hash) IN (
        SELECT type, version, hash FROM (
            SELECT type, version, hash, row_number() OVER (
                PARTITION BY type, version ORDER BY last_seen_at DESC, hash) AS place
            FROM filaviva.contract_samples
            WHERE (type, version) IN (SELECT * FROM unnest($1::text[], $2::int[]))) AS ranked
        WHERE place > $3)
    ORDER BY type, version, hash FOR UPDATE SKIP LOCKED) AS old
WHERE (sample.type, sample.version, sample.hash) = (old.type, old.version, old.hash)
"""
_READ: Final = """
SELECT type, version, outline::text, seen, last_seen_at FROM filaviva.contract_samples
WHERE $1::text IS NULL OR type = $1 ORDER BY type, version, seen DESC, hash
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One outline of what was really sent."""

    type: str
    version: int
    outline: Outline
    seen: int = 1
    last_seen_at: datetime | None = None

    @property
    def key(self) -> Key:
        return self.type, self.version


async def keep(connection: AsyncConnection, drawn: Mapping[Key, Outline]) -> None:
    """Keep one outline for each of these versions."""
    rows = sorted((*key, *_hashed(each)) for key, each in drawn.items())
    columns = [list(column) for column in zip(*rows, strict=True)]
    await connection.exec_driver_sql(_KEEP, tuple(columns))


async def trim(connection: AsyncConnection, keys: Sequence[Key], limit: int) -> None:
    """Let the oldest go where a version has more than this."""
    types, versions = [key[0] for key in keys], [key[1] for key in keys]
    await connection.exec_driver_sql(_TRIM, (types, versions, limit))


async def read(connection: AsyncConnection, contract_type: str | None = None) -> list[Sample]:
    """Read what is kept, of one type or of all."""
    return [
        Sample(
            type=row.type,
            version=row.version,
            outline=json.loads(row.outline),
            seen=row.seen,
            last_seen_at=row.last_seen_at,
        )
        for row in await fetch(connection, _READ, (contract_type,))
    ]


def read_file(path: Path) -> list[Sample]:
    """Read what `filaviva contracts samples --json` has written."""
    try:
        items: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["items"]
        return [
            Sample(
                type=item["type"],
                version=item["version"],
                outline=item["outline"],
                seen=item.get("seen", 1),
            )
            for item in items
        ]
    except (OSError, ValueError, KeyError, TypeError) as unreadable:
        raise ConfigurationError(
            f"found {path}, which cannot be read ({unreadable}); expected what "
            "`filaviva contracts samples --json` writes"
        ) from None


def _hashed(drawn: Outline) -> tuple[bytes, str]:
    text = json.dumps(drawn, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest(), text
