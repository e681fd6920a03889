"""Dead letters on their way back, on a real database."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from filaviva.broker.messages import CONFIRMED, NotReady, Outgoing, Published, Unknown
from filaviva.errors import NotFound, Rejected
from filaviva.operations.batches import follow
from filaviva.operations.dead_letters import Filter
from filaviva.operations.replay import ReplayRequest, stop
from filaviva.outbox import OutboxRow
from filaviva.registry import Registry
from filaviva.telemetry.metrics import Metrics
from filaviva_dlq_handler.closing import Closing
from filaviva_dlq_handler.sending import Sending
from fixtures.dying import Morgue, Sent, died, event
from fixtures.waiting import until

OBJECT = {"type": "object", "properties": {"url": {"type": "string"}, "page": {"type": "number"}}}
PAYLOAD = """'{"url"\\: "a", "page"\\: 12345678901234567890.10}'"""


class Exchange:
    """Takes what is published, or says why it does not."""

    def __init__(self, answer: Published = CONFIRMED) -> None:
        self.answer = answer
        self.taken: list[Outgoing] = []

    async def publish(self, messages: Sequence[Outgoing]) -> list[Published]:
        self.taken += messages
        return [self.answer for _ in messages]


def request(letters: Filter, **wanted: Any) -> ReplayRequest:
    return ReplayRequest(letters=letters, author="ana", reason="the provider is back", **wanted)


def ids(*letters: dict[str, Any]) -> Filter:
    return Filter(ids=tuple(letter["id"] for letter in letters))


def sender(
    morgue: Morgue,
    registry: Registry,
    handed: list[OutboxRow] | None = None,
    exchange: Exchange | None = None,
) -> Sending:
    def hand_over(rows: Sequence[OutboxRow]) -> None:
        if handed is not None:
            handed.extend(rows)

    return Sending(
        morgue.engine,
        registry,
        exchange or Exchange(),
        hand_over=hand_over,
        metrics=Metrics(),
        doubt=0.05,
    )


@pytest.fixture
async def registry(morgue: Morgue) -> Registry:
    return await morgue.contract(OBJECT)


async def test_a_replayed_job_waits_anew_with_a_fresh_allowance(
    morgue: Morgue, registry: Registry
) -> None:
    letter = await morgue.letter_of(
        losses=4, delivery_limits=2, deadline="clock_timestamp() - interval '1 hour'"
    )
    handed: list[OutboxRow] = []

    started = await morgue.replay(request(ids(letter)), registry)
    await sender(morgue, registry, handed).step()

    job = await morgue.row(letter["job_id"])
    assert (job["state"], job["epoch"], job["fence"], job["issue"]) == ("queued", 2, 4, 1)
    assert (job["failures"], job["losses"], job["delivery_limits"]) == (0, 0, 0)
    assert (job["deadline"], job["error"], job["finished_at"]) == (None, None, None)
    assert (job["revision"], job["attempt"]) == (1, 3)
    assert [row.message_id for row in handed] == [f"{job['id']}:2:1"]
    assert (await morgue.letter(letter["id"]))["status"] == "replaying"
    kind, told = (await morgue.events(job["id"]))[-1]
    assert (kind, told["status"], told["author"], told["replay"]) == (
        "state", "queued", "ana", started["id"],
    )  # fmt: skip
    (entry,) = await morgue.all("SELECT * FROM filaviva.audit_log")
    assert (entry["action"], entry["author"], entry["target"]) == (
        "replay.started", "ana", started["id"],
    )  # fmt: skip


async def test_an_item_sent_back_while_its_batch_ends_opens_it_again(
    morgue: Morgue, registry: Registry
) -> None:
    batch = await morgue.queued(state="'running'", parked_reason="'items'")
    await morgue.all("INSERT INTO filaviva.batches (job_id, total) VALUES (:id, 1)", id=batch)
    letter = await morgue.letter_of(parent_id=f"'{batch}'", item_index=0)
    await morgue.replay(request(ids(letter)), registry)
    async with morgue.engine.begin() as ending:
        await follow(ending, [batch])

        async def waits_or_is_over() -> bool:
            waiting = await morgue.all("SELECT pid FROM pg_locks WHERE NOT granted")
            return bool(waiting) or sending.done()

        sending = asyncio.create_task(sender(morgue, registry).step())
        await until(waits_or_is_over)
    await sending

    row = await morgue.one("SELECT * FROM filaviva.batches WHERE job_id = :id", id=batch)
    assert (await morgue.row(letter["job_id"]))["state"] == "queued"
    assert row["ended_at"] is None, "nobody would look at the batch any more"


async def test_a_deadline_in_the_future_stays(morgue: Morgue, registry: Registry) -> None:
    letter = await morgue.letter_of(deadline="clock_timestamp() + interval '1 hour'")

    await morgue.replay(request(ids(letter)), registry)
    await sender(morgue, registry).step()

    assert (await morgue.row(letter["job_id"]))["deadline"] is not None


async def test_the_letter_is_resolved_when_its_job_succeeds(
    morgue: Morgue, registry: Registry
) -> None:
    letter = await morgue.letter_of()
    started = await morgue.replay(request(ids(letter)), registry)
    await sender(morgue, registry).step()
    closing = Closing(morgue.engine, Metrics())
    assert await closing.step() == 0

    await morgue.end(letter["job_id"], cost="0.07")
    assert await closing.step() == 1

    assert (await morgue.letter(letter["id"]))["status"] == "resolved"
    found = await morgue.report(started["id"])
    assert (found["status"], found["progress"]["succeeded"]) == ("finished", 1)
    assert (found["estimatedCostUsd"], found["costUsd"]) == ("0.10", "0.07")
    assert (await morgue.groups())[0]["state"] == "resolved"


async def test_a_job_that_dies_again_has_a_new_letter_before_the_old_one_closes(
    morgue: Morgue, registry: Registry
) -> None:
    letter = await morgue.letter_of()
    started = await morgue.replay(request(ids(letter)), registry)
    await sender(morgue, registry).step()
    closing = Closing(morgue.engine, Metrics())
    await morgue.end(letter["job_id"], "failed")
    assert await closing.step() == 0

    await morgue.file(await morgue.dead(letter["job_id"]))
    await closing.step()

    assert [row["status"] for row in await morgue.letters()] == ["resolved", "open"]
    found = await morgue.report(started["id"])
    assert (found["status"], found["progress"]["failed"]) == ("finished", 1)
    assert (await morgue.groups())[0]["state"] == "open"


async def test_two_replays_of_the_same_letter_at_once_send_it_once(
    morgue: Morgue, registry: Registry
) -> None:
    letter = await morgue.letter_of()

    results = await asyncio.gather(
        *[morgue.replay(request(ids(letter)), registry) for _ in range(6)], return_exceptions=True
    )
    await asyncio.gather(*[sender(morgue, registry).step() for _ in range(3)])

    refused = [result for result in results if isinstance(result, Rejected)]
    assert [one.status for one in refused] == [409] * 5
    assert (await morgue.row(letter["job_id"]))["epoch"] == 2
    assert len(await morgue.outbox(letter["job_id"])) == 1


async def test_a_mixed_scope_names_the_refused_ones(morgue: Morgue, registry: Registry) -> None:
    first, second = await morgue.letter_of(), await morgue.letter_of()
    await morgue.replay(request(ids(first)), registry)

    started = await morgue.replay(request(ids(first, second)), registry)

    assert started["refused"] == [str(first["id"])]
    assert started["progress"]["total"] == 1


async def test_a_group_means_its_open_letters(morgue: Morgue, registry: Registry) -> None:
    letters = [await morgue.letter_of() for _ in range(3)]
    await morgue.letter_of("another cause")
    await morgue.replay(request(ids(letters[0])), registry)
    group = Filter(group=letters[0]["group_id"])

    started = await morgue.replay(request(group), registry)

    assert started["progress"]["total"] == 2
    with pytest.raises(Rejected) as refused:
        await morgue.replay(request(group), registry)
    assert refused.value.status == 409


async def test_an_empty_scope_is_not_found(morgue: Morgue, registry: Registry) -> None:
    letter = await morgue.letter_of()
    for nothing in (Filter(ids=(uuid4(),)), Filter(group=uuid4()), Filter(type="none")):
        with pytest.raises(NotFound):
            await morgue.replay(request(nothing), registry)
    with pytest.raises(NotFound):
        await morgue.replay(request(Filter(ids=(letter["id"], uuid4()))), registry)


async def test_corrected_data_keeps_every_digit_and_is_a_new_revision(
    morgue: Morgue, registry: Registry
) -> None:
    letter = await morgue.letter_of(payload=PAYLOAD)
    patch = [{"op": "replace", "path": "/url", "value": "b"}]

    await morgue.replay(request(ids(letter), patch=patch), registry)
    await sender(morgue, registry).step()

    (job,) = await morgue.all(
        "SELECT payload::text AS payload, revision FROM filaviva.jobs WHERE id = :id",
        id=letter["job_id"],
    )
    assert job["payload"] == '{"url": "b", "page": 12345678901234567890.10}'
    assert job["revision"] == 2


BROKEN = [
    ([{"op": "replace", "path": "/url", "value": 5}], "invalid_data", "/url"),
    ([{"op": "replace", "path": "/none/x", "value": 5}], "invalid_patch", "/patch/0"),
    ([{"op": "zap", "path": "/url"}], "invalid_patch", "/patch/0"),
    ([{"op": "copy", "from": "", "path": f"/x{n}"} for n in range(60)], "invalid_patch", "/patch/"),
]


@pytest.mark.parametrize(("patch", "code", "pointer"), BROKEN)
async def test_a_patch_that_does_not_fit_changes_nothing(
    morgue: Morgue, registry: Registry, patch: Any, code: str, pointer: str
) -> None:
    letter = await morgue.letter_of(payload=PAYLOAD)

    with pytest.raises(Rejected) as refused:
        await morgue.replay(request(ids(letter), patch=patch), registry)

    assert (refused.value.status, refused.value.code) == (422, code)
    assert refused.value.flaws[0].pointer.startswith(pointer)
    assert (await morgue.letter(letter["id"]))["status"] == "open"


async def test_a_parked_job_can_be_sent_back(morgue: Morgue, registry: Registry) -> None:
    job = await morgue.queued()
    await morgue.file(await morgue.wake_up(job, "rejected"))
    (letter,) = await morgue.letters()

    await morgue.replay(request(ids(letter)), registry)
    await sender(morgue, registry).step()

    row = await morgue.row(job)
    assert (row["parked_reason"], row["epoch"]) == (None, 2)


async def test_a_parked_jobs_letter_closes_when_the_job_went_on_by_itself(
    morgue: Morgue,
) -> None:
    job = await morgue.queued()
    await morgue.file(await morgue.wake_up(job, "rejected"))
    await morgue.all("UPDATE filaviva.jobs SET epoch = 2, parked_reason = NULL")

    await morgue.end(job)
    await Closing(morgue.engine, Metrics()).step()

    assert [letter["status"] for letter in await morgue.letters()] == ["resolved"]


async def test_a_job_that_went_on_meanwhile_is_refused(morgue: Morgue, registry: Registry) -> None:
    letter = await morgue.letter_of()
    started = await morgue.replay(request(ids(letter)), registry)
    await morgue.all("UPDATE filaviva.jobs SET state = 'queued', epoch = 2")

    await sender(morgue, registry).step()

    found = await morgue.report(started["id"])
    assert found["letters"][0]["status"] == "refused"
    assert (await morgue.row(letter["job_id"]))["epoch"] == 2


async def test_stopping_frees_what_was_not_sent(morgue: Morgue, registry: Registry) -> None:
    letters = [await morgue.letter_of() for _ in range(3)]
    started = await morgue.replay(request(ids(*letters), rate_per_second=0.001), registry)
    await sender(morgue, registry).step()

    async with morgue.engine.begin() as connection:
        found = await stop(connection, UUID(started["id"]), author="ana")

    assert found["status"] == "stopped"
    assert (found["progress"]["stopped"], found["progress"]["running"]) == (2, 1)
    statuses = sorted(row["status"] for row in await morgue.letters())
    assert statuses == ["open", "open", "replaying"]
    with pytest.raises(Rejected, match="expected running"):
        async with morgue.engine.begin() as connection:
            await stop(connection, UUID(started["id"]), author="ana")


async def test_the_rate_is_never_exceeded(morgue: Morgue, registry: Registry) -> None:
    letters = [await morgue.letter_of() for _ in range(6)]
    started = await morgue.replay(request(ids(*letters), rate_per_second=20), registry)
    sending = sender(morgue, registry)

    async def all_sent() -> bool:
        await sending.step()
        return (await morgue.report(started["id"]))["progress"]["waiting"] == 0

    await until(all_sent)

    (row,) = await morgue.all(
        "SELECT extract(epoch FROM max(sent_at) - min(sent_at)) AS took"
        " FROM filaviva.replay_letters"
    )
    assert row["took"] >= 5 / 20


async def test_the_rest_follows_a_canary_that_lived(morgue: Morgue, registry: Registry) -> None:
    letters = [await morgue.letter_of() for _ in range(4)]
    started = await morgue.replay(request(ids(*letters), canary=1), registry)
    sending, closing = sender(morgue, registry), Closing(morgue.engine, Metrics())

    await sending.step()
    assert await sending.step() == 0
    assert (await morgue.report(started["id"]))["progress"]["waiting"] == 3
    await morgue.end(letters[0]["job_id"])
    await closing.step()
    await sending.step()

    assert (await morgue.report(started["id"]))["progress"]["waiting"] == 0


async def test_a_dead_canary_stops_the_replay(morgue: Morgue, registry: Registry) -> None:
    letters = [await morgue.letter_of() for _ in range(3)]
    started = await morgue.replay(request(ids(*letters), canary=1), registry)
    sending, closing = sender(morgue, registry), Closing(morgue.engine, Metrics())

    await sending.step()
    await morgue.end(letters[0]["job_id"], "failed")
    await morgue.file(await morgue.dead(letters[0]["job_id"]))
    await closing.step()
    await sending.step()

    found = await morgue.report(started["id"])
    assert (found["status"], found["progress"]["stopped"]) == ("stopped", 2)
    assert "canary" in found["error"]
    assert (await morgue.letter(letters[1]["id"]))["status"] == "open"


async def test_a_foreign_message_goes_back_as_it_came_once_it_is_known(
    morgue: Morgue, registry: Registry
) -> None:
    body = event("order.placed.v1", id="e1")
    headers = {**died("rejected", exchange="filaviva.events"), "tenant": "a"}
    await morgue.file(Sent(body=body, message_id="m1", headers=headers))
    (letter,) = await morgue.letters()
    with pytest.raises(Rejected, match="published yet"):
        await morgue.replay(request(ids(letter)), registry)
    known = await morgue.contract({}, "order.placed")
    exchange = Exchange()

    await morgue.replay(request(ids(letter)), known)
    await sender(morgue, known, exchange=exchange).step()

    (sent,) = exchange.taken
    assert (sent.body, sent.exchange, sent.headers) == (body, "filaviva.events", {"tenant": "a"})
    assert sent.message_id != "m1"
    assert (await morgue.letter(letter["id"]))["status"] == "resolved"


async def test_what_told_of_a_jobs_end_goes_back_to_whoever_refused_it(
    morgue: Morgue, registry: Registry
) -> None:
    headers = died("rejected", queue="books.ended", exchange="filaviva.lifecycle")
    await morgue.file(Sent(body=event("job.failed.v1"), message_id="m1", headers=headers))
    (letter,) = await morgue.letters()
    exchange = Exchange()

    await morgue.replay(request(ids(letter)), registry)
    await sender(morgue, registry, exchange=exchange).step()

    assert letter["reason"] == "terminal"
    assert [sent.exchange for sent in exchange.taken] == ["filaviva.lifecycle"]


async def test_a_foreign_message_that_the_broker_refuses_stays_open(
    morgue: Morgue, registry: Registry
) -> None:
    known = await morgue.contract({}, "order.placed")
    await morgue.file(Sent(body=event("order.placed.v1"), headers=died("rejected")))
    (letter,) = await morgue.letters()

    started = await morgue.replay(request(ids(letter)), known)
    await sender(morgue, known, exchange=Exchange(NotReady("gone"))).step()

    assert (await morgue.letter(letter["id"]))["status"] == "open"
    assert (await morgue.report(started["id"]))["letters"][0]["error"] == "NotReady: gone"
    assert registry.types() == ("invoice.extract",)


async def foreign(morgue: Morgue, exchange: Exchange, *, count: int = 1) -> tuple[Any, Sending]:
    """Messages of somebody else under replay, and who sends them."""
    known = await morgue.contract({}, "order.placed")
    for n in range(count):
        await morgue.file(
            Sent(
                body=event("order.placed.v1", id=f"e{n}"),
                message_id=f"m{n}",
                headers=died("rejected"),
            )
        )
    started = await morgue.replay(request(ids(*await morgue.letters())), known)
    return started["id"], sender(morgue, known, exchange=exchange)


async def test_a_foreign_message_without_a_confirm_goes_again_under_the_same_id(
    morgue: Morgue,
) -> None:
    exchange = Exchange(Unknown("no confirm"))
    replay, sending = await foreign(morgue, exchange)

    assert await sending.step() == 0
    (letter,) = (await morgue.report(replay))["letters"]
    assert (letter["status"], letter["error"]) == ("waiting", "Unknown: no confirm")
    exchange.answer = CONFIRMED
    await until(sending.step)

    assert len({sent.message_id for sent in exchange.taken}) == 1
    (letter,) = await morgue.letters()
    assert letter["status"] == "resolved"


class Slow(Exchange):
    """Takes what is published, once it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()

    async def publish(self, messages: Sequence[Outgoing]) -> list[Published]:
        answers = await super().publish(messages)
        await self.let.wait()
        return answers


async def test_two_processes_publish_a_foreign_message_once(morgue: Morgue) -> None:
    exchange = Slow()
    _, sending = await foreign(morgue, exchange)

    first = asyncio.create_task(sending.step())
    await until(lambda: exchange.taken)
    assert await sending.step() == 0
    exchange.let.set()

    assert await first == 1
    assert len(exchange.taken) == 1


async def test_a_replay_stopped_while_a_foreign_message_is_on_its_way_opens_only_the_others(
    morgue: Morgue,
) -> None:
    exchange = Slow()
    replay, sending = await foreign(morgue, exchange, count=25)

    first = asyncio.create_task(sending.step())
    await until(lambda: exchange.taken)
    async with morgue.engine.begin() as connection:
        await stop(connection, replay, author="ana")
    gone = [letter["status"] for letter in await morgue.letters()]
    assert (gone.count("open"), gone.count("replaying")) == (5, 20)
    exchange.let.set()
    await first

    assert (await morgue.report(replay))["progress"]["succeeded"] == 20


async def test_what_a_stopped_replay_left_in_doubt_is_found_out(morgue: Morgue) -> None:
    exchange = Exchange(Unknown("no confirm"))
    replay, sending = await foreign(morgue, exchange)

    await sending.step()
    async with morgue.engine.begin() as connection:
        await stop(connection, replay, author="ana")
    exchange.answer = CONFIRMED
    await until(sending.step)

    (letter,) = await morgue.letters()
    assert letter["status"] == "resolved"


@pytest.mark.parametrize("patch", [None, [{"op": "remove", "path": "/x"}]])
async def test_bytes_that_nobody_can_read_are_not_sent_again(
    morgue: Morgue, registry: Registry, patch: Any
) -> None:
    await morgue.file(Sent(body=b"broken", headers=died("rejected")))
    (letter,) = await morgue.letters()

    with pytest.raises(Rejected, match="undecodable"):
        await morgue.replay(request(ids(letter), patch=patch), registry)


@pytest.mark.parametrize("wanted", [{"rate_per_second": 0}, {"rate_per_second": -1}, {"canary": 0}])
async def test_a_pace_that_makes_no_sense_is_refused(
    morgue: Morgue, registry: Registry, wanted: Any
) -> None:
    with pytest.raises(Rejected) as refused:
        await morgue.replay(request(Filter(), **wanted), registry)

    assert refused.value.status == 422
