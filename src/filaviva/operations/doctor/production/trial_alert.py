"""Have the dlq-handler send one alert that says it is a test.

Before: a dlq-handler that runs. After: whoever sends alerts has sent this one, from there, through
the same webhook, at its turn; or what Slack answered. May happen twice: each is one message.
"""

import asyncio
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import transact
from filaviva.operations import audit
from filaviva.operations.doctor.finding import Finding, ok, wrong

KIND: Final = "test"
CHANNEL: Final = "slack"
_CHECK: Final = "test alert"
_WAIT_SECONDS: Final = 25.0
_LOOK_SECONDS: Final = 0.1
_EXPECTED: Final = "Slack takes it, and a person sees it in the channel"

_ASK: Final = """
INSERT INTO filaviva.notifications (kind, channel, text) VALUES ($1, $2, $3) RETURNING id
"""
_SEE: Final = """
SELECT state, tries, error, extract(epoch FROM sent_at - created_at)::float8 AS seconds
FROM filaviva.notifications WHERE id = $1
"""
# Nobody else removes what belongs to no failure.
_FORGET: Final = """
DELETE FROM filaviva.notifications
WHERE kind = $1 AND created_at < clock_timestamp() - interval '90 days'
"""
# A test that arrives an hour later would frighten somebody.
_WITHDRAW: Final = """
UPDATE filaviva.notifications
SET state = 'dropped', error = coalesce(error, 'nobody sent it in time')
WHERE id = $1 AND state = 'waiting'
"""


async def send(engine: AsyncEngine, *, author: str, seconds: float = _WAIT_SECONDS) -> Finding:
    """Ask for it, wait for Slack's answer, and withdraw it if there is none."""

    async def ask(connection: AsyncConnection) -> int:
        await connection.exec_driver_sql(_FORGET, (KIND,))
        found = await connection.exec_driver_sql(_ASK, (KIND, CHANNEL, author))
        id_: int = found.scalar_one()
        await audit.record(connection, author=author, action="alert.tested", target=str(id_))
        return id_

    id_ = await transact(engine, ask)
    try:
        async with asyncio.timeout(seconds):
            await _settled(engine, id_)
    except TimeoutError:
        pass  # what it came to so far says why
    finally:
        await transact(engine, lambda on: on.exec_driver_sql(_WITHDRAW, (id_,)))
    return _told(await _row(engine, id_), seconds)


async def _settled(engine: AsyncEngine, id_: int) -> None:
    while True:
        row = await _row(engine, id_)
        if row.state != "waiting" or row.error is not None:
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def _row(engine: AsyncEngine, id_: int) -> Any:
    async with engine.connect() as connection:
        return (await connection.exec_driver_sql(_SEE, (id_,))).one()


def _told(row: Any, seconds: float) -> Finding:
    if row.state == "sent":
        return ok(_CHECK, f"Slack took it {row.seconds:.1f} s later: see that it is in the channel")
    if not row.tries:
        return wrong(
            _CHECK,
            f"nobody sent it within {seconds:g} s; it was withdrawn",
            "run `filaviva run dlq-handler`, and see `filaviva doctor`",
            expected=_EXPECTED,
        )
    return wrong(
        _CHECK,
        f"it was not taken: {row.error}",
        "correct FILAVIVA_SLACK__WEBHOOK_URL of the dlq-handler: "
        "docs/runbooks/FilavivaNotificationsFailing.md",
        expected=_EXPECTED,
    )
