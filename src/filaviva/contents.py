"""Contents of events that are too large for a message: kept here, and sent by reference.

Before: JSON text. After: a row under its hash, in the caller's transaction; a message names it in
`dataref`, and whoever reads the message finds the very same text.
May happen twice: the same text of a tenant is one row.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import canonical, events
from filaviva.database.fetch import fetch
from filaviva_contracts import Envelope

PATH: Final = "/v1/contents/"
_NAME: Final = re.compile(r"sha256-([0-9a-f]{64})", re.ASCII)

_KEEP: Final = """
INSERT INTO filaviva.contents AS known (tenant, sha256, data, meaning)
VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, sha256) DO UPDATE SET used_at = clock_timestamp()
"""
_FIND: Final = """
WITH found AS MATERIALIZED (
    SELECT data, used_at FROM filaviva.contents WHERE tenant = $1 AND sha256 = $2),
used AS (
    UPDATE filaviva.contents SET used_at = clock_timestamp()
    WHERE tenant = $1 AND sha256 = $2 AND used_at < clock_timestamp() - interval '1 hour')
SELECT data FROM found
"""


@dataclass(frozen=True, slots=True)
class Content:
    """A text that is kept."""

    dataref: str
    size: int


async def keep(connection: AsyncConnection, tenant: str, text: str, value: Any) -> Content:
    """Keep JSON text; give the reference that leads to it. `value`: the text as it was parsed."""
    packed = text.encode()
    digest = hashlib.sha256(packed).digest()
    meaning = canonical.fingerprint(value)
    await connection.exec_driver_sql(_KEEP, (tenant, digest, text, meaning))
    return Content(f"{PATH}sha256-{digest.hex()}", len(packed))


async def find(connection: AsyncConnection, tenant: str, dataref: str) -> str | None:
    """Give the text that a reference leads to; None if it is another's, elsewhere, or altered."""
    named = _NAME.fullmatch(dataref.removeprefix(PATH))
    if named is None:
        return None
    digest = bytes.fromhex(named[1])
    rows = await fetch(connection, _FIND, (tenant, digest))
    text = str(rows[0][0]) if rows else None
    same = text is not None and hashlib.sha256(text.encode()).digest() == digest
    return text if same else None


async def resolved(connection: AsyncConnection, envelope: Envelope) -> Envelope | None:
    """Give an event with its content in it; None if the content is not here."""
    if envelope.dataref is None:
        return envelope
    text = await find(connection, events.tenant_of(envelope), envelope.dataref)
    return None if text is None else replace(envelope, data=text)
