"""The retry-scheduler as a process: real broker, real database, killed at every step."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import aio_pika
import pytest

from filaviva import outbox
from filaviva.broker.apply import apply
from filaviva.broker.messages import CONFIRMED, Outgoing
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.outbox import NewMessage
from filaviva_contracts.envelope import Envelope
from filaviva_contracts.wire import AttemptFailed, WakeUp
from fixtures.retrying import Jobs
from fixtures.waiting import until

TOPOLOGY = Topology()


class Service:
    """The process, which a test starts, kills and starts again."""

    def __init__(self, database: str, vhost: str, log: Path) -> None:
        self._environment = {
            **os.environ,
            "FILAVIVA_POSTGRES__URL": database,
            "FILAVIVA_BROKER__URL": vhost,
            "FILAVIVA_METRICS__PORT": "0",
            "FILAVIVA_WORKER__LEASE_SECONDS": "1",
        }
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, failpoints: str = "") -> None:
        """Start it, with failpoints."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "filaviva_retry_scheduler",
                env=self._environment | {"FILAVIVA_FAILPOINTS": failpoints},
                stdout=log,
                stderr=log,
            )

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; give the exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self.died()

    async def died(self) -> int:
        """Wait for its end."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), 30)


@pytest.fixture
async def service(database: str, vhost: str, tmp_path: Path) -> AsyncIterator[Service]:
    """A retry-scheduler that is not running yet, on an applied topology."""
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    service = Service(database, vhost, tmp_path / "service.log")
    yield service
    if service._process is not None:  # noqa: SLF001 - our own
        await service.end(signal.SIGKILL)


async def tell(jobs: Jobs, failed: Sequence[UUID], fence: int = 1) -> None:
    """Commit the workers' messages about failed attempts, for any relay to take."""
    messages = [
        NewMessage(
            exchange=TOPOLOGY.retry,
            routing_key="attempt.failed",
            message_id=f"{job}:failed:{fence}",
            type="filaviva.attempt.failed.v1",
            data=AttemptFailed(job_id=job, fence=fence).model_dump_json(),
            job_id=job,
        )
        for job in failed
    ]
    async with jobs.engine.begin() as connection:
        await outbox.add(connection, messages)
        await connection.exec_driver_sql("UPDATE filaviva.outbox SET locked_until = now()")


class Arrivals(list[tuple[datetime, str, Any]]):
    """When which message came: (moment, message id, data)."""

    def of(self, job: UUID) -> "list[tuple[datetime, str, Any]]":
        return [arrival for arrival in self if arrival[1].startswith(str(job))]


@asynccontextmanager
async def arrivals(vhost: str, queue: str) -> AsyncIterator[Arrivals]:
    """Collect what arrives on a queue."""
    found = Arrivals()

    async def collect(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        envelope = Envelope.decode(message.body, message.content_type, message.headers)
        found.append((datetime.now(UTC), str(message.message_id), envelope.data))
        await message.ack()

    async with await aio_pika.connect(vhost) as connection:
        channel = await connection.channel()
        await (await channel.get_queue(queue)).consume(collect)
        yield found


def decided(jobs: Jobs, wanted: Sequence[UUID]) -> Callable[[], Any]:
    async def all_queued() -> bool:
        rows = await jobs.all("SELECT id FROM filaviva.jobs WHERE state = 'queued'")
        return {row["id"] for row in rows} >= set(wanted)

    return all_queued


@pytest.mark.broker
async def test_the_wake_up_comes_when_the_pause_is_over_and_not_before(
    jobs: Jobs, vhost: str, service: Service
) -> None:
    await jobs.policy(base=1, cap=10, jitter=0.5)
    await service.start()
    async with arrivals(vhost, TOPOLOGY.work("llm")) as woken:
        waiting = [await jobs.failing() for _ in range(10)]
        await tell(jobs, waiting)
        await until(lambda: len(woken) == 10, seconds=40)

    for job in waiting:
        ((moment, message_id, data),) = woken.of(job)
        not_before = (await jobs.row(job))["not_before"]
        assert timedelta(0) <= moment - not_before < timedelta(seconds=5)
        assert message_id == f"{job}:2:1"
        assert WakeUp.model_validate_json(data).epoch == 2
    assert await service.end() == 0


async def test_killed_at_every_step_in_turn_it_decides_once_and_nothing_is_lost(
    jobs: Jobs, vhost: str, service: Service
) -> None:
    await jobs.policy(base=0.2, cap=0.2, jitter=0)
    waiting: list[UUID] = []
    async with arrivals(vhost, TOPOLOGY.work("llm")) as woken:
        for place in (
            "decide.received",
            "decide.before_commit",
            "decide.committed",
            "relay.published",
            "relay.confirmed",
        ):
            some = [await jobs.failing(lease="1 hour") for _ in range(10)]
            waiting += some
            await tell(jobs, some)
            await service.start(f"{place}=exit")
            assert await service.died() == -signal.SIGKILL
        # Rows that the dead relays had locked are free again after their time.
        await jobs.all("UPDATE filaviva.outbox SET locked_until = now()")
        await service.start()
        await until(decided(jobs, waiting), seconds=60)
        await until(lambda: all(map(woken.of, waiting)), seconds=60)

    for job in waiting:
        assert {message_id for _, message_id, _ in woken.of(job)} == {f"{job}:2:1"}
        assert (await jobs.row(job))["failures"] == 1


async def test_killed_while_it_sweeps_and_reconciles_it_does_so_when_it_is_back(
    jobs: Jobs, vhost: str, service: Service
) -> None:
    lost = await jobs.queued(queued_at="now() - interval '1 hour'")
    gone = await jobs.running(lease="-1 s")
    async with arrivals(vhost, TOPOLOGY.work("llm")) as woken:
        for place in ("reconcile.before_commit", "sweep.before_commit"):
            await service.start(f"{place}=exit")
            assert await service.died() == -signal.SIGKILL
        await service.start()
        await until(lambda: woken.of(lost) and woken.of(gone), seconds=60)

    assert (await jobs.row(lost))["epoch"] == 1
    row = await jobs.row(gone)
    assert (row["epoch"], row["fence"], row["losses"]) == (2, 2, 1)


async def test_failures_that_came_while_it_was_stopped_are_worked_off(
    jobs: Jobs, vhost: str, service: Service
) -> None:
    waiting = [await jobs.failing(ended="1 hour", lease="1 hour") for _ in range(250)]
    await publish(
        vhost,
        *(
            Outgoing(
                exchange=TOPOLOGY.retry,
                routing_key="llm",
                message_id=f"{job}:failed:1",
                body=Envelope.of(
                    AttemptFailed(job_id=job, fence=1), id=str(job), source="filaviva"
                ).encode(),
            )
            for job in waiting
        ),
    )

    async with arrivals(vhost, TOPOLOGY.work("llm")) as woken:
        await service.start()
        await until(lambda: all(map(woken.of, waiting)), seconds=40)

    assert len(woken) == 250
    assert await service.end() == 0


async def publish(vhost: str, *messages: Outgoing) -> None:
    publisher = Publisher(vhost)
    assert await publisher.publish(messages) == [CONFIRMED] * len(messages)
    await publisher.close()


async def test_bytes_that_nobody_can_read_arrive_at_the_dead_letters(
    jobs: Jobs, vhost: str, service: Service
) -> None:
    job = await jobs.failing()
    broken = Outgoing(exchange=TOPOLOGY.retry, routing_key="x", message_id="bad", body=b"\xff\x00{")
    await publish(vhost, broken)
    await service.start()
    await tell(jobs, [job])

    await until(decided(jobs, [job]))

    async with await aio_pika.connect(vhost) as connection:
        channel = await connection.channel()
        letters = await channel.get_queue(TOPOLOGY.dead_letters)

        async def letter() -> aio_pika.abc.AbstractIncomingMessage | None:
            return await letters.get(fail=False)

        found = await until(letter)
        await found.ack()
    assert (found.body, found.message_id) == (b"\xff\x00{", "bad")
    assert await service.end() == 0


async def test_a_job_that_ends_has_its_message_at_the_dead_letters(
    jobs: Jobs, vhost: str, service: Service
) -> None:
    terminal = await jobs.failing("failed")
    late = await jobs.queued(deadline="now() - interval '1 s'")
    await service.start()
    await tell(jobs, [terminal])

    async with arrivals(vhost, TOPOLOGY.dead_letters) as letters:
        await until(lambda: letters.of(terminal) and letters.of(late))

    reasons = {message_id: data for _, message_id, data in letters}
    assert '"terminal"' in reasons[f"{terminal}:dead:1"]
    assert '"expired"' in reasons[f"{late}:dead:1"]
