"""Do alerts of dead letters reach people: who sends them, when one arrived last, and a test."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.operations.doctor.finding import Finding, attention, ok, wrong
from filaviva.operations.doctor.production import trial_alert
from filaviva.operations.doctor.production.sight import Process, Sight

_OLD_DAYS: Final = 7.0
_TEST: Final = "run `filaviva doctor --production --send-test-alert`, and look at the channel"
_EXPECTED: Final = "one that arrived within the last 7 days"

_LAST: Final = """
SELECT channel, kind, extract(epoch FROM clock_timestamp() - sent_at)::float8 / 86400 AS days
FROM filaviva.notifications WHERE state = 'sent' ORDER BY sent_at DESC LIMIT 1
"""


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Look who would send; then send a test, or see when one arrived last."""
    yield _senders(sight.live("dlq-handler"))
    if sight.asked.send_test_alert:
        yield await trial_alert.send(sight.reachable(), author=sight.asked.author)
        return
    async with sight.connect() as connection:
        yield await _last(connection)


def _senders(live: Sequence[Process]) -> Finding:
    check, variable = "who sends alerts", "FILAVIVA_SLACK__WEBHOOK_URL"
    expected = "every dlq-handler has a webhook"
    if not live:
        run = "run `filaviva run dlq-handler`"
        return wrong(check, "no dlq-handler runs", run, expected=expected)
    silent = [each for each in live if not each.settings.get("slack")]
    if silent:
        found = f"{len(silent)} of {len(live)} dlq-handlers have no webhook: {silent[0].id}"
        next_step = f"set {variable} for each; docs/runbooks/FilavivaNotificationsFailing.md"
        return wrong(check, found, next_step, expected=expected)
    return ok(check, f"{len(live)} dlq-handler(s), each with a webhook")


async def _last(connection: AsyncConnection) -> Finding:
    last: Any = (await connection.exec_driver_sql(_LAST)).one_or_none()
    check = "last alert"
    if last is None:
        return wrong(check, "none has ever arrived", _TEST, expected=_EXPECTED)
    what = "a test" if last.kind == trial_alert.KIND else "an alert"
    told = f"{what} arrived {_ago(last.days)} on {last.channel}"
    if last.days > _OLD_DAYS:
        return attention(check, told, _TEST, expected=_EXPECTED)
    return ok(check, told)


def _ago(days: float) -> str:
    if days < 1:
        return f"{days * 24:.1f} hours ago"
    return f"{days:.0f} days ago"
