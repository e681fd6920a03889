"""Following a job by server-sent events: nothing missed, nothing twice, and an honest end."""

import asyncio
import contextlib
import itertools
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event

from filaviva.notify import Notifier
from filaviva.operations import keys
from filaviva_producer.streams import Streams
from fixtures.producer import Producer
from fixtures.sse import listening
from fixtures.timelines import finishes, happens, submitted
from fixtures.waiting import until


def open_streams(producer: Producer) -> float | None:
    """Read the gauge."""
    return producer.metrics.registry.get_sample_value("filaviva_sse_clients")


async def test_a_stream_begins_with_the_job_and_ends_with_its_final_state(
    producer: Producer,
) -> None:
    address, job_id = await submitted(producer)

    async with listening(producer.client, f"{address}/events") as stream:
        await until(lambda: stream.told)
        await happens(producer, job_id, "state", status="running", attempt=1)
        await happens(producer, job_id, "progress", done=7, total=10, message="read")
        await happens(producer, job_id, "step", name="read", state="succeeded")
        await happens(producer, job_id, "item", index=3, jobId=str(job_id), status="failed")
        last = await happens(producer, job_id, "state", status="succeeded")
        await asyncio.wait_for(stream.ended.wait(), timeout=5)

    assert stream.response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.response.headers["x-accel-buffering"] == "no"
    assert "no-store" in stream.response.headers["cache-control"]
    assert stream.kinds == ["snapshot", "state", "progress", "item", "state"]
    assert stream.ids == sorted(set(stream.ids))
    assert stream.ids[-1] == last
    assert 1000 <= stream.retry[0] <= 3000
    snapshot, _, progress, item, state = (one.data for one in stream.told)
    assert snapshot["status"] == "queued"
    assert snapshot["jobId"] == str(job_id)
    assert (progress["succeeded"], progress["total"], progress["message"]) == (7, 10, "read")
    assert (item["index"], item["status"]) == (3, "failed")
    assert state["status"] == "succeeded"
    assert state["at"].endswith("Z")


async def test_the_snapshot_is_the_job_as_it_is_given_with_all_its_links(
    producer: Producer,
) -> None:
    address, job_id = await submitted(producer)
    await finishes(producer, job_id)

    async with listening(producer.client, f"{address}/events") as stream:
        await asyncio.wait_for(stream.ended.wait(), timeout=5)
    found = (await producer.client.get(address)).json()

    assert stream.told[0].data == found
    assert str(job_id) in found["links"]["status"]


async def test_who_asks_again_after_the_end_is_told_to_stop(producer: Producer) -> None:
    address, job_id = await submitted(producer)
    last = await finishes(producer, job_id)

    async with listening(producer.client, f"{address}/events") as stream:
        await asyncio.wait_for(stream.ended.wait(), timeout=5)
    again = await producer.client.get(f"{address}/events", headers={"Last-Event-ID": str(last)})
    otherwise = await producer.client.get(f"{address}/events", params={"after": last})

    assert (stream.kinds, stream.ids) == (["snapshot"], [last])
    assert stream.told[0].data["status"] == "succeeded"
    assert (again.status_code, again.content) == (204, b"")
    assert otherwise.status_code == 204


async def test_who_comes_back_reads_on_where_it_was(producer: Producer) -> None:
    address, job_id = await submitted(producer)
    wanted = [await happens(producer, job_id, "progress", done=n, total=250) for n in range(250)]

    async with listening(producer.client, f"{address}/events", last=wanted[9]) as stream:
        await until(lambda: len(stream.told) >= 240)
        wanted.append(await finishes(producer, job_id))
        await asyncio.wait_for(stream.ended.wait(), timeout=5)

    assert stream.ids[:240] == wanted[10:250]
    assert stream.ids[-1] == wanted[-1]
    assert len(stream.ids) == len(set(stream.ids)) == 242


@pytest.mark.parametrize("last", ["", "seven", "-1", "9" * 40, "999999999999"])
async def test_an_id_that_was_never_given_begins_anew(producer: Producer, last: str) -> None:
    address, _ = await submitted(producer)
    headers = {"Last-Event-ID": last}

    async with listening(producer.client, f"{address}/events", headers=headers) as stream:
        await until(lambda: stream.told)

    assert stream.kinds == ["snapshot"]


async def test_a_job_that_is_sent_back_after_its_end_goes_on(producer: Producer) -> None:
    address, job_id = await submitted(producer)
    await happens(producer, job_id, "state", status="running", attempt=1)
    failed = await happens(producer, job_id, "state", status="failed")
    await happens(producer, job_id, "state", status="queued")

    async with listening(producer.client, f"{address}/events", last=failed) as stream:
        await until(lambda: stream.told)
        await finishes(producer, job_id)
        await asyncio.wait_for(stream.ended.wait(), timeout=5)

    assert [one.data["status"] for one in stream.told] == ["queued", "running", "succeeded"]


async def test_an_entry_that_commits_late_is_not_skipped(producer: Producer) -> None:
    address, job_id = await submitted(producer)
    other, other_id = await submitted(producer, "b")
    entry = "INSERT INTO filaviva.job_events (job_id, kind, data) VALUES ($1, 'progress', '{}')"
    lock = "UPDATE filaviva.jobs SET updated_at = now() WHERE id = $1"

    async with (
        listening(producer.client, f"{address}/events") as stream,
        listening(producer.client, f"{other}/events") as beside,
        producer.engine.connect() as slow,
    ):
        await slow.exec_driver_sql(lock, (job_id,))
        await slow.exec_driver_sql(entry, (job_id,))
        later = await happens(producer, other_id, "progress", done=1)  # commits before, a higher id
        await until(lambda: later in beside.ids)
        behind = asyncio.create_task(happens(producer, job_id, "progress", done=2))
        await slow.commit()
        await behind
        await until(lambda: len(stream.told) == 3)

    assert stream.kinds == ["snapshot", "progress", "progress"]
    assert stream.ids == sorted(stream.ids)
    assert stream.ids[1] < later < stream.ids[2]


async def test_two_writers_and_changing_replicas_leave_no_gap_and_no_double(
    producer: Producer,
) -> None:
    address, job_id = await submitted(producer)
    other = await producer.replica()
    written: list[int] = []

    async def write(times: int) -> None:
        written.extend([await happens(producer, job_id, "progress", done=n) for n in range(times)])

    seen: list[int] = []
    writing = asyncio.gather(write(60), write(60))
    for client in itertools.cycle((producer.client, other.client)):
        wanted = min(3, 121 - len(seen))
        last = seen[-1] if seen else 0
        async with listening(client, f"{address}/events", last=last) as stream:
            await until(lambda told=stream.told, wanted=wanted: len(told) >= wanted)
        seen += stream.ids
        if len(seen) >= 121:
            break
    await writing

    assert seen[0] < min(written)  # the submission's own entry
    assert seen[1:] == sorted(written)
    await other.close()


async def test_a_stopped_producer_ends_its_streams_at_once(producer: Producer) -> None:
    address, _ = await submitted(producer)
    other = await producer.replica()

    async with listening(other.client, f"{address}/events") as stream:
        await until(lambda: stream.told)
        other.stop.set()
        await asyncio.wait_for(stream.ended.wait(), timeout=1)
    await other.close()

    assert stream.kinds == ["snapshot"]


async def test_the_notification_is_enough_and_its_loss_costs_a_moment(producer: Producer) -> None:
    address, job_id = await submitted(producer)
    notifier = Notifier(producer.engine)
    loop = asyncio.get_running_loop()

    async def lag(*, notify: bool) -> float:
        async with listening(producer.client, f"{address}/events") as stream:
            await until(lambda: stream.told)
            await asyncio.sleep(0)
            begun = loop.time()
            await happens(producer, job_id, "progress", done=1)
            if notify:
                notifier.changed([job_id])
                await notifier.step()
            await until(lambda: len(stream.told) == 2)
            return loop.time() - begun

    told = min([await lag(notify=True) for _ in range(4)])
    untold = max([await lag(notify=False) for _ in range(3)])

    assert told < 0.25
    assert untold < 2


async def test_one_question_serves_all_who_follow(producer: Producer) -> None:
    ids = [(await submitted(producer, f"k{n}"))[1] for n in range(4)]
    streams = Streams(producer.engine)
    asked: list[str] = []
    heard = producer.engine.sync_engine
    event.listen(heard, "before_cursor_execute", lambda *told: asked.append(told[2]))

    with contextlib.ExitStack() as stack:
        followers = [
            stack.enter_context(streams.following(job_id, 0)) for job_id in ids for _ in range(5)
        ]
        told = await streams.step()
        taken = [await one.take(0.01) for one in followers]

    assert told == 20
    assert len(asked) == 1
    assert all(len(some) == 1 for some in taken)


async def test_a_client_that_takes_nothing_is_given_nothing_more(producer: Producer) -> None:
    _, job_id = await submitted(producer)
    for n in range(250):
        await happens(producer, job_id, "progress", done=n)
    streams = Streams(producer.engine)

    with streams.following(job_id, 0) as slow, streams.following(job_id, 0) as quick:
        taken = []
        for _ in range(6):
            await streams.step()
            taken += await quick.take(0.01)
        held = await slow.take(0.01)
        rest = []
        for _ in range(6):
            await streams.step()
            rest += await slow.take(0.01)

    assert len(taken) == 251
    assert len(held) == 100
    assert [one.id for one in held + rest] == [one.id for one in taken]


async def test_a_key_has_only_so_many_streams(producer: Producer) -> None:
    address, _ = await submitted(producer)
    path = f"{address}/events"

    async with asyncio.timeout(10), listening(producer.client, path) as one:
        opened = [listening(producer.client, path) for _ in range(7)]
        others = [await stream.__aenter__() for stream in opened]
        await until(lambda: all(stream.told for stream in (one, *others)))
        refused = await producer.client.get(path)
        another = await producer.as_key()
        async with listening(producer.client, path, headers=another) as elsewhere:
            await until(lambda: elsewhere.told)
            count = open_streams(producer)
        for stream in opened:
            await stream.__aexit__(None, None, None)

    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
    assert int(refused.headers["retry-after"]) >= 1
    assert count == 9
    await until(lambda: open_streams(producer) == 0)


async def test_a_process_has_only_so_many_streams(producer: Producer) -> None:
    address, _ = await submitted(producer)
    path = f"{address}/events"
    headers = [await producer.as_key() for _ in range(3)]

    opened = [listening(producer.client, path, headers=headers[n % 2]) for n in range(12)]
    streams = [await stream.__aenter__() for stream in opened]
    await until(lambda: all(stream.told for stream in streams))
    refused = await producer.client.get(path, headers=headers[2])
    for stream in opened:
        await stream.__aexit__(None, None, None)

    assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
    assert "retry-after" in refused.headers


async def test_only_who_may_see_a_job_may_follow_it(producer: Producer) -> None:
    address, _ = await submitted(producer)
    path = f"{address}/events"

    none = await producer.client.get(path, headers={"Authorization": ""})
    writer = await producer.client.get(path, headers=await producer.as_key(scopes=["jobs:write"]))
    stranger = await producer.client.get(path, headers=await producer.as_key(tenant="other"))
    absent = await producer.client.get(f"/v1/jobs/{UUID(int=7)}/events")
    typo = await producer.client.get(path, params={"afer": 1})

    answers = (none, writer, stranger, absent, typo)
    assert [answer.status_code for answer in answers] == [401, 403, 404, 404, 422]
    assert {answer.headers["content-type"] for answer in answers} == {"application/problem+json"}


async def test_a_revoked_key_loses_its_stream(producer: Producer) -> None:
    address, _ = await submitted(producer)
    other = await producer.replica(beat=0.1)
    header = await producer.as_key()

    async with listening(other.client, f"{address}/events", headers=header) as stream:
        await until(lambda: len(stream.comments) >= 2)
        await keys.revoke(producer.engine, header["Authorization"].split("_")[1])
        await asyncio.wait_for(stream.ended.wait(), timeout=5)

    assert stream.comments[0] == "ping"
    await other.close()


async def test_streams_outlive_a_database_that_is_away(producer: Producer) -> None:
    address, job_id = await submitted(producer)

    async with listening(producer.client, f"{address}/events") as stream:
        await until(lambda: stream.told)
        await producer.lose_database()
        await happens(producer, job_id, "progress", done=1)
        absent = await producer.client.get(f"{address}/events")
        await producer.find_database()
        await until(lambda: len(stream.told) == 2)

    assert stream.kinds == ["snapshot", "progress"]
    assert absent.status_code == 503


async def test_a_client_that_leaves_frees_its_seat(producer: Producer) -> None:
    address, _ = await submitted(producer)

    async with listening(producer.client, f"{address}/events") as stream:
        await until(lambda: stream.told)
        during = open_streams(producer)

    await until(lambda: open_streams(producer) == 0)
    assert during == 1


async def test_the_program_of_the_howto_follows_a_job_over_restarts(producer: Producer) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/show-progress-to-your-users.md").read_text()
    (program,) = re.findall(r"```python\n(import .*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102 - our own page
    _, job_id = await submitted(producer)
    first = await producer.replica()
    told: list[str] = []

    async def follow() -> None:
        async for kind, _ in names["follow"](str(first.client.base_url), producer.key, job_id):
            told.append(kind)

    following = asyncio.create_task(follow())
    await until(lambda: told)
    await first.close()
    await happens(producer, job_id, "progress", done=1)
    second = await producer.replica(port=first.port)
    await until(lambda: len(told) == 2)
    await finishes(producer, job_id)
    await asyncio.wait_for(following, timeout=10)
    await second.close()

    assert told == ["snapshot", "progress", "state", "state"]
