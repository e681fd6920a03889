"""Repeat what failed once for each Idempotency-Key: the same request again has the same answer.

Before: a wish to repeat, and the key of the request. After: in the caller's transaction it is done
and remembered, or was done before; a refusal is not remembered.
May happen twice: the second finds the first by its key; with another content it is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import canonical
from filaviva.database.fetch import fetch
from filaviva.errors import Rejected
from filaviva.operations import jobs
from filaviva.operations.corrections import Validate
from filaviva.operations.jobs import Reach
from filaviva.operations.retry import Wish, retry
from filaviva.outbox import OutboxRow
from filaviva.turns import Gate

# Whoever comes second waits here for the first one's commit.
_ENTER: Final = """
INSERT INTO filaviva.retries (tenant, key, job_id, fingerprint) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING key
"""
_KNOWN: Final = """
SELECT fingerprint, retried, refused FROM filaviva.retries WHERE tenant = $1 AND key = $2
"""
_REMEMBER: Final = """
UPDATE filaviva.retries SET retried = $3, refused = $4::int[] WHERE tenant = $1 AND key = $2
"""


@dataclass(frozen=True, slots=True)
class Key:
    """The Idempotency-Key of a request, and what the request says."""

    text: str
    fingerprint: bytes

    @classmethod
    def of(cls, text: str, job_id: UUID, body: Any) -> "Key":
        """Make the key of a request to repeat this job."""
        return cls(text, canonical.fingerprint({"job": str(job_id), "body": body}))


@dataclass(frozen=True, slots=True)
class Repeated:
    """What the request came to; `duplicate`: an earlier one with the same key did it."""

    status: str
    retried: int
    refused: Sequence[int]
    duplicate: bool = False
    messages: Sequence[OutboxRow] = ()


async def retry_once(  # noqa: PLR0913 - what, whose, how
    connection: AsyncConnection,
    job_id: UUID,
    reach: Reach,
    wish: Wish,
    key: Key | None,
    *,
    validate: Validate,
    gate: Gate | None = None,
) -> Repeated:
    """Repeat it as `retry` does, unless the key says that it is done; without a key always."""
    if key is not None and not await _first(connection, reach, key, job_id):
        return await _again(connection, reach, key, job_id)
    done = await retry(connection, job_id, reach, wish, validate=validate, gate=gate)
    if key is not None:
        arguments = (reach.tenant, key.text, len(done.jobs), list(done.refused))
        await fetch(connection, _REMEMBER, arguments)
    return Repeated(done.state, len(done.jobs), done.refused, messages=done.messages)


async def _first(connection: AsyncConnection, reach: Reach, key: Key, job_id: UUID) -> bool:
    arguments = (reach.tenant, key.text, job_id, key.fingerprint)
    return bool(await fetch(connection, _ENTER, arguments))


async def _again(connection: AsyncConnection, reach: Reach, key: Key, job_id: UUID) -> Repeated:
    job = await jobs.get(connection, job_id, reach)
    known = await fetch(connection, _KNOWN, (reach.tenant, key.text))
    if not known:  # its job was removed between two statements, and the key with it
        raise Rejected("unavailable", "try again", status=503, retry_after=1)
    ((fingerprint, retried, refused),) = known
    if bytes(fingerprint) != key.fingerprint:
        detail = "this Idempotency-Key belongs to another request to repeat: use a new key"
        raise Rejected("idempotency_key_reused", detail, status=422)
    return Repeated(job.state, retried, refused, duplicate=True)
