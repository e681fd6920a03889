"""GET /v1/asyncapi.json: what setup has published, for whoever may read it."""

from fixtures.producer import Producer


async def test_the_registry_is_told_as_asyncapi(producer: Producer) -> None:
    answer = await producer.client.get("/v1/asyncapi.json")

    assert answer.status_code == 200
    found = answer.json()
    assert found["asyncapi"] == "3.1.0"
    assert {"submit.test.echo.v1", "submit.test.fetch.v1", "submit.test.fetch.v2"} <= (
        found["operations"].keys()
    )
    (example,) = found["components"]["messages"]["test.fetch.v2.submission"]["examples"]
    job = {"Idempotency-Key": "as-told"}
    taken = await producer.client.post("/v1/jobs", json=example["payload"], headers=job)
    assert taken.status_code == 202


async def test_a_key_for_some_types_gets_those(producer: Producer) -> None:
    few = await producer.as_key(types=["test.echo"])

    found = (await producer.client.get("/v1/asyncapi.json", headers=few)).json()

    submitted = [name for name in found["operations"] if name.startswith("submit.")]
    assert submitted == ["submit.test.echo.v1"]


async def test_who_may_not_read_is_refused(producer: Producer) -> None:
    writer = await producer.as_key(scopes=["jobs:write"])

    refused = await producer.client.get("/v1/asyncapi.json", headers=writer)

    assert refused.status_code == 403
    assert refused.json()["code"] == "forbidden"
