"""The rows of running replays: whose turn it is, how many may go, what came of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database import as_dict
from filaviva.operations import failure_groups
from filaviva.operations.replay import halt

MOST_AT_ONCE = 200

# A stopped replay may have left a message of which nobody knows whether the broker has it.
_RUNNING = """
SELECT id FROM filaviva.replays AS replay WHERE state = 'running' AND EXISTS (
    SELECT FROM filaviva.replay_letters AS letter
    WHERE letter.replay_id = replay.id AND letter.state = 'waiting')
UNION
SELECT replay_id FROM filaviva.replay_letters WHERE state = 'waiting' AND held_until IS NOT NULL
ORDER BY id
"""

# One process at a time sends for a replay: only so can its pace be kept.
_LOCKED = """
SELECT id, author, reason, patch::text AS patch, rate_per_second, canary,
    state = 'running' AS running
FROM filaviva.replays WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED
"""

_PACE = """
SELECT count(*) FILTER (WHERE state = 'sent' OR held_until > clock_timestamp()) AS sent,
    count(*) FILTER (WHERE outcome IS NULL
        AND (state = 'sent' OR (state = 'waiting' AND held_until > clock_timestamp()))) AS open,
    count(*) FILTER (WHERE outcome IN ('failed', 'canceled') OR state = 'refused') AS bad,
    extract(epoch FROM clock_timestamp() - max(sent_at))::float8 AS since
FROM filaviva.replay_letters WHERE replay_id = $1
"""

_DUE = """
SELECT waiting.dead_letter_id AS id, waiting.job_id FROM filaviva.replay_letters AS waiting
WHERE waiting.replay_id = $1 AND waiting.state = 'waiting' AND waiting.job_id IS NOT NULL
ORDER BY waiting.dead_letter_id LIMIT $2
"""

# Held beyond the commit, as the outbox is: no transaction is open while we publish. Who dies
# meanwhile leaves them to another, who publishes them again under the same message ids.
_HOLD_FOREIGN = """
WITH due AS MATERIALIZED (
    SELECT dead_letter_id FROM filaviva.replay_letters
    WHERE replay_id = $1 AND state = 'waiting' AND job_id IS NULL
        AND coalesce(held_until < clock_timestamp(), $3::boolean)
    ORDER BY dead_letter_id LIMIT $2 FOR NO KEY UPDATE),
held AS (
    UPDATE filaviva.replay_letters AS waiting SET
        held_until = clock_timestamp() + make_interval(secs => $4::float8),
        sent_at = clock_timestamp()
    FROM due WHERE waiting.replay_id = $1 AND waiting.dead_letter_id = due.dead_letter_id)
SELECT letter.id, letter.exchange, letter.routing_key, letter.content_type, letter.headers,
    letter.raw
FROM filaviva.dead_letters AS letter JOIN due ON letter.id = due.dead_letter_id ORDER BY letter.id
"""

_HOLD_ON = """
WITH told AS MATERIALIZED (SELECT * FROM unnest($2::uuid[], $3::text[]) AS x(id, error)),
locked AS MATERIALIZED (
    SELECT dead_letter_id AS id FROM filaviva.replay_letters
    WHERE replay_id = $1 AND dead_letter_id = ANY($2::uuid[])
    ORDER BY dead_letter_id FOR NO KEY UPDATE)
UPDATE filaviva.replay_letters AS letter SET
    held_until = clock_timestamp() + make_interval(secs => $4::float8), error = told.error
FROM told JOIN locked USING (id)
WHERE letter.replay_id = $1 AND letter.dead_letter_id = told.id AND letter.state = 'waiting'
"""

_PAYLOADS = """
SELECT id, type, version, payload::text AS payload FROM filaviva.jobs
WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""

_MARK = """
WITH told AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::bigint[], $4::text[]) AS x(id, epoch, error)),
marked AS (
    UPDATE filaviva.replay_letters AS letter SET
        state = CASE WHEN told.epoch IS NULL THEN 'refused' ELSE 'sent' END,
        epoch = told.epoch, error = told.error,
        sent_at = CASE WHEN told.epoch IS NULL THEN NULL ELSE clock_timestamp() END
    FROM told WHERE letter.replay_id = $1 AND letter.dead_letter_id = told.id),
locked AS MATERIALIZED (
    SELECT letter.id FROM filaviva.dead_letters AS letter
    WHERE letter.id IN (SELECT id FROM told WHERE epoch IS NULL) AND letter.status = 'replaying'
    ORDER BY letter.id FOR NO KEY UPDATE)
UPDATE filaviva.dead_letters AS letter SET status = 'open', replay_id = NULL
FROM locked WHERE letter.id = locked.id
"""

_MARK_FOREIGN = """
WITH told AS MATERIALIZED (SELECT * FROM unnest($2::uuid[], $3::text[]) AS x(id, error)),
marked AS (
    UPDATE filaviva.replay_letters AS letter SET
        state = CASE WHEN told.error IS NULL THEN 'sent' ELSE 'refused' END,
        outcome = CASE WHEN told.error IS NULL THEN 'succeeded' END,
        cost_usd = 0, error = told.error, sent_at = clock_timestamp(), held_until = NULL,
        closed_at = clock_timestamp()
    FROM told WHERE letter.replay_id = $1 AND letter.dead_letter_id = told.id
        AND letter.state = 'waiting'),
locked AS MATERIALIZED (
    SELECT letter.id FROM filaviva.dead_letters AS letter
    WHERE letter.id = ANY($2::uuid[]) AND letter.status = 'replaying'
    ORDER BY letter.id FOR NO KEY UPDATE)
UPDATE filaviva.dead_letters AS letter SET
    status = CASE WHEN told.error IS NULL THEN 'resolved' ELSE 'open' END,
    closed_at = CASE WHEN told.error IS NULL THEN clock_timestamp() END
FROM told JOIN locked USING (id) WHERE letter.id = told.id
RETURNING letter.group_id
"""


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay, locked; `patch` is JSON text."""

    id: UUID
    author: str
    reason: str
    patch: str | None
    rate_per_second: float | None
    canary: int | None
    running: bool


@dataclass(frozen=True, slots=True)
class Due:
    """A letter whose turn it is."""

    id: UUID
    job_id: UUID


async def running(connection: AsyncConnection) -> list[UUID]:
    """Give the replays that have something to send."""
    return list((await connection.exec_driver_sql(_RUNNING)).scalars())


async def locked(connection: AsyncConnection, replay_id: UUID) -> Replay | None:
    """Lock the replay; None if another process is at it."""
    found = (await connection.exec_driver_sql(_LOCKED, (replay_id,))).first()
    return None if found is None else Replay(**as_dict(found))


async def due(connection: AsyncConnection, replay: Replay) -> list[Due]:
    """Give the letters that may go now; stop the replay if its canary did not survive."""
    allowed = await _allowed(connection, replay)
    if allowed == 0:
        return []
    found = await connection.exec_driver_sql(_DUE, (replay.id, allowed))
    return [Due(row.id, row.job_id) for row in found]


async def hold_foreign(
    connection: AsyncConnection, replay: Replay, seconds: float
) -> Sequence[Any]:
    """Take the foreign messages that may go now: for so long nobody else publishes them.

    Of a stopped replay only those of which nobody knows yet whether the broker has them.
    """
    allowed = await _allowed(connection, replay) if replay.running else MOST_AT_ONCE
    if allowed == 0:
        return []
    arguments = (replay.id, min(allowed, 20), replay.running, seconds)
    return (await connection.exec_driver_sql(_HOLD_FOREIGN, arguments)).all()


async def hold_on(
    connection: AsyncConnection, replay_id: UUID, doubts: Mapping[UUID, str], seconds: float
) -> None:
    """Let these messages be published again after so long; say what is not known of them."""
    ids = sorted(doubts)
    arguments = (replay_id, ids, [doubts[id_] for id_ in ids], seconds)
    await connection.exec_driver_sql(_HOLD_ON, arguments)


async def _allowed(connection: AsyncConnection, replay: Replay) -> int:
    pace = (await connection.exec_driver_sql(_PACE, (replay.id,))).one()
    allowed = MOST_AT_ONCE
    if replay.canary is not None and pace.sent <= replay.canary:
        if pace.bad:
            await halt(connection, replay.id, "the canary failed: nothing more was sent")
            return 0
        left = replay.canary - pace.sent
        allowed = left if left or pace.open else MOST_AT_ONCE
    if replay.rate_per_second is not None:
        allowed = min(allowed, _at_rate(replay.rate_per_second, pace.since))
    return allowed


def _at_rate(per_second: float, since: float | None) -> int:
    """Give how many may go: never more than one second's worth, whatever time has passed."""
    most = max(1, int(per_second))
    return 1 if since is None else min(most, int(since * per_second))


async def locked_payloads(connection: AsyncConnection, letters: Sequence[Due]) -> Sequence[Any]:
    """Lock the letters' jobs in key order and give their data as JSON text."""
    ids = sorted({letter.job_id for letter in letters})
    return (await connection.exec_driver_sql(_PAYLOADS, (ids,))).all()


async def mark(
    connection: AsyncConnection,
    replay_id: UUID,
    letters: Sequence[Due],
    epochs: Mapping[UUID, int],
    flaws: Mapping[UUID, str],
) -> int:
    """Write down which letters went and which could not; return how many could not."""
    usual = "its job is not failed, canceled or parked any more"
    sent = [epochs.get(letter.job_id) for letter in letters]
    errors = [
        None if epoch is not None else flaws.get(letter.job_id, usual)
        for letter, epoch in zip(letters, sent, strict=True)
    ]
    arguments = (replay_id, [letter.id for letter in letters], sent, errors)
    await connection.exec_driver_sql(_MARK, arguments)
    return sent.count(None)


async def mark_foreign(
    connection: AsyncConnection,
    replay_id: UUID,
    taken: Sequence[UUID],
    refused: Mapping[UUID, str],
) -> None:
    """Write down which messages the broker took, and why not the others."""
    told: dict[UUID, str | None] = {**dict.fromkeys(taken), **refused}
    ids = sorted(told)
    arguments = (replay_id, ids, [told[id_] for id_ in ids])
    groups = (await connection.exec_driver_sql(_MARK_FOREIGN, arguments)).scalars().all()
    await failure_groups.settle(connection, groups)
