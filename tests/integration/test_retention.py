"""What need not be kept is removed, as a whole and once; what somebody still needs is not."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from filaviva.settings import RetentionGroup
from filaviva_retry_scheduler.facts import RowsRemoved
from filaviva_retry_scheduler.retention import Pace, Retention
from fixtures.dying import Morgue, Sent, died, event
from fixtures.retrying import Told

OLD = "clock_timestamp() - interval '91 days'"
YOUNG = "clock_timestamp() - interval '89 days'"
ENDED = {"state": "'succeeded'", "result": "'{\"total\"\\: 1}'", "attempt": 1}
CHILDREN = ("attempts", "job_events", "steps", "llm_calls")


class Attic:
    """Old jobs, with all that belongs to them."""

    def __init__(self, morgue: Morgue, told: Told) -> None:
        self.rows = morgue
        self.told = told

    async def store(self, at: str = OLD, **columns: Any) -> UUID:
        """Store a job that ended then."""
        job = await self.rows.queued(**ENDED | {"finished_at": at} | columns)
        # As if it had been made then: ids are in the order of creation.
        old: UUID = UUID(int=(0x0180 << 112) | (job.int & ((1 << 112) - 1)))
        await self.rows.all("UPDATE filaviva.jobs SET id = :old WHERE id = :id", old=old, id=job)
        for statement in (
            "INSERT INTO filaviva.attempts (job_id, number, fence, worker) VALUES (:id, 1, 1, 'w')",
            "INSERT INTO filaviva.job_events (job_id, kind) VALUES (:id, 'state')",
            (
                "INSERT INTO filaviva.steps (job_id, revision, name, attempt, state)"
                " VALUES (:id, 1, 'fetch', 1, 'succeeded')"
            ),
            (
                "INSERT INTO filaviva.llm_calls (job_id, attempt, provider, model)"
                " VALUES (:id, 1, 'p', 'm')"
            ),
        ):
            await self.rows.all(statement, id=old)
        return old

    async def batch(self, *states: str) -> tuple[UUID, list[UUID]]:
        """Store an old batch with items in these states."""
        parent = await self.store()
        items = [
            await self.store(parent_id=f"'{parent}'", item_index=n, state=f"'{state}'")
            for n, state in enumerate(states)
        ]
        await self.rows.all(
            "INSERT INTO filaviva.batches (job_id, total) VALUES (:id, :total)",
            id=parent, total=len(items),
        )  # fmt: skip
        return parent, items

    async def count(self, table: str, *jobs: UUID) -> int:
        """Count what a table has of these jobs."""
        column = "id" if table == "jobs" else "job_id"
        row = await self.rows.one(
            f"SELECT count(*) AS n FROM filaviva.{table} WHERE {column} = ANY(:ids)", ids=list(jobs)
        )
        return int(row["n"])

    def retention(self, *, jobs: int = 500, blocks: int = 512, **days: float) -> Retention:
        """Make a loop with these periods."""
        pace = Pace(jobs=jobs, blocks=blocks)
        periods = RetentionGroup(**days)
        return Retention(self.rows.engine, periods, pace=pace, listener=self.told.facts.append)

    async def walk(self, retention: Retention | None = None) -> None:
        """Go through everything once."""
        retention = retention or self.retention()
        while await retention.step():
            pass


@pytest.fixture
def attic(morgue: Morgue, told: Told) -> Attic:
    return Attic(morgue, told)


async def test_an_old_job_goes_with_all_that_belongs_to_it_and_leaves_a_tombstone(
    attic: Attic,
) -> None:
    old, young = await attic.store(), await attic.store(YOUNG)
    running = await attic.store(state="'running'", finished_at="NULL")

    await attic.walk()

    for table in ("jobs", *CHILDREN):
        assert (await attic.count(table, old), await attic.count(table, young)) == (0, 1), table
    assert await attic.count("jobs", running) == 1
    grave = await attic.rows.one("SELECT * FROM filaviva.tombstones")
    assert (grave["job_id"], grave["tenant"], grave["type"]) == (old, "default", "invoice.extract")
    assert attic.told.of(RowsRemoved) == [RowsRemoved("jobs", 1)]


async def test_each_of_many_pages_is_walked_through_by_many_loops_at_once(attic: Attic) -> None:
    old = [await attic.store() for _ in range(25)]
    young = [await attic.store(YOUNG) for _ in range(5)]

    await asyncio.gather(*(attic.walk(attic.retention(jobs=4)) for _ in range(3)))
    await attic.walk(attic.retention(jobs=4))

    assert await attic.count("jobs", *old) == 0
    assert await attic.count("jobs", *young) == 5
    removed = sum(fact.count for fact in attic.told.of(RowsRemoved))  # type: ignore[union-attr]
    assert removed == 25


async def test_a_type_has_a_period_of_its_own(attic: Attic) -> None:
    await attic.rows.policy(retentionDays=7)
    week, other = await attic.store(YOUNG), await attic.store(YOUNG, type="'other.type'")
    await attic.walk()
    assert (await attic.count("jobs", week), await attic.count("jobs", other)) == (0, 1)

    await attic.rows.all("UPDATE filaviva.contracts SET policy = '{\"retentionDays\"\\: 3650}'")
    kept = await attic.store("clock_timestamp() - interval '9 years'")
    await attic.walk()
    assert await attic.count("jobs", kept) == 1


async def test_a_batch_goes_as_a_whole_or_not_at_all(attic: Attic) -> None:
    over, items = await attic.batch("succeeded", "canceled")
    going_on, its_items = await attic.batch("succeeded", "running")

    await attic.walk(attic.retention(jobs=2))

    assert await attic.count("jobs", over, *items) == 0
    assert await attic.count("batches", over) == 0
    assert await attic.count("tombstones", over, *items) == 3
    assert await attic.count("jobs", going_on, *its_items) == 3
    assert await attic.count("job_events", going_on, *its_items) == 3


async def test_a_batch_of_which_an_item_is_held_waits(attic: Attic) -> None:
    parent, items = await attic.batch("succeeded", "succeeded")

    async with attic.rows.engine.begin() as connection:
        await connection.exec_driver_sql(
            "SELECT 1 FROM filaviva.jobs WHERE id = $1 FOR UPDATE", (items[0],)
        )
        await attic.walk()
        assert await attic.count("jobs", parent, *items) == 3
    await attic.walk()

    assert await attic.count("jobs", parent, *items) == 0


async def test_a_job_whose_letter_nobody_has_closed_is_kept_with_its_letter(attic: Attic) -> None:
    held = await attic.store(state="'failed'")
    closed = await attic.store(state="'failed'")
    for job in (held, closed):
        await attic.rows.file(await attic.rows.dead(job))
    await attic.rows.all(
        "UPDATE filaviva.dead_letters SET status = 'discarded', closed_at = clock_timestamp()"
        " WHERE job_id = :id",
        id=closed,
    )

    await attic.walk(attic.retention(payloads_days=1))

    assert await attic.count("jobs", held, closed) == 1
    assert await attic.count("dead_letters", held) == 1
    assert await attic.count("dead_letters", closed) == 0
    assert (await attic.rows.row(held))["removed"] is None


async def test_parts_go_before_the_job_when_the_settings_say_so(attic: Attic) -> None:
    job = await attic.store("clock_timestamp() - interval '10 days'", payload="'{\"a\"\\: 1}'")
    younger = await attic.store("clock_timestamp() - interval '1 day'")
    periods = {f"{part}_days": 5 for part in ("payloads", "results", "steps", "events")}

    await attic.walk(attic.retention(**periods))
    await attic.walk(attic.retention(**periods, attempts_days=5, llm_calls_days=20))

    row = await attic.rows.row(job)
    assert (row["payload"], row["result"]) == (None, None)
    assert sorted(row["removed"]) == ["attempts", "events", "payload", "result", "steps"]
    left = [await attic.count(table, job) for table in CHILDREN]
    assert left == [0, 0, 0, 1]
    assert (await attic.rows.row(younger))["removed"] is None
    # each of them once
    assert attic.told.of(RowsRemoved) == [RowsRemoved("parts", 1)] * 2


async def test_a_job_that_was_sent_back_meanwhile_is_not_removed(attic: Attic) -> None:
    job = await attic.store(state="'failed'")
    retention = attic.retention()
    async with attic.rows.engine.begin() as connection:
        (seen,) = await retention._page(connection)  # noqa: SLF001 - between looking and acting
    again = "state = 'queued', finished_at = NULL"
    await attic.rows.all(f"UPDATE filaviva.jobs SET {again} WHERE id = :id", id=job)

    await retention._remove([seen])  # noqa: SLF001

    assert await attic.count("jobs", job) == 1


async def test_workers_that_are_long_silent_are_forgotten_and_may_come_back(attic: Attic) -> None:
    rows = attic.rows
    for name, silent in (("gone", "8 days"), ("paused", "6 days"), ("live", "1 second")):
        await rows.worker(id=f"'{name}'", last_seen_at=f"now() - interval '{silent}'")
    await rows.worker(id="'stopped'", last_seen_at=OLD, stopped_at=OLD)
    await rows.all(
        "INSERT INTO filaviva.processes (id, service, host, pid, release, settings, measured,"
        " last_seen_at) SELECT id, service, host, pid, '1.0', '{}', '{}', last_seen_at"
        " FROM filaviva.workers"
    )

    await attic.walk()

    left = await rows.all("SELECT id FROM filaviva.workers ORDER BY id")
    assert [row["id"] for row in left] == ["live", "paused"]
    assert left == await rows.all("SELECT id FROM filaviva.processes ORDER BY id")
    await attic.walk(attic.retention(workers_days=0.000001))
    left = await rows.all("SELECT id FROM filaviva.workers ORDER BY id")
    assert [row["id"] for row in left] == ["live"], "an hour at least: others look at it"


async def test_old_messages_closed_letters_deeds_and_tombstones_are_forgotten(
    attic: Attic,
) -> None:
    rows = attic.rows
    for age, name in (("121 days", "old"), ("119 days", "young")):
        await rows.all(
            "INSERT INTO filaviva.inbox (consumer, message_id, received_at) SELECT 'worker',"
            f" :name || n, clock_timestamp() - interval '{age}' FROM generate_series(1, 900) AS n",
            name=name,
        )
    for age in ("367 days", "364 days"):
        then = f"clock_timestamp() - interval '{age}'"
        await rows.all(
            f"INSERT INTO filaviva.audit_log (author, action, at) VALUES ('me', 'did', {then})"
        )
        await rows.all(
            "INSERT INTO filaviva.tombstones (job_id, tenant, type, gone_at)"
            f" VALUES (:id, 'default', 't', {then})",
            id=uuid4(),
        )
        await rows.all(
            "INSERT INTO filaviva.contract_uses (type, version, day, source, uses)"
            f" VALUES ('t', 1, ({then})\\:\\:date, 'key', 1)"
        )
    letters = [(await rows.letter_of(f"reason {chr(97 + n)}"))["id"] for n in range(3)]
    for letter, at in zip(letters, (OLD, YOUNG), strict=False):
        await rows.all(
            f"UPDATE filaviva.dead_letters SET status = 'discarded', closed_at = {at}"
            " WHERE id = :id",
            id=letter,
        )
    await rows.all(f"UPDATE filaviva.failure_groups SET last_seen_at = {OLD}")

    await attic.walk(attic.retention(blocks=2))

    left = await rows.all("SELECT message_id FROM filaviva.inbox WHERE consumer = 'worker'")
    assert {row["message_id"][:5] for row in left} == {"young"}
    assert len(left) == 900
    assert len(await rows.all("SELECT 1 FROM filaviva.audit_log")) == 1
    assert len(await rows.all("SELECT 1 FROM filaviva.tombstones")) == 1
    assert len(await rows.all("SELECT 1 FROM filaviva.contract_uses")) == 1
    assert [row["id"] for row in await rows.letters()] == letters[1:]
    assert len(await rows.groups()) == 2
    assert len(await rows.alerts()) == 2


async def test_an_event_is_known_for_as_long_as_a_letter_may_bring_it_again(attic: Attic) -> None:
    # Replayed, it comes to all its handlers: also to those that have had it, and would forget.
    await attic.rows.file(Sent(body=event(), headers=died("rejected", exchange="filaviva.events")))
    await attic.rows.all(
        "UPDATE filaviva.dead_letters SET created_at = now() - interval '200 days'"
    )
    await attic.rows.all(
        "INSERT INTO filaviva.inbox (consumer, message_id, received_at) VALUES"
        " ('event:billing:ship', 'shop|1', now() - interval '201 days'),"
        " ('event:billing:ship', 'shop|0', now() - interval '300 days'),"
        " ('worker', 'job:1:1', now() - interval '201 days')"
    )

    await attic.walk()

    left = await attic.rows.all(
        "SELECT message_id FROM filaviva.inbox WHERE received_at < now() - interval '1 day'"
    )
    assert [row["message_id"] for row in left] == ["shop|1"]
