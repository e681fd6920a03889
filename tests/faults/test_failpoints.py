"""Every station is killed at every step boundary; the ledger must still add up.

One set of jobs travels through all stations: a plain one, one with steps, one that is retried, one
that ends as a dead letter and is corrected and replayed. The named service dies as by SIGKILL at
the named place, is started again as an orchestrator would, and everything must end as if nothing
had happened.
"""

import asyncio
import json
from dataclasses import dataclass
from uuid import UUID

import httpx2
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


async def loaded(journey: Journey, why: str) -> Cargo:
    return Cargo(
        plain=await journey.submit(),
        stepped=await journey.submit(steps=2),
        retried=await journey.submit(failures=1, steps=1),
        dead=await journey.submit("correctable", good=False, why=why),
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
        except httpx2.TransportError:
            return False
        return answer.status_code in (202, 409)

    await until(taken, seconds=40, every=0.1)


@pytest.mark.timeout(240)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("station", "point"), POINTS)
async def test_a_station_killed_there_loses_and_doubles_nothing(
    standing: Journey, station: str, point: str
) -> None:
    journey = standing
    why = point.translate(str.maketrans("._", "  "))
    victim = await journey.restart(station, failpoints=f"{point}=exit")

    reviving = asyncio.create_task(_revive(journey, station))
    cargo = await loaded(journey, why)
    await replayed(journey, cargo.dead)
    await journey.succeeded(*cargo.all, seconds=60)
    await nothing_is_left(journey, cargo)
    await it_was_told_once(journey, why)
    await until(lambda: not victim.alive, seconds=20)  # the last point comes after all is told
    reviving.cancel()

    assert victim.process.returncode == -9, f"{station} never came to {point}"
    await the_ledger_adds_up(journey, cargo)


async def _revive(journey: Journey, name: str) -> None:
    """Start a service again when it dies, as an orchestrator would."""
    while True:
        await until(lambda: not journey.now(name).alive, seconds=3600)
        journey.start(name)


async def nothing_is_left(journey: Journey, cargo: Cargo) -> None:
    """Every message is gone and every letter closed (I1, I4, I12)."""
    await journey.settled()
    jobs = list(cargo.all)

    async def closed() -> bool:
        open_ones = (
            "SELECT count(*) FROM filaviva.dead_letters"
            " WHERE job_id = ANY($1) AND status <> 'resolved'"
        )
        return await journey.value(open_ones, jobs) == 0

    await until(closed, seconds=30)
    unended = "SELECT count(*) FROM filaviva.attempts WHERE job_id = ANY($1) AND outcome IS NULL"
    assert await journey.value(unended, jobs) == 0


async def the_ledger_adds_up(journey: Journey, cargo: Cargo) -> None:
    """Effects once (I2), attempts bounded (I3), finished steps not run again."""
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


async def it_was_told_once(journey: Journey, why: str) -> None:
    """One alert for the cause; a death between Slack's answer and our commit tells it once more."""

    def alerts() -> int:
        return sum(why in json.dumps(post) for post in journey.slack.posts)

    # Who dies while sending keeps the channel for 30 s: so long may an answer be on its way.
    await until(alerts, seconds=80)
    assert alerts() <= 2
