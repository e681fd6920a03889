"""Tell people about new failures through a Slack incoming webhook.

Before: an alert is on record. After: Slack has taken it, and it is marked.
May happen twice: Slack cannot be asked what it has; a crash after its answer and before our mark
repeats one message.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import httpx2
import structlog
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import failpoints
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.errors import ConfigurationError
from filaviva.retry_after import retry_after
from filaviva.service import wait
from filaviva.telemetry.metrics import Metrics
from filaviva_dlq_handler import alert_rows
from filaviva_dlq_handler.alert import Alert, digest_alert, failure_alert, test_alert
from filaviva_dlq_handler.alert_rows import Taken
from filaviva_dlq_handler.filing import CHANNEL

log = structlog.get_logger("filaviva")

_TIMEOUT_SECONDS = 10.0
_CAP_SECONDS = 300.0
# Slack's "invalid_blocks" and the like: the message is at fault, so its words go without blocks.
_UNFIT = "Slack answered 400"


@dataclass(frozen=True, slots=True)
class Told:
    """Slack has taken the message."""


@dataclass(frozen=True, slots=True)
class Later:
    """Not now; not before so many seconds if it said so."""

    why: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Unfit:
    """Slack does not take this message as it is."""

    why: str


Answer: TypeAlias = Told | Later | Unfit


@dataclass(frozen=True, slots=True)
class Target:
    """Where alerts go and what they call this place; no webhook: nowhere."""

    webhook_url: SecretStr | None
    environment: str = "development"
    console_url: str | None = None
    pace_seconds: float = 1.0


class Slack:
    """Send what waits, one message a second at most, for as long as it takes."""

    def __init__(self, engine: AsyncEngine, target: Target, metrics: Metrics) -> None:
        url = target.webhook_url.get_secret_value() if target.webhook_url else None
        if url is not None and not url.startswith(("https://", "http://")):
            found = "FILAVIVA_SLACK__WEBHOOK_URL: found a value without https://"
            raise ConfigurationError(f"{found}, expected https://hooks.slack.com/services/…")
        self._engine = engine
        self._target = target
        self._url = url
        self._metrics = metrics
        self._known = False
        self._silent = False

    async def run(self, stop: asyncio.Event) -> None:
        """Send until stopped."""
        async with httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS) as client:
            while not stop.is_set():
                try:
                    sent = await self.step(client)
                except DATABASE_ERRORS as away:
                    log.warning("alerts wait for the database", why=said(away))
                    sent = 0
                if sent == 0:
                    await wait(stop, min(0.5, self._target.pace_seconds))

    async def step(self, client: httpx2.AsyncClient) -> int:
        """Send the next message; return how many notifications it settled."""
        taken = await transact(self._engine, self._take)
        self._known = True
        if taken is None:
            return 0
        alert = self._alert(taken)
        if self._url is None:
            return await self._drop(taken, alert)
        failpoints.passing("notify.before_send")
        answer = await self._post(client, alert, with_blocks=not _unfit(taken))
        failpoints.passing("notify.sent")
        return await self._settle(taken, alert, answer)

    async def _take(self, connection: AsyncConnection) -> Taken | None:
        if not self._known:
            await alert_rows.ensure_channel(connection, CHANNEL)
        return await alert_rows.take(connection, CHANNEL)

    def _alert(self, taken: Taken) -> Alert:
        place: dict[str, Any] = {
            "environment": self._target.environment,
            "console_url": self._target.console_url,
        }
        if taken.tester is not None:
            return test_alert(taken.tester, environment=self._target.environment)
        if taken.storm or not taken.failures:
            return digest_alert(taken.failures, **place)
        return failure_alert(taken.failures[0], **place)

    async def _post(self, client: httpx2.AsyncClient, alert: Alert, *, with_blocks: bool) -> Answer:
        body = alert.payload if with_blocks else {"text": alert.text}
        try:
            response = await client.post(self._url or "", json=body)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as unreachable:
            # The words of the error may hold the URL, which is a secret.
            return Later(f"Slack cannot be reached: {type(unreachable).__name__}")
        return _answer(response)

    async def _drop(self, taken: Taken, alert: Alert) -> int:
        why = "no webhook configured (FILAVIVA_SLACK__WEBHOOK_URL)"
        if not self._silent:
            self._silent = True
            log.warning("alerts are kept here and sent nowhere", why=why)

        async def work(connection: AsyncConnection) -> None:
            await alert_rows.dropped(connection, taken.ids, alert.plain, why)
            await alert_rows.hold(connection, CHANNEL, 0, 0)

        await transact(self._engine, work)
        self._metrics.notifications.labels(CHANNEL, "dropped").inc(len(taken.ids))
        return len(taken.ids)

    async def _settle(self, taken: Taken, alert: Alert, answer: Answer) -> int:
        async def work(connection: AsyncConnection) -> None:
            match answer:
                case Told():
                    await alert_rows.sent(connection, taken.ids, alert.plain)
                    await alert_rows.hold(connection, CHANNEL, self._target.pace_seconds, 0)
                case Unfit(why) if _unfit(taken):
                    await alert_rows.dropped(connection, taken.ids, alert.plain, why)
                    await alert_rows.hold(connection, CHANNEL, self._target.pace_seconds, 0, why)
                case Unfit(why):
                    await alert_rows.again(connection, taken.ids, why)
                    await alert_rows.hold(connection, CHANNEL, self._target.pace_seconds, 0, why)
                case Later(why, seconds):
                    pause = self._pause(taken.in_a_row, seconds)
                    await alert_rows.again(connection, taken.ids, why)
                    await alert_rows.hold(connection, CHANNEL, pause, taken.in_a_row + 1, why)

        await transact(self._engine, work)
        return self._tell(taken, answer)

    def _pause(self, in_a_row: int, asked: float | None) -> float:
        doubled = min(self._target.pace_seconds * 2.0 ** min(in_a_row, 20), _CAP_SECONDS)
        jitter = random.uniform(0, doubled / 4)  # noqa: S311 - spreads, protects nothing
        return max(doubled + jitter, asked or 0.0)

    def _tell(self, taken: Taken, answer: Answer) -> int:
        match answer:
            case Told():
                outcome = "digest" if taken.storm else "sent"
                self._metrics.notifications.labels(CHANNEL, outcome).inc(len(taken.ids))
                return len(taken.ids)
            case Later(why) | Unfit(why):
                self._metrics.notifications.labels(CHANNEL, "failed").inc()
                log.warning("an alert was not taken, it stays here", why=why)
                return 0


def _unfit(taken: Taken) -> bool:
    return taken.error is not None and taken.error.startswith(_UNFIT)


def _answer(response: httpx2.Response) -> Answer:
    status, words = response.status_code, _words(response)
    if status == httpx2.codes.OK:
        # Slack's other interfaces say no with 200 and `"ok": false`.
        return Later(f"Slack said no: {words}") if '"ok":false' in words else Told()
    if status == httpx2.codes.BAD_REQUEST:
        return Unfit(f"{_UNFIT}: {words}")
    headers: Mapping[str, str] = response.headers
    asked = retry_after(headers, now=datetime.now(UTC))
    return Later(f"Slack answered {status}: {words}", asked)


def _words(response: httpx2.Response) -> str:
    words = response.text[:200]
    kind = response.headers.get("content-type", "")
    return words.replace(" ", "") if "json" in kind else words
