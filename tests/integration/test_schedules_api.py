"""Schedules over HTTP, on a real database."""

import json
from typing import Any

from fixtures.producer import Producer

NIGHTLY = {
    "name": "nightly",
    "cron": "30 2 * * mon-fri",
    "timeZone": "America/Sao_Paulo",
    "type": "test.echo",
    "data": {"n": 7},
    "labels": {"team": "a"},
}


async def create(producer: Producer, **changes: Any) -> dict[str, Any]:
    answer = await producer.client.post("/v1/schedules", json={**NIGHTLY, **changes})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_schedule_is_kept_and_shows_its_next_five_times(producer: Producer) -> None:
    made = await create(producer)

    found = (await producer.client.get(f"/v1/schedules/{made['scheduleId']}")).json()

    assert found == made
    assert (found["cron"], found["missed"], found["enabled"]) == ("30 2 * * MON-FRI", "once", True)
    assert found["labels"] == {"team": "a", "schedule": "nightly"}
    assert (found["version"], found["priority"], found["maxAttempts"]) == (1, "normal", None)
    assert len(found["nextTimes"]) == 5
    assert all(time.endswith("T02:30:00-03:00") for time in found["nextTimes"])
    assert found["nextFireAt"].endswith("T05:30:00.000000Z")


async def test_the_same_request_again_is_the_same_schedule(producer: Producer) -> None:
    made = await create(producer)

    again = await producer.client.post("/v1/schedules", json=NIGHTLY)
    other = await producer.client.post("/v1/schedules", json={**NIGHTLY, "cron": "0 3 * * *"})

    assert (again.status_code, again.json()["scheduleId"]) == (200, made["scheduleId"])
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


async def test_a_schedule_of_a_batch_is_kept_changed_and_fired_by_hand(producer: Producer) -> None:
    body = {name: one for name, one in NIGHTLY.items() if name != "data"}
    batch = {**body, "items": [{"n": 1}, {"n": 2.50}], "concurrency": 1, "overlap": "skip"}
    answer = await producer.client.post("/v1/schedules", json=batch)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["items"], made["concurrency"], made["data"]) == ([{"n": 1}, {"n": 2.5}], 1, None)
    assert (made["overlap"], made["waiting"], made["skipped"]) == ("skip", 0, 0)
    address = f"/v1/schedules/{made['scheduleId']}"

    fired = await producer.client.post(f"{address}/fire")
    job = (await producer.client.get(fired.json()["statusUrl"])).json()
    assert job["progress"]["total"] == 2
    back = await producer.client.patch(address, json={"data": {"n": 3}, "overlap": "queue"})
    assert (back.status_code, back.json()["data"]) == (200, {"n": 3})
    assert "items" not in back.json()
    again = await producer.client.patch(address, json={"items": [{"n": 4}]})
    assert (again.json()["items"], again.json()["overlap"]) == ([{"n": 4}], "queue")
    wrong = await producer.client.patch(address, json={"overlap": "later"})
    assert wrong.json()["errors"][0]["pointer"] == "/overlap"


REFUSED: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"cron": "61 * * * *"}, "/cron", ("'61'", "minute 0-59")),
    ({"cron": None}, "/cron", ("None", "a string")),
    ({"timeZone": "Brazil/Paris"}, "/timeZone", ("'Brazil/Paris'", "Europe/Berlin")),
    ({"missed": "never"}, "/missed", ("'never'", "skip, once, all")),
    ({"name": "a b"}, "/name", ("'a b'", "nightly-report")),
    ({"enabled": "yes"}, "/enabled", ("true or false",)),
    ({"runAt": "2030-01-01T00:00:00Z"}, "/runAt", ("unknown field",)),
    ({"data": {"n": "x"}}, "/data/n", ()),
    ({"type": "test.nothing"}, "/type", ("test.echo",)),
    ({"maxAttempts": 0}, "/maxAttempts", ("found 0",)),
    ({"labels": {f"l{n}": "x" for n in range(16)}}, "/labels", ("found 16", "at most 15")),
]


async def test_what_is_wrong_is_refused_with_its_place(producer: Producer) -> None:
    for changes, pointer, words in REFUSED:
        answer = await producer.client.post("/v1/schedules", json={**NIGHTLY, **changes})

        assert answer.status_code == 422, changes
        (flaw,) = answer.json()["errors"]
        assert flaw["pointer"].startswith(pointer)
        assert [word for word in words if word not in flaw["detail"]] == []
    assert await producer.execute("SELECT 1 FROM filaviva.schedules") == []


async def test_only_what_is_named_changes(producer: Producer) -> None:
    made = await create(producer, data={"n": 1, "more": "12345678901234567890.10"}, priority="low")
    address = f"/v1/schedules/{made['scheduleId']}"

    other = await producer.as_key()
    change = {"cron": "0 4 * * *", "labels": None}
    changed = await producer.client.patch(address, json=change, headers=other)

    assert changed.status_code == 200, changed.text
    found = changed.json()
    assert found["nextTimes"][0].endswith("T04:00:00-03:00")
    assert found["labels"] == {"schedule": "nightly"}
    same = ("name", "data", "priority", "timeZone", "createdAt", "version")
    assert f"fv_{found['submittedBy']}_" in other["Authorization"]
    assert {key: found[key] for key in same} == {key: made[key] for key in same}


async def test_a_change_that_makes_no_sense_changes_nothing(producer: Producer) -> None:
    made = await create(producer)
    address = f"/v1/schedules/{made['scheduleId']}"

    for body in ({}, [], {"name": "other"}, {"type": "x"}, {"cron": None}, {"data": {"n": "x"}}):
        answer = await producer.client.patch(address, json=body)
        assert answer.status_code == 422, body

    assert (await producer.client.get(address)).json() == made


async def test_a_paused_schedule_goes_on_from_when_it_is_resumed(producer: Producer) -> None:
    made = await create(producer)
    address = f"/v1/schedules/{made['scheduleId']}"

    paused = await producer.client.post(f"{address}/pause")
    await producer.execute("UPDATE filaviva.schedules SET next_fire_at = '2020-01-01'")
    again = await producer.client.post(f"{address}/pause")
    resumed = await producer.client.post(f"{address}/resume")

    assert (paused.json()["enabled"], paused.json()["nextFireAt"]) == (False, None)
    assert again.status_code == 200
    assert resumed.json()["nextFireAt"] == made["nextFireAt"]


async def test_with_as_many_labels_as_it_may_have_it_fires(producer: Producer) -> None:
    made = await create(producer, labels={f"l{n}": "x" for n in range(15)})

    fired = await producer.client.post(f"/v1/schedules/{made['scheduleId']}/fire")

    assert fired.status_code == 202, fired.text


async def test_fired_out_of_turn_it_submits_its_job_once_per_key(producer: Producer) -> None:
    made = await create(producer)
    address = f"/v1/schedules/{made['scheduleId']}/fire"

    answers = [
        await producer.client.post(address, headers={"Idempotency-Key": key})
        for key in ("a", "a", "b")
    ]
    answers.append(await producer.client.post(address))

    assert {answer.status_code for answer in answers} == {202}
    assert [answer.json()["duplicate"] for answer in answers] == [False, True, False, False]
    jobs = await producer.client.get("/v1/jobs?label.schedule=nightly")
    assert {job["jobId"] for job in jobs.json()["items"]} == {
        answer.json()["jobId"] for answer in answers
    }
    after = (await producer.client.get(f"/v1/schedules/{made['scheduleId']}")).json()
    assert (after["nextFireAt"], after["fired"]) == (made["nextFireAt"], 0)


async def test_a_removed_schedule_is_gone_and_its_name_is_free(producer: Producer) -> None:
    made = await create(producer)
    address = f"/v1/schedules/{made['scheduleId']}"

    removed = await producer.client.delete(address)

    assert removed.status_code == 204
    assert (await producer.client.get(address)).status_code == 404
    assert (await producer.client.delete(address)).status_code == 404
    assert (await create(producer))["scheduleId"] != made["scheduleId"]


async def test_schedules_are_listed_page_by_page_newest_first(producer: Producer) -> None:
    made = [(await create(producer, name=f"s{n}"))["scheduleId"] for n in range(3)]

    first = (await producer.client.get("/v1/schedules?limit=2")).json()
    second = (await producer.client.get(f"/v1/schedules?cursor={first['next']}")).json()

    items = first["items"] + second["items"]
    assert [item["scheduleId"] for item in items] == made[::-1]
    assert "data" not in items[0]
    assert second["next"] is None


async def test_a_key_sees_and_changes_only_its_own_tenants_schedules_of_its_types(
    producer: Producer,
) -> None:
    made = await create(producer)
    address = f"/v1/schedules/{made['scheduleId']}"
    stranger = await producer.as_key(tenant="other")
    narrow = await producer.as_key(types=["test.fetch"])
    reader = await producer.as_key(scopes=["jobs:read"])

    for headers in (stranger, narrow):
        for answer in (
            await producer.client.get(address, headers=headers),
            await producer.client.patch(address, json={"cron": "0 1 * * *"}, headers=headers),
            await producer.client.post(f"{address}/fire", headers=headers),
            await producer.client.delete(address, headers=headers),
        ):
            assert answer.status_code == 404
    assert (await producer.client.get(address, headers=reader)).status_code == 200
    assert (await producer.client.delete(address, headers=reader)).status_code == 403
    refused = await producer.client.post("/v1/schedules", json=NIGHTLY, headers=narrow)
    assert refused.status_code == 403


async def test_who_did_what_is_remembered(producer: Producer) -> None:
    made = await create(producer)
    address = f"/v1/schedules/{made['scheduleId']}"
    await producer.client.patch(address, json={"cron": "0 4 * * *"})
    for verb in ("pause", "resume", "fire"):
        await producer.client.post(f"{address}/{verb}")
    await producer.client.delete(address)

    found = await producer.execute(
        "SELECT action, author, target, data FROM filaviva.audit_log"
        " WHERE action LIKE 'schedule.%' ORDER BY id"
    )

    verbs = ("created", "changed", "paused", "resumed", "fired", "removed")
    assert [row.action for row in found] == [f"schedule.{verb}" for verb in verbs]
    assert {row.target for row in found} == {made["scheduleId"]}
    assert all(row.author.startswith("key:") for row in found)
    assert json.loads(json.dumps(found[0].data))["name"] == "nightly"
