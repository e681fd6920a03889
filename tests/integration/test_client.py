"""The client against a running producer, over connections that are lost now and then."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from filaviva import Client, JobCanceled, JobFailed, SyncClient, Unreachable
from filaviva.client import (
    Conflict,
    Forbidden,
    InvalidRequest,
    Missing,
    Overloaded,
    Refusal,
    Unauthenticated,
)
from fixtures.producer import Echo, Producer

Fault = Callable[[httpx2.Request], httpx2.Response | Exception | None]


class Lossy(httpx2.AsyncBaseTransport):
    """The real network, of which answers get lost: a fault for each request, None for none."""

    def __init__(self, *faults: Fault | None, after: bool = True) -> None:
        self._network = httpx2.AsyncHTTPTransport()
        self._faults = list(faults)
        self._after = after
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Let the request through, but perhaps not its answer."""
        self.requests.append(request)
        fault = self._faults.pop(0) if self._faults else None
        if fault is None or self._after:
            answer = await self._network.handle_async_request(request)
        if fault is not None:
            if self._after:
                await answer.aread()
                await answer.aclose()
            failed = fault(request)
            if isinstance(failed, Exception):
                raise failed
            assert failed is not None
            return failed
        return answer

    async def aclose(self) -> None:
        """Close the network."""
        await self._network.aclose()


def lost(request: httpx2.Request) -> Exception:
    return httpx2.ReadError("lost", request=request)


def busy(status: int, **headers: str) -> Fault:
    return lambda request: httpx2.Response(status, headers=headers, request=request)


class Total(BaseModel):
    """What a handler returns."""

    total: Decimal


@pytest.fixture
async def client(producer: Producer) -> AsyncIterator[Client]:
    async with Client(producer.url, producer.key, patience=10) as made:
        yield made


def through(producer: Producer, network: Lossy, patience: float = 10) -> Client:
    return Client(producer.url, producer.key, patience=patience, transport=network)


async def finish(producer: Producer, state: str = "succeeded", **columns: str) -> None:
    """Let every job end in this state, as a worker would."""
    more = "".join(f", {name} = {value}" for name, value in columns.items())
    if state != "canceled":
        await producer.execute("UPDATE filaviva.jobs SET state = 'running'")
    await producer.execute(
        "WITH done AS (UPDATE filaviva.jobs SET state = CAST(:state AS text),"
        f" finished_at = clock_timestamp(){more} RETURNING id, state)"
        " INSERT INTO filaviva.job_events (job_id, kind, data)"
        " SELECT id, 'state', jsonb_build_object('status', state) FROM done",
        state=state,
    )


async def test_a_contract_is_submitted_and_its_result_comes_back_in_its_type(
    producer: Producer, client: Client
) -> None:
    job = await client.submit(
        Echo(n=3),
        result=Total,
        labels={"run": "7"},
        max_attempts=2,
        run_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    waiting = asyncio.create_task(job.result(timeout=20))
    status = await job.get()
    await finish(producer, result="""'{"total": 0.12345678901234567890123}'""")

    assert (status.type, status.version, status.status) == ("test.echo", 1, "queued")
    assert (dict(status.labels), status.max_attempts) == ({"run": "7"}, 2)
    assert not job.duplicate
    assert await waiting == Total(total=Decimal("0.12345678901234567890123"))


async def test_a_submission_whose_answer_was_lost_is_one_job(producer: Producer) -> None:
    network = Lossy(lost, busy(502), None)

    async with through(producer, network) as client:
        job = await client.submit("test.echo", {"n": 1})

    assert job.duplicate
    assert len(network.requests) == 3
    assert len({request.headers["idempotency-key"] for request in network.requests}) == 1
    assert len(await producer.execute("SELECT 1 FROM filaviva.jobs")) == 1


async def test_who_is_busy_is_asked_again_not_sooner_than_it_said(producer: Producer) -> None:
    network = Lossy(busy(429, **{"Retry-After": "1"}), None, after=False)

    async with through(producer, network) as client:
        began = asyncio.get_running_loop().time()
        await client.submit("test.echo", {"n": 1})

    assert asyncio.get_running_loop().time() - began >= 1


async def test_patience_ends(producer: Producer) -> None:
    async with through(producer, Lossy(*[busy(503)] * 50), patience=0.3) as client:
        with pytest.raises(Overloaded) as refused:
            await client.list()
    async with Client("http://127.0.0.1:9", "fv_a_b", patience=0.3) as nobody:
        with pytest.raises(Unreachable, match="does not answer"):
            await nobody.list()

    assert refused.value.status == 503


async def test_each_refusal_has_its_type_code_and_places(producer: Producer) -> None:
    reading = (await producer.as_key(scopes=["jobs:read"]))["Authorization"].split()[1]
    async with Client(producer.url, producer.key) as client:
        with pytest.raises(InvalidRequest) as invalid:
            await client.submit("test.echo", {"n": "x"})
        await client.submit("test.echo", {"n": 1}, idempotency_key="same")
        with pytest.raises(InvalidRequest) as reused:
            await client.submit("test.echo", {"n": 2}, idempotency_key="same")
        with pytest.raises(Missing):
            await client.get("019a7b0e-5d1c-7c3a-9f11-2b6a1f0c9d55")
        job = await client.submit("test.echo", {"n": 1})
        with pytest.raises(Conflict):
            await job.retry()
    async with Client(producer.url, reading) as client:
        with pytest.raises(Forbidden):
            await client.submit("test.echo", {"n": 1})
    async with Client(producer.url, "fv_unknown") as client:
        with pytest.raises(Unauthenticated):
            await client.list()

    assert invalid.value.code == "invalid_data"
    assert [flaw.pointer for flaw in invalid.value.flaws] == ["/data/n"]
    assert invalid.value.request_id
    assert reused.value.code == "idempotency_key_reused"
    assert isinstance(reused.value, Refusal)


async def test_an_option_that_does_not_exist_is_refused_here(client: Client) -> None:
    unknown: Any = {"maxattempts": 3}
    with pytest.raises(TypeError, match="max_attempts"):
        await client.submit("test.echo", {"n": 1}, **unknown)
    with pytest.raises(ValueError, match="zone"):
        await client.submit("test.echo", {"n": 1}, run_at=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_what_failed_is_repeated_once_though_the_answer_was_lost(producer: Producer) -> None:
    network = Lossy(None, lost)
    async with through(producer, network) as client:
        job = await client.submit("test.echo", {"n": 1})
        await producer.execute("UPDATE filaviva.jobs SET state = 'failed'")

        assert await job.retry(data=Echo(n=2)) == 1

    tries = [r.headers["Idempotency-Key"] for r in network.requests if "/retry" in str(r.url)]
    assert (len(tries), len(set(tries))) == (2, 1)
    (row,) = await producer.execute("SELECT epoch FROM filaviva.jobs")
    assert row.epoch == 2


async def test_a_job_is_canceled_though_the_answer_was_lost(producer: Producer) -> None:
    async with through(producer, Lossy(None, lost)) as client:
        job = await client.submit("test.echo", {"n": 1})
        assert await job.cancel(reason="no more") == "canceled"
        with pytest.raises(JobCanceled):
            await job.result(timeout=5)
        assert await job.retry(reason="after all") == 1
        assert (await job.get()).status == "queued"


async def test_a_failed_job_tells_why_and_one_that_goes_on_does_not_end_in_time(
    producer: Producer, client: Client
) -> None:
    job = await client.submit("test.echo", {"n": 1})
    with pytest.raises(TimeoutError, match="queued"):
        await job.wait(timeout=0.2)
    error = json.dumps({"class": "refused", "code": "Refused", "message": "not this one"})
    await finish(producer, "failed", error=f"'{error}'")

    with pytest.raises(JobFailed, match="not this one") as failed:
        await job.result(timeout=5)

    assert failed.value.job.error is not None
    assert failed.value.job.error.error_class == "refused"


async def test_a_server_that_cannot_let_us_wait_is_not_asked_without_a_pause(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> bool:
        return False

    monkeypatch.setattr(producer.watch, "changed", full)
    network = Lossy()
    async with through(producer, network) as client:
        job = await client.submit("test.echo", {"n": 1})
        with pytest.raises(TimeoutError):
            await job.wait(timeout=1.5)

    assert len(network.requests) <= 5


async def test_a_watch_takes_no_letter_for_the_end_of_a_line(producer: Producer) -> None:
    # Python and many libraries do: what people write in documents has them all.
    said = "one\u2028two\u2029three\u0085four"
    async with Client(producer.url, producer.key) as client:
        job = await client.submit("test.echo", {"n": 1})
        await producer.execute(
            "INSERT INTO filaviva.job_events (job_id, kind, data)"
            " VALUES (:id, 'progress', jsonb_build_object('message', CAST(:said AS text)))",
            id=job.id,
            said=said,
        )

        event = await anext(aiter(job.watch(after=0)))
        while event.kind != "progress":
            event = await anext(aiter(job.watch(after=event.id)))

    assert event.data["message"] == said


async def test_a_watch_gives_each_event_once_over_lost_connections(producer: Producer) -> None:
    network = Lossy(None, None, lost, busy(503), None)

    async with through(producer, network) as client:
        job = await client.submit("test.echo", {"n": 1})
        watched = job.watch()
        first = await anext(watched)
        assert first.job is not None
        await producer.execute("UPDATE filaviva.jobs SET state = 'running'")
        await producer.execute(
            "INSERT INTO filaviva.job_events (job_id, kind, data)"
            " SELECT id, 'state', '{\"status\": \"running\"}' FROM filaviva.jobs"
        )
        await finish(producer)
        events = [(event.kind, event.data["status"]) async for event in watched]
        resumed = [each.kind async for each in job.watch(after=first.id)]
        over = [each.kind async for each in job.watch()]

    assert events == [("state", "running"), ("state", "succeeded")]
    assert resumed == ["state", "state"]
    assert over == ["snapshot"]


async def test_a_batch_has_items_which_are_repeated_with_corrections(
    producer: Producer, client: Client
) -> None:
    job = await client.submit(Echo, items=[Echo(n=n) for n in range(130)], concurrency=5)
    await producer.execute(
        "UPDATE filaviva.jobs SET state = 'failed', parked_reason = NULL WHERE item_index = 1"
    )

    items = [item async for item in job.items()]
    failed = [item.index async for item in job.items(status=["failed"])]
    repeated = await job.retry(items=[(1, Echo(n=7))], reason="corrected")

    assert [item.index for item in items] == [*range(130)]
    assert failed == [1]
    assert repeated == 1


async def test_lists_go_on_where_a_page_ends(client: Client) -> None:
    for n in range(3):
        await client.submit("test.echo", {"n": n}, labels={"run": "a" if n else "b"})

    page = await client.list(limit=2, labels={"run": "a"})
    first = await client.list(limit=2)
    rest = await client.list(limit=2, cursor=first.next)

    assert len(page.jobs) == 2
    assert (len(first.jobs), len(rest.jobs), rest.next) == (2, 1, None)


async def test_a_program_without_a_loop_does_the_same(producer: Producer) -> None:
    def program() -> tuple[list[str], Any, str, int]:
        with SyncClient(producer.url, producer.key) as client:
            job = client.submit(Echo(n=1), result=Total)
            asyncio.run_coroutine_threadsafe(
                finish(producer, result="""'{"total": 1.10}'"""), loop
            ).result()
            kinds = [event.kind for event in job.watch()]
            other = client.submit("test.echo", {"n": 2})
            canceled = other.cancel()
            with pytest.raises(JobCanceled):
                other.result(timeout=5)
            return kinds, job.result(timeout=5), canceled, len(client.list().jobs)

    loop = asyncio.get_running_loop()
    kinds, result, canceled, count = await asyncio.to_thread(program)

    assert kinds == ["snapshot"]
    assert result == Total(total=Decimal("1.10"))
    assert (canceled, count) == ("canceled", 2)
