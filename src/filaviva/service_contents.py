"""Put what is too large for a message where the workers find it, before its event is published.

Before: a row of a service's outbox whose data no message can carry; the relay does not see it.
After: Filaviva keeps the data, the row names it in `dataref`, and leaves as any other.
May happen twice: after a crash between the two, or where two relays look at once; the same data is
the same content.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import canonical
from filaviva.client import Overloaded, Refusal
from filaviva.database.fetch import fetch
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.errors import Rejected, Unreachable
from filaviva.events import DEFAULT_TENANT
from filaviva.failpoints import passing
from filaviva.service import wait

log = structlog.get_logger("filaviva")

_AT_ONCE: Final = 4  # each half a megabyte at most
_REFUSED: Final = range(400, 500)
_LONGEST_ERROR: Final = 500

# Ours for longer than a put may take; whoever does it a second time does no harm.
_TAKE: Final = """
WITH due AS MATERIALIZED (
    SELECT id FROM filaviva_outbox WHERE put_at <= now()
    ORDER BY put_at LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE filaviva_outbox SET put_at = clock_timestamp() + interval '30 seconds'
WHERE id = ANY (ARRAY(SELECT id FROM due ORDER BY id))
RETURNING id, event_id, data::text, coalesce(attributes->>'tenant', $2)
"""

_REFER: Final = """
UPDATE filaviva_outbox SET data = 'null', put_at = NULL, locked_until = clock_timestamp(),
    attributes = attributes || jsonb_build_object('dataref', $2::text),
    tries = 0, error = NULL, parked_at = NULL
WHERE id = $1 AND put_at IS NOT NULL
"""

# As in the relay: doubling pauses for what may work soon, a minute for what a person looks at.
_KEEP: Final = """
UPDATE filaviva_outbox SET tries = tries + 1, error = $2,
    parked_at = CASE WHEN $3 THEN coalesce(parked_at, clock_timestamp()) ELSE parked_at END,
    put_at = clock_timestamp() + interval '1 second' * CASE WHEN $3 THEN 60
        ELSE least(60, power(2, least(tries, 6))) * (0.5 + random() / 2) END
WHERE id = $1 AND put_at IS NOT NULL
"""


class Contents(Protocol):
    """Whoever keeps contents for one tenant: a `filaviva.Client`."""

    async def put_content(self, content: Any, *, tenant: str | None = None) -> str: ...


@dataclass(frozen=True, slots=True)
class _Large:
    """A row that we have taken, and whose data is not put yet."""

    id: int
    event_id: str
    data: str
    tenant: str


@dataclass(frozen=True, slots=True)
class _NotPut:
    """Why not; `parked`: it will not work before a person has done something."""

    why: str
    parked: bool


class Putting:
    """The loop that puts them, a few at once; other events never wait for it."""

    def __init__(
        self, engine: AsyncEngine, contents: Mapping[str, Contents], *, pause: float = 0.5
    ) -> None:
        self._engine = engine
        self._contents = contents
        self._pause = pause

    async def run(self, stop: asyncio.Event) -> None:
        """Put until stopped."""
        while not stop.is_set():
            try:
                busy = await self.step() == _AT_ONCE
            except DATABASE_ERRORS as absent:
                log.info("large events wait for the database", why=said(absent))
                busy = False
            if not busy:
                await wait(stop, self._pause)

    async def step(self) -> int:
        """Put what is due, a few; return how many are on their way now."""
        taken = [_Large(*row) for row in await transact(self._engine, _take)]
        done = await asyncio.gather(*(self._put(one) for one in taken))
        return sum(done)

    async def _put(self, one: _Large) -> bool:
        answer = await self._answer(one)
        if isinstance(answer, str):
            passing("contents.put")
            await transact(self._engine, lambda on: fetch(on, _REFER, (one.id, answer)))
            return True
        kept = (one.id, answer.why[:_LONGEST_ERROR], answer.parked)
        await transact(self._engine, lambda on: fetch(on, _KEEP, kept))
        tell = log.error if answer.parked else log.warning
        tell("a large event waits", event_id=one.event_id, why=answer.why)
        return False

    async def _answer(self, one: _Large) -> str | _NotPut:
        contents = self._contents.get(one.tenant)
        if contents is None:
            return _NotPut(
                f"its data is too large for a message, and there is no API key of tenant "
                f"{one.tenant[:80]!r} to put it with: set FILAVIVA_CONTENTS__API and "
                "FILAVIVA_CONTENTS__KEYS",
                parked=True,
            )
        try:
            return await contents.put_content(canonical.parse(one.data), tenant=one.tenant)
        except (Unreachable, Overloaded) as absent:
            return _NotPut(str(absent), parked=False)
        except Refusal as refused:
            return _NotPut(str(refused), parked=refused.status in _REFUSED)
        except Rejected as unfit:  # anybody's SQL may hold more levels than any reader takes
            return _NotPut(unfit.detail, parked=True)


async def _take(connection: AsyncConnection) -> Sequence[Any]:
    return await fetch(connection, _TAKE, (_AT_ONCE, DEFAULT_TENANT))
