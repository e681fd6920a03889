"""Every station is killed at every step boundary; the ledger must still add up.

One set of jobs travels through all stations: a plain one, one with steps, one that is retried, one
that ends as a dead letter and is corrected and replayed. The named service dies as by SIGKILL at
the named place, is started again as an orchestrator would, and everything must end as if nothing
had happened.
"""

import asyncio
from dataclasses import dataclass
from uuid import UUID

import pytest

from fixtures.journey import Journey
from fixtures.waiting import until

POINTS = [
    *[("producer", f"submit.{at}") for at in ("before_commit", "committed")],
    *[("producer", f"relay.{at}") for at in ("published", "confirmed", "deleted")],
    *[
        ("worker", point)
        for point in (
            "wakeup.received",
            "claim.before",
            "claim.committed",
            "execute.started",
            "step.before",
            "step.saved",
            "effect.before_commit",
            "complete.before",
            "complete.committed",
            "ack.sent",
            "fail.committed",
            "relay.confirmed",
        )
    ],
    *[("retry-scheduler", f"decide.{at}") for at in ("received", "before_commit", "committed")],
    ("retry-scheduler", "relay.published"),
    *[("dlq-handler", f"dead.{at}") for at in ("received", "before_commit", "committed")],
    *[("dlq-handler", f"replay.{at}") for at in ("before_commit", "committed")],
    *[("dlq-handler", f"notify.{at}") for at in ("before_send", "sent")],
]


@dataclass(frozen=True, slots=True)
class Cargo:
    """The jobs of one run."""

    plain: UUID
    stepped: UUID
    retried: UUID
    dead: UUID

    @property
    def all(self) -> tuple[UUID, ...]:
        return (self.plain, self.stepped, self.retried, self.dead)


async def loaded(journey: Journey) -> Cargo:
    return Cargo(
        plain=await journey.submit(),
        stepped=await journey.submit(steps=2),
        retried=await journey.submit(failures=1, steps=1),
        dead=await journey.submit("correctable", good=False),
    )


async def replayed(journey: Journey, job: UUID) -> None:
    """Correct and replay the job's dead letter, again as long as nobody has taken the request."""

    async def letter() -> str | None:
        found = await journey.value(
            "SELECT id::text FROM filaviva.dead_letters WHERE job_id = $1 AND status = 'open'", job
        )
        return str(found) if found else None

    body = {
        "scope": {"ids": [await until(letter, seconds=40)]},
        "patch": [{"op": "replace", "path": "/good", "value": True}],
        "reason": "corrected",
    }

    async def taken() -> bool:
        try:
            answer = await journey.call("dlq-handler", "POST", "/v1/replays", json=body)
        except OSError:
            return False
        return answer.status_code in (202, 409)

    await until(taken, seconds=40, every=0.1)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("station", "point"), POINTS)
async def test_a_station_killed_there_loses_and_doubles_nothing(
    journey: Journey, station: str, point: str
) -> None:
    others = [name for name in journey.services if name != station]
    await journey.start_all(*others)
    victim = journey.start(station, failpoints=f"{point}=exit")
    revived = Reviver(journey, station)

    async with revived:
        cargo = await loaded(journey)
        await replayed(journey, cargo.dead)
        await journey.succeeded(*cargo.all, seconds=90)

    assert victim.process.returncode == -9, f"{station} never came to {point}"
    await nothing_is_left(journey)
    await the_ledger_adds_up(journey, cargo)


class Reviver:
    """Start a service again when it dies, as an orchestrator would."""

    def __init__(self, journey: Journey, name: str) -> None:
        self._journey = journey
        self._name = name

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            await until(lambda: not self._journey.now(self._name).alive, seconds=3600)
            self._journey.start(self._name)


async def nothing_is_left(journey: Journey) -> None:
    """Every message is gone and every letter closed (I1, I4, I12)."""
    await journey.settled()

    async def closed() -> bool:
        return (
            await journey.value(
                "SELECT count(*) FROM filaviva.dead_letters WHERE status <> 'resolved'"
            )
            == 0
        )

    await until(closed, seconds=30)
    assert await journey.value("SELECT count(*) FROM filaviva.jobs") == 4
    assert await journey.value("SELECT count(*) FROM filaviva.attempts WHERE outcome IS NULL") == 0


async def the_ledger_adds_up(journey: Journey, cargo: Cargo) -> None:
    """Effects once (I2), attempts bounded (I3), finished steps not run again, one alert."""
    assert set((await journey.effects(*cargo.all)).values()) == {1}
    for job in (cargo.stepped, cargo.retried):
        repeated = await journey.fetch(
            "SELECT e.what, count(*) FROM ledger.executions e JOIN filaviva.steps s"
            " ON s.job_id = e.job_id AND s.name = e.what AND e.at > s.finished_at"
            " WHERE e.job_id = $1 GROUP BY 1", job
        )  # fmt: skip
        assert repeated == []
    for job in cargo.all:
        assert await journey.executions(job) <= 4
    groups = await journey.value("SELECT count(*) FROM filaviva.failure_groups")
    assert groups == 1

    async def alerted() -> bool:
        return len(journey.slack.posts) >= 1

    await until(alerted, seconds=20)
    # A process that dies between Slack's answer and its own commit tells it once more: never less.
    assert len(journey.slack.posts) <= 2
