"""What the APIs say of themselves is true, and nothing that anybody sends makes them fail."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings

from fixtures.fuzzing import Wanted, requests
from fixtures.journey import Journey
from fixtures.slack import SlackStandIn

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

# Whatever the operation: nobody there for long, and what any request may be refused with.
ALWAYS = {401, 403, 404, 405, 408, 413, 415, 422, 400}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_services(
    module_database: str, module_vhost: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Journey]:
    """The services with an API, with some jobs to find."""
    with SlackStandIn() as slack:
        ground = Journey(module_database, module_vhost, tmp_path_factory.mktemp("open"), slack)
        await ground.set_up()
        await ground.start_all("producer", "dlq-handler")
        yield ground
        ground.end()
        await ground.books.close()


async def send(client: httpx2.AsyncClient, wanted: Wanted) -> httpx2.Response:
    """Send a request; of a stream only the beginning is read."""
    # Nobody waits for a minute here.
    params = [(n, "0.01" if n == "wait" and v[:1].isdigit() else v) for n, v in wanted.params]
    request = client.build_request(
        wanted.method, wanted.path, params=params, headers=wanted.headers, content=wanted.body
    )
    answer = await client.send(request, stream=True)
    if "event-stream" not in answer.headers.get("content-type", ""):
        await answer.aread()
    await answer.aclose()
    return answer


def check(answer: httpx2.Response, wanted: Wanted) -> None:
    """It is no failure of ours, it is documented, and a refusal is a problem."""
    status = answer.status_code
    assert status < 500 or status == 503, (wanted, answer.text)
    documented = {int(code) for code in wanted.operation["responses"]}
    assert status in documented | ALWAYS, (status, wanted)
    if status >= 400 and answer.content:
        assert answer.headers["content-type"] == "application/problem+json", (wanted, answer.text)
        problem = answer.json()
        assert {"type", "title", "status", "detail", "code"} <= problem.keys()
        assert problem["status"] == status


async def fuzz(ground: Journey, service: str, examples: int, *, same: bool) -> None:
    """Send so many requests."""
    jobs = [await ground.submit(seconds=0) for _ in range(3)]
    await ground.call("producer", "POST", f"/v1/jobs/{jobs[0]}/cancel")
    known = {
        "job_id": [str(job) for job in jobs],
        "type": ["ledger.work"],
        "status": ["queued", "canceled"],
    }
    url = f"http://127.0.0.1:{ground.now(service).http_port}"
    headers = {"Authorization": f"Bearer {ground.token}"}
    loop = asyncio.get_running_loop()
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=20) as client:
        document: dict[str, Any] = (await client.get("/openapi.json")).json()

        @settings(
            max_examples=examples,
            derandomize=same,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(requests(document, known))
        def ask(wanted: Wanted) -> None:
            sending = asyncio.run_coroutine_threadsafe(send(client, wanted), loop)
            check(sending.result(30), wanted)

        await asyncio.to_thread(ask)
    assert ground.now(service).alive


@pytest.mark.parametrize("service", ["producer", "dlq-handler"])
async def test_no_request_makes_a_service_fail(open_services: Journey, service: str) -> None:
    await fuzz(open_services, service, 100, same=True)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("service", ["producer", "dlq-handler"])
async def test_none_of_many_requests_makes_a_service_fail(
    open_services: Journey, service: str
) -> None:
    await fuzz(open_services, service, 4000, same=False)
