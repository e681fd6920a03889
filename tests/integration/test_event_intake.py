"""What a worker makes of the events on its queue."""

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest

from filaviva import App, Contract, contents
from filaviva.broker.delivery import Delivery
from filaviva.broker.topology import Topology
from filaviva.events import Publishers
from filaviva.publishing import publish
from filaviva.telemetry.metrics import Metrics
from filaviva.uses import Uses
from filaviva_contracts import Envelope
from filaviva_worker import event_intake
from filaviva_worker.event_intake import EventIntake
from filaviva_worker.facts import Facts
from fixtures.dying import event
from fixtures.retrying import Jobs
from fixtures.running import unsent
from fixtures.waiting import until

EVENTS = Topology().events


class Issued(Contract, type="invoice.issued", version=1):
    number: float = 0


async def nothing(_event: Any, _ctx: Any) -> None:
    pass


def app(**handlers: str) -> App:
    made = App("shop")
    for name, queue in handlers.items():
        made.on_event(Issued, queue=queue, name=name)(nothing)
    return made


class Held:
    """A consumer that remembers what became of each delivery."""

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.dead: list[int] = []
        self.back: list[int] = []

    def settle(self, delivery: Delivery) -> None:
        self.acked.append(delivery.tag)

    def reject(self, delivery: Delivery) -> None:
        self.dead.append(delivery.tag)

    def hand_back(self, delivery: Delivery) -> None:
        self.back.append(delivery.tag)

    @property
    def gone(self) -> int:
        return len(self.acked) + len(self.dead) + len(self.back)


class Intake:
    """The intake of the queue `llm`."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.held = Held()
        self.relay = unsent(jobs.engine)
        self.uses = Uses(jobs.engine)
        self.intake = EventIntake(
            "llm",
            engine=jobs.engine,
            relay=self.relay,
            topology=Topology(),
            facts=Facts(Metrics()),
            uses=self.uses,
            publishers=Publishers.trusting("filaviva", {"billing": ["acme"]}),
        )
        self._tags = 0

    async def publish(self, app: App) -> None:
        async with self.jobs.engine.begin() as connection:
            await publish(connection, app)

    def deliver(self, body: bytes, exchange: str = EVENTS, user: str | None = None) -> int:
        self._tags += 1
        delivery = Delivery(
            body=body,
            content_type="application/cloudevents+json",
            message_id=None,
            type=None,
            correlation_id=None,
            headers={},
            exchange=exchange,
            routing_key="invoice.issued.v1",
            redelivered=False,
            tag=self._tags,
            session=None,
            user=user,
        )
        self.intake.take(delivery, self.held)  # type: ignore[arg-type]
        return self._tags

    async def all_gone(self, count: int, *, seconds: float = 20) -> None:
        await until(lambda: self.held.gone == count, seconds=seconds)

    async def made(self) -> list[tuple[str, str]]:
        rows = await self.jobs.all("SELECT type, queue FROM filaviva.jobs ORDER BY id")
        return [(row["type"], row["queue"]) for row in rows]


@pytest.fixture
def intake(jobs: Jobs) -> Intake:
    """An intake with nothing around it."""
    return Intake(jobs)


async def test_each_event_becomes_a_job_of_each_handler_on_this_queue(intake: Intake) -> None:
    await intake.publish(app(book="llm", thank="llm", elsewhere="mail"))

    for number in range(150):
        intake.deliver(event("invoice.issued.v1", json.dumps({"number": number})))
    await intake.all_gone(150)

    assert len(intake.held.acked) == 150
    assert sorted(await intake.made()) == sorted(
        [("invoice.issued:book", "llm"), ("invoice.issued:thank", "llm")] * 150
    )
    assert intake.relay.pending == 300
    row = await intake.jobs.one("SELECT * FROM filaviva.jobs ORDER BY id LIMIT 1")
    assert row["labels"]["event.source"] == "shop"
    inbox = await intake.jobs.all("SELECT DISTINCT consumer FROM filaviva.inbox ORDER BY 1")
    assert [row["consumer"] for row in inbox] == ["event:llm:book", "event:llm:thank"]


async def test_an_event_is_a_tenants_only_if_its_publisher_may_name_that(intake: Intake) -> None:
    await intake.publish(app(book="llm"))
    one, other = (
        Envelope.decode(event("invoice.issued.v1")).with_attributes({"tenant": "acme"}).encode()
        for _ in range(2)
    )

    taken = intake.deliver(one, user="billing")
    forged = intake.deliver(other, user="shop")
    await intake.all_gone(2)

    assert (intake.held.acked, intake.held.dead) == ([taken], [forged])


async def test_one_event_that_cannot_be_stored_costs_its_neighbours_nothing(
    intake: Intake,
) -> None:
    await intake.publish(app(book="llm"))

    tags = [
        intake.deliver(event("invoice.issued.v1", f'{{"number": {number}}}'))
        for number in (1, 2, "1e-16400", 4, 5)
    ]
    await intake.all_gone(5)

    assert intake.held.dead == [tags[2]]
    assert len(await intake.made()) == 4


async def test_an_event_goes_to_where_its_handler_has_moved(intake: Intake) -> None:
    await intake.publish(app(book="llm"))
    await intake.publish(app(book="mail"))

    intake.deliver(event("invoice.issued.v1"))
    await intake.all_gone(1)

    assert await intake.made() == [("invoice.issued:book", "mail")]


async def test_what_a_handler_has_had_it_knows_wherever_it_moves(intake: Intake) -> None:
    # Sent again by its publisher, or on its way to both queues while setup moves the binding.
    await intake.publish(app(book="llm"))
    intake.deliver(event("invoice.issued.v1", id="1"))
    await intake.all_gone(1)

    for number, queue in enumerate(("mail", "slow", "llm")):
        await intake.publish(app(book=queue))
        intake.deliver(event("invoice.issued.v1", id="1"))
        intake.deliver(event("invoice.issued.v1", id=queue))
        await intake.all_gone(3 + 2 * number)

    assert [queue for _, queue in await intake.made()] == ["llm", "mail", "slow", "llm"]
    inbox = await intake.jobs.all("SELECT DISTINCT consumer FROM filaviva.inbox")
    assert [row["consumer"] for row in inbox] == ["event:llm:book"]


async def test_a_later_version_of_a_handler_that_moves_has_the_same_inbox(intake: Intake) -> None:
    class Issued2(Contract, type="invoice.issued", version=2):
        number: str

    moved = App("shop")
    moved.on_event(Issued2, queue="mail", name="book")(nothing)
    await intake.publish(app(book="llm"))
    intake.deliver(event("invoice.issued.v1", id="1"))
    await intake.all_gone(1)

    await intake.publish(moved)
    intake.deliver(event("invoice.issued.v2", '{"number": "1"}', id="1"))
    await intake.all_gone(2)

    assert len(await intake.made()) == 1
    assert len(intake.held.dead) == 1  # the name of an event that says something else


async def test_an_event_that_was_on_its_way_when_its_handler_went_is_kept_for_it(
    intake: Intake,
) -> None:
    await intake.publish(app(book="llm", thank="llm"))
    await intake.publish(app(thank="llm"))
    intake.deliver(event("invoice.issued.v1"))
    await intake.all_gone(1)
    assert await intake.made() == [("invoice.issued:thank", "llm")]

    await intake.publish(app())
    intake.deliver(event("invoice.issued.v1"))
    await intake.all_gone(2)

    assert len(await intake.made()) == 3
    assert intake.held.dead == []


async def test_an_event_waits_a_moment_for_the_setup_that_has_bound_it(intake: Intake) -> None:
    intake.deliver(event("invoice.issued.v1"))
    await asyncio.sleep(0)

    await intake.publish(app(book="llm"))
    await intake.all_gone(1)

    assert intake.held.acked == [1]
    assert await intake.made() == [("invoice.issued:book", "llm")]


async def test_an_event_of_nobody_is_a_dead_letter(
    intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_intake, "PATIENCE", 0.1)

    intake.deliver(event("invoice.issued.v1"))
    intake.deliver(event("invoice.issued.v1"), exchange="filaviva.jobs")
    intake.deliver(event("filaviva.job.dead.v1"))
    intake.deliver(event("no.version"))
    await intake.all_gone(4)

    assert sorted(intake.held.dead) == [1, 2, 3, 4]


async def test_two_meanings_of_one_name_in_one_batch_are_told_apart(intake: Intake) -> None:
    await intake.publish(app(book="llm"))

    for number in (1, 1, 2):
        intake.deliver(event("invoice.issued.v1", f'{{"number": {number}}}', id="e-1"))
    await intake.all_gone(3)

    assert (intake.held.acked, intake.held.dead) == ([1, 2], [3])
    assert len(await intake.made()) == 1


async def test_what_a_newer_publisher_has_added_stays_in_the_job(intake: Intake) -> None:
    await intake.publish(app(book="llm"))

    intake.deliver(event("invoice.issued.v1", '{"number":1,"addedLater":{"exact":0.10}}'))
    await intake.all_gone(1)
    await intake.uses.step()

    (job,) = await intake.jobs.all("SELECT CAST(payload AS text) AS payload FROM filaviva.jobs")
    assert job["payload"] == '{"number": 1, "addedLater": {"exact": 0.10}}'
    (use,) = await intake.jobs.all("SELECT type, version, source FROM filaviva.contract_uses")
    assert use == {"type": "invoice.issued", "version": 1, "source": "event:shop"}


async def test_an_event_is_taken_in_with_its_content_wherever_that_lies(intake: Intake) -> None:
    await intake.publish(app(book="llm"))
    async with intake.jobs.engine.begin() as connection:
        kept = await contents.keep(
            connection, "default", '{"number": 5.10}', {"number": Decimal("5.10")}
        )
    for number, dataref in enumerate((kept.dataref, f"{kept.dataref[:-1]}x", "s3://elsewhere")):
        referring = Envelope(id=f"{number}", source="shop", type="invoice.issued.v1")
        intake.deliver(referring.with_attributes({"dataref": dataref}).encode())
    await intake.all_gone(3)

    (job,) = await intake.jobs.all("SELECT CAST(payload AS text) AS payload FROM filaviva.jobs")
    assert job["payload"] == '{"number": 5.10}'
    assert len(intake.held.dead) == 2
