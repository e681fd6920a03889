"""Whoever ends a job that has a callback, the job that tells so is in the same commit, once."""

import json
from collections.abc import Awaitable, Callable
from datetime import date
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import App, Context, Contract, wakeups
from filaviva.broker.topology import Topology
from filaviva.built_in import built_in, with_built_in
from filaviva.callbacks.contract import POLICY, QUEUE, CallBack
from filaviva.callbacks.urls import Rules
from filaviva.database.transaction import transact
from filaviva.errors import Rejected
from filaviva.operations.cancel import cancel
from filaviva.operations.keys import Principal
from filaviva.operations.requeue import requeue
from filaviva.operations.submission import Origin, admit
from filaviva.settings import CallbackSettings, DrillSettings
from filaviva_retry_scheduler import deadlines
from filaviva_retry_scheduler.decide import decide
from filaviva_worker.complete import Completion, complete
from filaviva_worker.context import LiveContext
from filaviva_worker.live import Live
from fixtures.dying import Morgue
from fixtures.producer import Producer, shop
from fixtures.receiver import Receiver
from fixtures.retrying import Jobs
from fixtures.running import claimed, tools

URL = "https://shop.example/hook"
WANTED = {"callback_url": f"'{URL}'"}
SECRET = "s" * 32

Work = Callable[[AsyncConnection], Awaitable[Any]]


async def callbacks(jobs: Jobs) -> list[dict[str, Any]]:
    return await jobs.all("SELECT * FROM filaviva.jobs WHERE type = 'filaviva.callback'")


async def done(jobs: Jobs, work: Work) -> None:
    await transact(jobs.engine, work)


async def test_every_way_to_end_makes_one_callback_with_the_final_state(jobs: Jobs) -> None:
    succeeded, canceled = await jobs.running(**WANTED), await jobs.queued(**WANTED)
    stopped = await jobs.running(state="'cancel_requested'", lease="-1 s", **WANTED)
    failed = await jobs.failing("failed", **WANTED)
    late = await jobs.queued(deadline="now() - interval '1 s'", **WANTED)
    again = await jobs.failing(**WANTED)
    silent = await jobs.running()

    ends = [Completion(job, 1, '"ok"') for job in (succeeded, silent)]
    await done(jobs, lambda on: complete(on, ends))
    await done(jobs, lambda on: cancel(on, [canceled], author="me"))
    await done(jobs, lambda on: decide(on, [(failed, 1), (again, 1), (stopped, 1)]))
    await done(jobs, lambda on: deadlines.expire(on, limit=10))

    told = {row["payload"]["jobId"]: row["payload"]["status"] for row in await callbacks(jobs)}
    assert told == {
        str(succeeded): "succeeded",
        str(canceled): "canceled",
        str(stopped): "canceled",
        str(failed): "failed",
        str(late): "failed",
    }


async def test_the_callback_is_a_job_as_the_services_make_them(jobs: Jobs) -> None:
    job = await jobs.failing("failed", **WANTED)
    before = await jobs.one("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms")

    await done(jobs, lambda on: decide(on, [(job, 1)]))

    (row,) = await callbacks(jobs)
    assert (row["state"], row["queue"], row["epoch"]) == ("queued", QUEUE, 1)
    assert row["max_attempts"] == POLICY.max_attempts
    assert (row["callback_url"], row["submitted_by"]) == (None, None)
    assert row["correlation_id"] == (await jobs.row(job))["correlation_id"]
    assert row["id"].version == 7
    assert 0 <= (row["id"].int >> 80) - before["ms"] < 60_000
    told = CallBack.model_validate_json(json.dumps(row["payload"]))
    assert (told.job_id, told.status, told.attempts) == (job, "failed", 1)
    assert (told.error_class, told.error_code) == ("upstream", "ServerError")
    (woken,) = await jobs.outbox(row["id"])
    wanted = wakeups.wake_up(
        job_id=row["id"], epoch=1, issue=1, type="filaviva.callback", version=1, queue=QUEUE,
        priority=row["priority"], correlation_id=row["correlation_id"],
    )  # fmt: skip
    for column in ("exchange", "routing_key", "message_id", "type", "priority", "job_id", "epoch"):
        assert woken[column] == getattr(wanted, column), column
    assert woken["data"] == json.loads(wanted.data)
    assert woken["exchange"] == Topology().jobs
    assert CallBack.contract_type == "filaviva.callback"


async def test_where_turns_are_given_callbacks_take_them(jobs: Jobs) -> None:
    # A receiver that hangs, with fifty thousand before it, would keep everybody else's for hours.
    job = await jobs.running(tenant="'acme'", **WANTED)
    await jobs.all(
        "INSERT INTO filaviva.turn_keeper (id, until)"
        " VALUES ('me', clock_timestamp() + interval '1 minute')"
    )

    await done(jobs, lambda on: complete(on, [Completion(job, 1, '"ok"')]))

    (row,) = await callbacks(jobs)
    (turn,) = await jobs.all("SELECT * FROM filaviva.turns")
    expected = {"queue": QUEUE, "tenant": "acme", "job_id": row["id"], "epoch": 1}
    assert turn == {**expected, "priority": row["priority"]}
    assert await jobs.outbox(row["id"]) == []


async def test_a_rolled_back_end_calls_nobody_and_each_end_after_a_replay_calls_once(
    morgue: Morgue,
) -> None:
    job = await morgue.running(**WANTED)

    async with morgue.engine.connect() as connection:
        await complete(connection, [Completion(job, 1, '"ok"')])
        await connection.rollback()
    assert await callbacks(morgue) == []

    await morgue.all("UPDATE filaviva.jobs SET state = 'failed' WHERE id = :id", id=job)
    await done(morgue, lambda on: requeue(on, [job], author="me", reason="again"))
    assert len(await callbacks(morgue)) == 1

    await morgue.end(job)

    told = [row["payload"]["status"] for row in await callbacks(morgue)]
    assert sorted(told) == ["failed", "succeeded"]


async def test_the_url_is_kept_with_the_job_and_strictly_checked(producer: Producer) -> None:
    kept = await producer.submit("a", callbackUrl=URL)
    batch = await producer.client.post(
        "/v1/jobs",
        json={"type": "test.echo", "items": [{"n": 1}, {"n": 2}], "callbackUrl": URL},
        headers={"Idempotency-Key": "b"},
    )
    await producer.client.post(f"/v1/jobs/{batch.json()['jobId']}/cancel")
    inside = await producer.submit("c", callbackUrl="https://127.0.0.1/hook")

    assert (kept.status_code, batch.status_code) == (202, 202), batch.text
    assert inside.status_code == 422
    assert inside.json()["errors"][0]["pointer"] == "/callbackUrl"
    told = await producer.execute(
        "SELECT payload->>'jobId', payload->>'status' FROM filaviva.jobs"
        " WHERE type = 'filaviva.callback'"
    )
    assert [tuple(row) for row in told] == [(batch.json()["jobId"], "canceled")]
    rows = await producer.execute(
        "SELECT callback_url, parent_id IS NULL AS own FROM filaviva.jobs"
        " WHERE type = 'test.echo' ORDER BY id"
    )
    # A batch calls back once, as a whole.
    assert [(row.callback_url, row.own) for row in rows] == [
        (URL, True), (URL, True), (None, False), (None, False),
    ]  # fmt: skip


async def test_without_a_secret_nobody_is_called_back(producer: Producer) -> None:
    origin = Origin(Principal("k", "default", frozenset({"admin"})), "key", "c")
    body = {"type": "test.echo", "data": {"n": 1}, "callbackUrl": URL}

    with pytest.raises(Rejected, match="FILAVIVA_CALLBACKS__SECRET"):
        admit(body, origin, producer.registry)
    assert admit(body, origin, producer.registry, callbacks=Rules()).callback_url == URL
    assert with_built_in(shop, CallbackSettings(), DrillSettings()) is shop
    assert QUEUE in with_built_in(shop, CallbackSettings(secret=SECRET), DrillSettings()).queues  # type: ignore[arg-type]


def test_an_app_with_callbacks_is_all_that_it_was() -> None:
    class Before(Contract, type="shop.order", version=1):
        order: int

    class After(Contract, type="shop.order", version=2):
        order: int

    class Sold(Contract, type="shop.sold", version=1):
        order: int

    async def sell(job: After, ctx: Context) -> None: ...

    app = App("shop", lifecycle=True)
    app.handler(After)(sell)
    app.upcaster(Before, to=2)(lambda data: data)
    app.deprecate(Before, sunset=date(2027, 1, 1))
    app.publishes(Sold)
    before = app.reads()

    served = with_built_in(app, CallbackSettings(secret=SECRET), DrillSettings())  # type: ignore[arg-type]

    assert served.old_contracts == app.old_contracts != {}
    assert served.sunsets == app.sunsets != {}
    assert served.published == app.published != {}
    assert served.reads() == {**before, "filaviva.callback": (1,)}
    assert served.handlers["shop.order"][2].policy.lifecycle
    # Nobody is told how a callback ends, and the app itself is as before.
    assert not served.handlers["filaviva.callback"][1].policy.lifecycle
    assert app.reads() == before


async def test_nobody_can_prevent_a_callback_by_taking_its_name(producer: Producer) -> None:
    answer = await producer.submit("a", callbackUrl=URL)
    job = answer.json()["jobId"]

    taken = await producer.submit(f"callback:{job}:1:succeeded")

    assert (taken.status_code, taken.json()["code"]) == (400, "idempotency_key_invalid")
    await producer.execute("UPDATE filaviva.jobs SET state = 'running'")
    await producer.execute("UPDATE filaviva.jobs SET state = 'succeeded'")
    rows = await producer.execute("SELECT id FROM filaviva.jobs WHERE type = 'filaviva.callback'")
    assert len(rows) == 1


async def test_nobody_else_may_submit_a_callback(producer: Producer) -> None:
    async with producer.engine.begin() as connection:
        from filaviva.publishing import publish  # noqa: PLC0415

        await publish(connection, built_in())
    await producer.registry.refresh()

    answer = await producer.submit("a", type="filaviva.callback", data={})

    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_contract")
    assert "filaviva." not in answer.json()["detail"].partition("there is: ")[2]


async def test_callbacks_are_listed_for_who_asks_for_them(producer: Producer) -> None:
    kept = (await producer.submit("a", callbackUrl=URL)).json()["jobId"]
    await producer.client.post(f"/v1/jobs/{kept}/cancel")

    plain = (await producer.client.get("/v1/jobs")).json()["items"]
    asked = await producer.client.get(f"/v1/jobs?type=filaviva.callback&label.job={kept}")

    assert [job["jobId"] for job in plain] == [kept]
    assert [job["status"] for job in asked.json()["items"]] == ["queued"]


async def called(jobs: Jobs) -> Any:
    """Run the newest callback's handler as a worker would."""
    given: dict[str, Any] = {"secret": SECRET, "allow_http": True, "allow_private": True}
    app = with_built_in(shop, CallbackSettings(**given), DrillSettings())
    handler = app.find("filaviva.callback", 1)
    assert handler is not None
    row = (await callbacks(jobs))[-1]
    await jobs.claim(row["id"])
    mine = await claimed(jobs, row["id"])
    context = LiveContext(mine, Live(mine.id, mine.fence, 60), tools(jobs.engine))
    return await handler.function(handler.parse(json.dumps(row["payload"])), context)


async def test_the_handler_posts_to_the_jobs_url_unless_it_is_erased(
    jobs: Jobs, receiver: Receiver
) -> None:
    async def ended() -> UUID:
        job = await jobs.running(callback_url=f"'{receiver.url}'")
        await done(jobs, lambda on: complete(on, [Completion(job, 1, '"ok"')]))
        return job

    job = await ended()
    assert await called(jobs) == {"answered": 204}
    (got,) = receiver.received
    assert json.loads(got.body)["data"]["jobId"] == str(job)
    callback = (await callbacks(jobs))[-1]["id"]
    assert got.headers["webhook-id"] == f"msg_{callback}"

    for change in ("callback_url = NULL", "tenant = 'other'"):
        job = await ended()
        await jobs.all(f"UPDATE filaviva.jobs SET {change} WHERE id = :id", id=job)
        assert (await called(jobs))["answered"] is None
    assert len(receiver.received) == 1
