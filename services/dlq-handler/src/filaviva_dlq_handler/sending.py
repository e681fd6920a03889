"""Send the letters of running replays, at their pace.

Before: a letter waits in a replay. After: its job is queued under a new epoch, or its message is
with the broker again.
May happen twice: the replay's row is locked while its letters go, and a job that went is queued;
a foreign message may be published twice, after a crash or a confirm that did not come, under one
message id and event id.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import canonical, failpoints
from filaviva.broker.messages import Confirmed, Outgoing, Published, Unknown
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.errors import Rejected
from filaviva.operations import batches
from filaviva.operations.corrections import corrected, validator
from filaviva.operations.requeue import requeue
from filaviva.outbox import OutboxRow
from filaviva.registry import Registry
from filaviva.service import first_of
from filaviva.telemetry.metrics import Metrics
from filaviva_dlq_handler import replay_rows
from filaviva_dlq_handler.replay_rows import Due, Replay

log = structlog.get_logger("filaviva")

# Longer than a publish can take: until then nobody else publishes the same message.
_HELD_SECONDS = 180.0
# After a confirm that did not come.
_DOUBT_SECONDS = 5.0


class Publishing(Protocol):
    """What is needed of a publisher."""

    async def publish(self, messages: Sequence[Outgoing]) -> list[Published]: ...


@dataclass(frozen=True, slots=True)
class Sent:
    """What one turn of a replay did; the messages are handed over after the commit."""

    letters: int = 0
    messages: Sequence[OutboxRow] = ()
    refused: int = 0
    jobs: frozenset[UUID] = field(default_factory=frozenset)


class Sending:
    """Walk through the running replays; several processes may do so side by side."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        engine: AsyncEngine,
        registry: Registry,
        publisher: Publishing,
        *,
        hand_over: Callable[[Sequence[OutboxRow]], None],
        metrics: Metrics,
        changed: Callable[[frozenset[UUID]], None] = lambda _: None,
        pause: float = 0.2,
        doubt: float = _DOUBT_SECONDS,
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._publisher = publisher
        self._hand_over = hand_over
        self._metrics = metrics
        self._changed = changed
        self._pause = pause
        self._doubt = doubt
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        """Look at once: a replay was started here."""
        self._wanted.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Send until stopped; while the database is away everything stays where it is."""
        while not stop.is_set():
            self._wanted.clear()
            try:
                sent = await self.step()
            except DATABASE_ERRORS as away:
                log.warning("replays wait for the database", why=said(away))
                sent = 0
            if sent == 0:
                await first_of(self._wanted, stop, seconds=self._pause)

    async def step(self) -> int:
        """Give every running replay one turn; return how many letters went."""
        async with self._engine.connect() as connection:
            running = await replay_rows.running(connection)
        total = 0
        for replay_id in running:
            total += await self._turn(replay_id)
        return total

    async def _turn(self, replay_id: UUID) -> int:
        async def work(connection: AsyncConnection) -> Sent:
            return await self._send(connection, replay_id)

        sent = await transact(self._engine, work)
        failpoints.passing("replay.committed")
        self._hand_over(sent.messages)
        self._changed(sent.jobs)
        self._metrics.replays.labels("sent").inc(sent.letters - sent.refused)
        self._metrics.replays.labels("refused").inc(sent.refused)
        return sent.letters + await self._publish_foreign(replay_id)

    async def _send(self, connection: AsyncConnection, replay_id: UUID) -> Sent:
        replay = await replay_rows.locked(connection, replay_id)
        if replay is None or not replay.running:
            return Sent()
        due = await replay_rows.due(connection, replay)
        jobs = [letter for letter in due if letter.job_id is not None]
        if not jobs:
            return Sent()
        # First, as everybody: a batch that ends at this moment must not miss what goes again.
        await batches.hold(connection, [letter.job_id for letter in jobs])
        payloads, flaws = await self._payloads(connection, replay, jobs)
        ids = [letter.job_id for letter in jobs if letter.job_id not in flaws]
        done = await requeue(
            connection,
            ids,
            author=replay.author,
            reason=replay.reason,
            payloads=payloads,
            detail={"replay": str(replay_id)},
        )
        refused = await replay_rows.mark(connection, replay_id, jobs, done.epochs, flaws)
        failpoints.passing("replay.before_commit")
        return Sent(len(jobs), done.messages, refused, frozenset(done.epochs))

    async def _payloads(
        self, connection: AsyncConnection, replay: Replay, letters: Sequence[Due]
    ) -> tuple[dict[UUID, str], dict[UUID, str]]:
        """Correct the jobs' data, those rows locked; give the new texts and what does not fit."""
        texts: dict[UUID, str] = {}
        flaws: dict[UUID, str] = {}
        if replay.patch is None:
            return texts, flaws
        patch, validate = canonical.parse(replay.patch), validator(self._registry)
        for job in await replay_rows.locked_payloads(connection, letters):
            try:
                texts[job.id] = corrected(
                    job.payload, patch, type=job.type, version=job.version, validate=validate
                )
            except Rejected as unfit:
                flaws[job.id] = unfit.detail
        return texts, flaws

    async def _publish_foreign(self, replay_id: UUID) -> int:
        """Publish what is no job of ours, with no transaction open; then mark what was taken."""
        due = await transact(self._engine, lambda c: self._hold(c, replay_id))
        if not due:
            return 0
        outgoing = [_outgoing(letter, replay_id) for letter in due]
        published = await self._publisher.publish(outgoing)
        taken: list[UUID] = []
        refused: dict[UUID, str] = {}
        doubts: dict[UUID, str] = {}
        for letter, answer in zip(due, published, strict=True):
            if isinstance(answer, Confirmed):
                taken.append(letter.id)
            else:
                told = doubts if isinstance(answer, Unknown) else refused
                told[letter.id] = f"{type(answer).__name__}: {answer.why}"
        async with self._engine.begin() as connection:
            await replay_rows.mark_foreign(connection, replay_id, taken, refused)
            await replay_rows.hold_on(connection, replay_id, doubts, self._doubt)
        self._metrics.replays.labels("succeeded").inc(len(taken))
        self._metrics.replays.labels("refused").inc(len(refused))
        return len(taken) + len(refused)

    async def _hold(self, connection: AsyncConnection, replay_id: UUID) -> Sequence[Any]:
        replay = await replay_rows.locked(connection, replay_id)
        if replay is None:
            return ()
        return await replay_rows.hold_foreign(connection, replay, _HELD_SECONDS)


def _outgoing(letter: Any, replay_id: UUID) -> Outgoing:
    # The AMQP id is new, so that no consumer takes it for the copy that died; the event's id in
    # the body stays. The broker's own notes must not travel: 3.10 drops a message by them.
    kept = {
        name: value
        for name, value in letter.headers.items()
        if isinstance(value, str | int | float) and not name.lower().startswith("x-")
    }
    return Outgoing(
        exchange=letter.exchange or "",
        routing_key=letter.routing_key or "",
        body=letter.raw,
        message_id=f"{letter.id}:{replay_id}",
        content_type=letter.content_type or "application/cloudevents+json",
        headers=kept,
        signed=True,
    )
