"""POST /v1/jobs/{id}/cancel and `filaviva jobs cancel`."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from fixtures.command_line import CommandLine
from fixtures.producer import Producer
from fixtures.retrying import Jobs


async def submitted(producer: Producer, key: str = "a") -> str:
    answer = await producer.submit(key)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["cancelUrl"])


async def cancel(producer: Producer, address: str, **more: Any) -> httpx2.Response:
    return await producer.client.post(address, **more)


async def test_a_queued_job_is_canceled_at_once(producer: Producer) -> None:
    address = await submitted(producer)

    answer = await cancel(producer, address, json={"reason": "no more"})

    assert answer.status_code == 202, answer.text
    job = address.split("/")[3]
    assert answer.json() == {
        "jobId": job,
        "status": "canceled",
        "statusUrl": f"/v1/jobs/{job}",
        "canceled": 1,
        "requested": 0,
    }
    assert answer.headers["location"] == f"/v1/jobs/{job}"
    (event,) = [
        each
        for each in (await producer.client.get(f"/v1/jobs/{job}/timeline")).json()["items"]
        if each["data"].get("status") == "canceled"
    ]
    assert event["data"]["reason"] == "no more"
    ((tenant, target),) = await producer.execute(
        "SELECT tenant, target FROM filaviva.audit_log WHERE action = 'job.canceled'"
    )
    assert (tenant, target) == ("default", job)
    labels = {"type": "test.echo", "state": "canceled"}
    count = producer.metrics.registry.get_sample_value("filaviva_jobs_finished_total", labels)
    assert count == 1


async def test_a_running_job_is_asked_to_stop_as_often_as_one_likes(producer: Producer) -> None:
    address = await submitted(producer)
    await producer.execute("UPDATE filaviva.jobs SET state = 'running'")

    answers = [await cancel(producer, address) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [202, 202]
    assert {answer.json()["status"] for answer in answers} == {"cancel_requested"}
    assert [answer.json()["requested"] for answer in answers] == [1, 0]


async def test_what_is_final_is_refused(producer: Producer) -> None:
    address = await submitted(producer)
    await cancel(producer, address)

    answer = await cancel(producer, address)

    assert answer.status_code == 409
    assert answer.json()["code"] == "job_final"
    assert "canceled already" in answer.json()["detail"]


async def test_a_key_needs_the_scope_and_sees_only_its_own(producer: Producer) -> None:
    address = await submitted(producer)
    reading = await producer.as_key(scopes=["jobs:read", "jobs:write"])
    other = await producer.as_key(tenant="other")
    narrow = await producer.as_key(types=["test.fetch"])

    answers = [await cancel(producer, address, headers=key) for key in (reading, other, narrow)]

    assert [answer.status_code for answer in answers] == [403, 404, 404]
    (row,) = await producer.execute("SELECT state FROM filaviva.jobs")
    assert row.state == "queued"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"json": {"why": "x"}}, 422),
        ({"json": {"reason": "x" * 501}}, 422),
        ({"json": {"reason": "a\x00b"}}, 422),
        ({"json": []}, 422),
        ({"content": b"{", "headers": {"Content-Type": "application/json"}}, 400),
        ({"content": b"reason=x"}, 415),
        ({"params": {"force": "1"}}, 422),
    ],
)
async def test_a_wish_that_cannot_be_understood_changes_nothing(
    producer: Producer, more: dict[str, Any], status: int
) -> None:
    address = await submitted(producer)

    answer = await cancel(producer, address, **more)

    assert answer.status_code == status
    (row,) = await producer.execute("SELECT state FROM filaviva.jobs")
    assert row.state == "queued"


@pytest.mark.parametrize("job", ["00000000-0000-7000-8000-000000000000", "nonsense"])
async def test_a_job_that_does_not_exist_is_404(producer: Producer, job: str) -> None:
    assert (await cancel(producer, f"/v1/jobs/{job}/cancel")).status_code == 404


async def test_the_command_line_shows_asks_and_cancels(database: str, jobs: Jobs) -> None:
    cli = CommandLine(FILAVIVA_POSTGRES__URL=database)
    waiting, running = await jobs.queued(), await jobs.running()
    ended = await jobs.queued(state="'failed'")

    tried = await asyncio.to_thread(cli, "jobs", "cancel", str(waiting), "--dry-run", "--json")
    unsure = await asyncio.to_thread(cli, "jobs", "cancel", str(waiting), stdin="n\n")
    assert (await jobs.row(waiting))["state"] == "queued"
    both = await asyncio.to_thread(
        cli, "jobs", "cancel", str(waiting), str(running), "--yes", "--json", "--reason", "stop"
    )
    late = await asyncio.to_thread(cli, "jobs", "cancel", str(ended), "--yes")
    nobody = await asyncio.to_thread(cli, "jobs", "cancel", str(uuid4()), "--yes")

    assert tried.json["items"][0]["status"] == "queued"
    assert tried.json["dryRun"] is True
    assert (tried.code, unsure.code, both.code, late.code, nobody.code) == (0, 1, 0, 4, 3)
    assert [job["status"] for job in both.json["items"]] == ["canceled", "cancel_requested"]
    assert "final already" in late.err
