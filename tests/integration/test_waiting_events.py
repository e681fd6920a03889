"""An event of a version that nobody handles waits, is told once, and goes on after the deploy."""

from typing import Any

import pytest

from filaviva import App, Contract
from filaviva.broker.topology import Topology
from filaviva.outbox import OutboxRow
from filaviva.publishing import publish
from filaviva.telemetry.metrics import Metrics
from filaviva_dlq_handler.waiting_events import WaitingEvents
from fixtures.dying import Morgue, Sent, died, event

UNROUTABLE = Topology().unroutable
READS = """'[{"type"\\: "invoice.issued\\:thank", "min"\\: 2, "max"\\: 3}]'"""


class Issued(Contract, type="invoice.issued", version=3):
    """The event, as it is published before any worker reads it."""

    number: int


async def thank(_job: Any, _context: Any) -> None:
    """Do nothing."""


@pytest.fixture
async def waiting(morgue: Morgue) -> Morgue:
    """Three events of version 3 that came while version 2 was the newest."""
    morgue.contracts["invoice.issued"] = (1, 2)
    unbound = [Sent(body=event("invoice.issued.v3", f'{{"number":{n}}}')) for n in range(2)]
    await morgue.file(*unbound, queue=UNROUTABLE)
    await morgue.file(
        Sent(body=event("invoice.issued.v3", '{"number":2}'), headers=died("rejected"))
    )
    return morgue


def loop(morgue: Morgue, rows: list[OutboxRow]) -> WaitingEvents:
    return WaitingEvents(morgue.engine, Metrics(), hand_over=rows.extend)


async def deployed(morgue: Morgue) -> None:
    app = App("billing")
    app.on_event(Issued, queue="mail")(thank)
    async with morgue.engine.begin() as connection:
        await publish(connection, app)


async def test_they_are_parked_and_told_once(waiting: Morgue) -> None:
    letters = await waiting.letters()

    assert {letter["reason"] for letter in letters} == {"unsupported_version"}
    assert [group["count"] for group in await waiting.groups()] == [3]
    assert len(await waiting.alerts()) == 1


async def test_a_handler_without_a_worker_releases_nothing(waiting: Morgue) -> None:
    await deployed(waiting)
    await waiting.worker(queues="ARRAY['elsewhere']", reads=READS)

    assert await loop(waiting, []).step() == 0


async def test_a_worker_that_reads_them_releases_them_with_their_data(waiting: Morgue) -> None:
    rows: list[OutboxRow] = []
    await deployed(waiting)
    await waiting.worker(queues="ARRAY['mail']", reads=READS)
    released = loop(waiting, rows)

    assert (await released.step(), await released.step()) == (3, 0)

    made = await waiting.all("SELECT type, version, queue, payload FROM filaviva.jobs ORDER BY id")
    assert sorted(row["payload"]["number"] for row in made) == [0, 1, 2]
    assert {(row["type"], row["version"], row["queue"]) for row in made} == {
        ("invoice.issued:thank", 3, "mail")
    }
    assert len(rows) == 3
    assert {letter["status"] for letter in await waiting.letters()} == {"resolved"}
    assert [group["state"] for group in await waiting.groups()] == ["resolved"]


async def test_its_name_used_for_another_event_meanwhile_is_for_a_person(morgue: Morgue) -> None:
    morgue.contracts["invoice.issued"] = (2,)
    first, other = (event("invoice.issued.v3", f'{{"number":{n}}}', id="same") for n in (1, 2))
    await morgue.file(Sent(body=first), queue=UNROUTABLE)
    await deployed(morgue)
    await morgue.worker(queues="ARRAY['mail']", reads=READS)
    await loop(morgue, []).step()
    await morgue.file(Sent(body=other), queue=UNROUTABLE)

    await loop(morgue, []).step()

    assert [letter["reason"] for letter in await morgue.letters()][1:] == ["id_reused"]
    assert len(await morgue.all("SELECT 1 FROM filaviva.jobs")) == 1
