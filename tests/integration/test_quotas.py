"""Limits on submissions hold exactly, whoever submits where; who is over gets nothing stored."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.database import connect
from filaviva.errors import NotFound, Rejected
from filaviva.limits import EVERY, Limit, TenantLimits
from filaviva.operations import limits
from filaviva.operations.limits import Figures
from filaviva.operations.quotas import Quotas
from filaviva.operations.submission import Submission
from filaviva.operations.submit import Submitted, Submitter
from fixtures.retrying import Jobs
from fixtures.submissions import submission


async def put(engine: AsyncEngine, tenant: str, subject: str = "", **figures: Any) -> None:
    async with engine.begin() as connection:
        await limits.put(connection, tenant, subject, Figures(**figures), author="test")


class Producers:
    """Two producers, each with a pool and a memory of its own."""

    def __init__(self, database: str) -> None:
        self.engines = [connect(database, name=f"producer-{n}") for n in range(2)]
        self.limits = [TenantLimits(engine) for engine in self.engines]
        self.submitters = [
            Submitter(engine, _ignore, quotas=Quotas(held))
            for engine, held in zip(self.engines, self.limits, strict=True)
        ]

    async def ready(self) -> None:
        for held in self.limits:
            assert await held.step()

    async def submit(self, wanted: Sequence[Submission]) -> list[Submitted | Rejected]:
        """Submit all of them at once, by turns to the one and the other."""
        answers = await asyncio.gather(
            *(self.submitters[n % 2].submit(one) for n, one in enumerate(wanted)),
            return_exceptions=True,
        )
        assert all(isinstance(each, Submitted | Rejected) for each in answers), answers
        return answers  # type: ignore[return-value]


def _ignore(_: object) -> None:
    """Leave what was stored to nobody."""


@pytest.fixture
async def producers(database: str) -> Any:
    made = Producers(database)
    yield made
    for engine in made.engines:
        await engine.dispose()


def wanted(tenant: str, *keys: object, subject: str | None = None) -> list[Submission]:
    return [submission(tenant=tenant, idempotency_key=f"k-{key}", subject=subject) for key in keys]


def refused(answers: Sequence[Submitted | Rejected]) -> list[Rejected]:
    return [each for each in answers if isinstance(each, Rejected)]


async def test_two_producers_together_take_exactly_the_burst(
    producers: Producers, jobs: Jobs
) -> None:
    await put(jobs.engine, "acme", per_minute=0.01, burst=37)
    await producers.ready()

    answers = await producers.submit(wanted("acme", *range(200)) + wanted("other", *range(50)))

    over = refused(answers)
    assert len(over) == 163
    assert {(each.code, each.status) for each in over} == {("rate_limited", 429)}
    assert all(each.retry_after and each.retry_after > 5000 for each in over)
    stored = await jobs.all("SELECT tenant, count(*) AS n FROM filaviva.jobs GROUP BY 1")
    assert {row["tenant"]: row["n"] for row in stored} == {"acme": 37, "other": 50}


async def test_tokens_come_back_with_time_and_never_beyond_the_burst(
    producers: Producers, jobs: Jobs
) -> None:
    await put(jobs.engine, "acme", per_minute=6, burst=5)
    await producers.ready()
    assert len(refused(await producers.submit(wanted("acme", *range(9))))) == 4

    await jobs.all("UPDATE filaviva.submission_keys SET filled_at = filled_at - interval '20 s'")
    assert len(refused(await producers.submit(wanted("acme", *range(10, 19))))) == 7
    await jobs.all("UPDATE filaviva.submission_keys SET filled_at = filled_at - interval '1 day'")
    assert len(refused(await producers.submit(wanted("acme", *range(20, 29))))) == 4


async def test_what_is_kept_already_costs_no_token_and_is_never_refused(
    producers: Producers, jobs: Jobs
) -> None:
    await put(jobs.engine, "acme", per_minute=0.01, burst=2)
    await producers.ready()

    first = await producers.submit(wanted("acme", *["same"] * 40))
    again = await producers.submit(wanted("acme", "same", "second", "third"))

    assert len({each.job_id for each in first if isinstance(each, Submitted)}) == 1
    assert isinstance(again[0], Submitted)
    assert len(refused(again)) == 1


async def test_the_number_of_waiting_jobs_is_never_exceeded(
    producers: Producers, jobs: Jobs
) -> None:
    await put(jobs.engine, "acme", queued=20)
    await put(jobs.engine, "acme", EVERY, queued=15)
    await producers.ready()

    one = await producers.submit(wanted("acme", *range(60), subject="ann"))
    other = await producers.submit(wanted("acme", *range(100, 160), subject="bob"))

    assert Counter(each.code for each in refused(one)) == {"too_many_queued": 45}
    assert Counter(each.code for each in refused(other)) == {"too_many_queued": 55}
    await jobs.all("UPDATE filaviva.jobs SET state = 'running' WHERE subject = 'ann'")
    assert len(refused(await producers.submit(wanted("acme", "later", subject="ann")))) == 0


async def test_callbacks_that_wait_for_their_receiver_keep_nobody_from_submitting(
    producers: Producers, jobs: Jobs
) -> None:
    await put(jobs.engine, "acme", queued=2)
    await producers.ready()
    for _ in range(2):
        await jobs.queued(tenant="'acme'", type="'filaviva.callback'", queue="'callbacks'")

    assert len(refused(await producers.submit(wanted("acme", 1, 2, 3)))) == 1


async def test_without_limits_the_database_is_not_asked() -> None:
    quotas = Quotas(TenantLimits(None))  # type: ignore[arg-type]

    assert await quotas.refusals(None, wanted("acme", 1)) == {}  # type: ignore[arg-type]


def test_the_nearest_figure_holds_each_for_itself() -> None:
    held = TenantLimits(None)  # type: ignore[arg-type]
    held.hold(
        {
            ("*", ""): Limit(per_minute=60, burst=5, running=10),
            ("*", "*"): Limit(running=1),
            ("acme", ""): Limit(per_minute=600, queued=100),
            ("acme", "*"): Limit(queued=3),
            ("acme", "ann"): Limit(queued=30),
        }
    )

    assert held.tenant("other") == Limit(60, 5, None, 10)
    assert held.tenant("acme") == Limit(600, 600, 100, 10)
    assert held.subject("acme", "bob") == Limit(queued=3, running=1)
    assert held.subject("acme", "ann") == Limit(queued=30, running=1)
    assert held.subject("acme", None) == Limit()


async def test_limits_are_set_figure_by_figure_and_removed_as_a_whole(jobs: Jobs) -> None:
    await put(jobs.engine, "acme", per_minute=60, burst=5)
    await put(jobs.engine, "acme", running=3)
    async with jobs.engine.begin() as connection:
        (row,) = await limits.rows(connection, tenant="acme")
        await limits.remove(connection, "acme", "", author="test")
        with pytest.raises(NotFound):
            await limits.remove(connection, "acme", "", author="test")

    assert (row.per_minute, row.burst, row.queued, row.running) == (60, 5, None, 3)
    told = await jobs.all("SELECT action FROM filaviva.audit_log ORDER BY id")
    assert [each["action"] for each in told] == ["limit.set", "limit.set", "limit.removed"]


@pytest.mark.parametrize(
    ("tenant", "subject", "figures"),
    [
        ("acme", "", {}),
        ("acme", "", {"per_minute": 0}),
        ("acme", "", {"burst": 3}),
        ("acme", "", {"running": -1}),
        ("no tenant", "", {"running": 1}),
        ("*", "ann", {"running": 1}),
    ],
)
async def test_a_limit_that_makes_no_sense_is_refused(
    jobs: Jobs, tenant: str, subject: str, figures: dict[str, float]
) -> None:
    with pytest.raises(Rejected):
        await put(jobs.engine, tenant, subject, **figures)
