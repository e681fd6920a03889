"""Events of a version that nobody handled when they came: made jobs of once a worker reads it.

Before: the event is an open letter, `unsupported_version`; its handler was published meanwhile, and
a worker that reads it runs.
After: each handler has its job, and the letter is resolved, in one commit.
May happen twice: the letter is resolved then; and the handlers' inbox knows the event.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import contents, events
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.events import Event
from filaviva.operations import failure_groups
from filaviva.operations.events import take
from filaviva.operations.readers import READERS
from filaviva.outbox import OutboxRow
from filaviva.service import wait
from filaviva.telemetry.metrics import Metrics
from filaviva_contracts.envelope import Envelope, Undecodable

log = structlog.get_logger("filaviva")

_MOST: Final = 100

# All handlers must be read by now: who has none to read it yet would park its job, and alarm again.
_READABLE: Final = f"""
WITH able AS MATERIALIZED ({READERS}),
handled AS MATERIALIZED (
    SELECT event, version FROM filaviva.contracts AS handler
    WHERE event IS NOT NULL AND deprecated_at IS NULL
    GROUP BY event, version HAVING bool_and(EXISTS (
        SELECT FROM able WHERE able.queue = handler.queue AND able.type = handler.type
        AND handler.version BETWEEN able.min AND able.max)))
SELECT letter.id, letter.group_id, letter.raw, letter.content_type, letter.headers
FROM filaviva.dead_letters AS letter
JOIN handled ON handled.event = letter.type AND handled.version = letter.version
WHERE letter.status = 'open' AND letter.reason = 'unsupported_version'
    AND letter.job_id IS NULL AND letter.raw IS NOT NULL
ORDER BY letter.id LIMIT $1 FOR NO KEY UPDATE OF letter SKIP LOCKED
"""

_RESOLVE: Final = """
UPDATE filaviva.dead_letters SET status = 'resolved', closed_at = clock_timestamp()
WHERE id = ANY($1::uuid[])
"""

# Somebody used its name for another event meanwhile: a person has to look.
_REUSED: Final = """
UPDATE filaviva.dead_letters SET reason = 'id_reused' WHERE id = ANY($1::uuid[])
"""


@dataclass(frozen=True, slots=True)
class Released:
    """What became of them; the messages are handed over after the commit."""

    letters: int = 0
    rows: Sequence[OutboxRow] = ()
    created: Mapping[UUID, str] = field(default_factory=dict)


class WaitingEvents:
    """Look now and then whether somebody reads what has waited."""

    def __init__(
        self,
        engine: AsyncEngine,
        metrics: Metrics,
        *,
        hand_over: Callable[[Sequence[OutboxRow]], None],
        pause: float = 1.0,
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._hand_over = hand_over
        self._pause = pause

    async def run(self, stop: asyncio.Event) -> None:
        """Release until stopped."""
        while not stop.is_set():
            try:
                released = await self.step()
            except DATABASE_ERRORS as away:
                log.warning("events wait for the database", why=said(away))
                released = 0
            if released == 0:
                await wait(stop, self._pause)

    async def step(self) -> int:
        """Release what can be read by now; return how many letters that were."""
        released = await transact(self._engine, release)
        self._hand_over(released.rows)
        for job_type in released.created.values():
            self._metrics.jobs_submitted.labels(job_type, "event", "accepted").inc()
        return released.letters


async def release(connection: AsyncConnection) -> Released:
    """Make jobs of the events that can be read by now, in the caller's transaction."""
    letters = (await connection.exec_driver_sql(_READABLE, (_MOST,))).all()
    read = {
        letter.id: event
        for letter in letters
        if (event := await _event(connection, letter)) is not None
    }
    if not read:
        return Released()
    taken = await take(connection, list(read.values()), queue=None)
    reused = {letter for letter, event in read.items() if event in taken.reused}
    await connection.exec_driver_sql(_REUSED, (sorted(reused),))
    await connection.exec_driver_sql(_RESOLVE, (sorted(read.keys() - reused),))
    await failure_groups.settle(connection, [one.group_id for one in letters if one.id in read])
    return Released(len(read), taken.rows, taken.created)


async def _event(connection: AsyncConnection, letter: Any) -> Event | None:
    try:
        envelope = Envelope.decode(letter.raw, letter.content_type, letter.headers)
        found = await contents.resolved(connection, envelope)
        return None if found is None else events.read(found)
    except Undecodable:  # it could be read when it was filed; a later release may be stricter
        return None
