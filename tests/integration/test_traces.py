"""A job is followed through producer, relay, attempts, pauses, dead letter and replay.

And what it is about gets into nothing that many may see: logs, metrics, traces, alerts.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
import pytest_asyncio

from filaviva.tracing.ids import attempt
from fixtures.journey import Journey, Service
from fixtures.otlp import Receiver, Span
from fixtures.slack import SlackStandIn
from fixtures.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# No word with digits: those are left out of messages as ids, whatever else is done.
CANARY = "canaryofthepayload"
ANSWER = "the answer about"


class Traced(Journey):
    """The services, tracing to a receiver."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What the services have logged."""
        return [
            json.loads(line)
            for file in sorted(self.folder.glob("*.log"))
            for line in file.read_text().splitlines()
            if line.startswith("{")
        ]

    @property
    def written(self) -> str:
        """All that the services have written."""
        return "".join(file.read_text() for file in self.folder.glob("*.log"))

    folder: Path

    async def submitted(
        self, what: str, headers: dict[str, str] | None = None, **data: Any
    ) -> UUID:
        """Submit a job of the traced app."""
        body = {"type": f"traced.{what}", "data": data}
        told = {"Idempotency-Key": uuid4().hex, **(headers or {})}
        answer = await self.call("producer", "POST", "/v1/jobs", json=body, headers=told)
        assert answer.status_code == 202, answer.text
        return UUID(answer.json()["jobId"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced(
    module_database: str,
    module_vhost: str,
    tmp_path_factory: pytest.TempPathFactory,
    otlp: Receiver,
) -> AsyncIterator[Traced]:
    """All services, tracing to the receiver."""
    with SlackStandIn() as slack:
        folder = tmp_path_factory.mktemp("traced")
        app = "fixtures.traced_app:app"
        ground = Traced(module_database, module_vhost, folder, slack, app=app)
        ground.folder = folder
        ground.environment |= otlp.environment
        await ground.set_up()
        await ground.start_all()
        yield ground
        ground.end()
        await ground.books.close()


def only(spans: list[Span]) -> Span:
    """The one that there is."""
    assert len(spans) == 1, [span.name for span in spans]
    return spans[0]


async def metrics(service: Service) -> str:
    """What Prometheus would be given, exemplars included."""
    async with httpx2.AsyncClient(verify=False, trust_env=False) as client:
        answer = await client.get(
            f"http://127.0.0.1:{service.metrics_port}/metrics",
            headers={"Accept": "application/openmetrics-text; version=1.0.0"},
        )
    return answer.text


async def replayed(traced: Traced, job: UUID) -> None:
    """Replay the job's dead letter."""
    found = "SELECT id FROM filaviva.dead_letters WHERE job_id = $1 AND status = 'open'"
    letter = await until(lambda: traced.value(found, job))
    body = {"scope": {"ids": [str(letter)]}, "reason": "it may work now"}
    answer = await traced.call("dlq-handler", "POST", "/v1/replays", json=body)
    assert answer.status_code == 202, answer.text
    await traced.succeeded(job)


async def attempts_of(otlp: Receiver, job: UUID, count: int) -> list[Span]:
    """The spans of a job's attempts, once so many have arrived."""

    def arrived() -> list[Span] | None:
        found = [
            span
            for span in otlp.named("process ", filaviva__job__id=str(job))
            if span.service == "filaviva-worker"
        ]
        return found if len(found) == count else None

    spans: list[Span] = await until(arrived)
    return spans


class Told:
    """The spans of one job that failed three times, was replayed, and succeeded."""

    def __init__(self, otlp: Receiver, job: UUID) -> None:
        self.otlp = otlp
        self.job = job
        self.ids = [attempt(job, number) for number in (1, 2, 3, 4)]
        self.created = only(otlp.named("create filaviva.jobs:traced", filaviva__job__id=str(job)))
        self.replay = only(otlp.named("replay filaviva.jobs:traced", filaviva__job__id=str(job)))
        self.attempts = [
            only([span for span in otlp.spans if int(span.id, 16) == ids.span]) for ids in self.ids
        ]
        traces = {span.trace for span in (self.created, self.replay, *self.attempts)}
        ours = [span for span in otlp.spans if span.trace in traces and span.scope == "filaviva"]
        # Creation and replay with a message each, five for each attempt that failed, two for the
        # last one, the model's call, and the dead letter.
        assert len(ours) == 2 + 2 + 3 * 5 + 2 + 1 + 1

    def after(self, number: int) -> tuple[Span, Span, Span]:
        """The message about a failed attempt, the decision, and the message that followed."""
        below = self.otlp.below(self.attempts[number - 1])
        failure = only([span for span in below if span.name.startswith("publish")])
        decision = only(self.otlp.below(failure))
        return failure, decision, only(self.otlp.below(decision))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(traced: Traced, otlp: Receiver) -> Told:
    """A job with two retries, a dead letter and a replay."""
    job = await traced.submitted("read", document="one", failures=3)
    await traced.final(job)
    await replayed(traced, job)

    def complete() -> Told | None:
        try:
            return Told(otlp, job)
        except AssertionError:
            return None

    found: Told = await until(complete)
    return found


async def test_the_request_holds_the_creation_and_the_first_message(told: Told) -> None:
    assert told.created.kind == "PRODUCER"
    request = only([span for span in told.otlp.spans if span.id == told.created.parent])
    assert (request.name, request.kind) == ("POST /v1/jobs", "SERVER")
    sent = only(told.otlp.below(told.created))
    assert (sent.name, sent.kind) == ("publish filaviva.jobs:traced", "CLIENT")
    assert sent.attributes["messaging.operation.type"] == "send"
    assert told.attempts[0].links["message"] == sent.id


async def test_each_attempt_begins_a_trace_and_links_to_where_it_comes_from(told: Told) -> None:
    attempts = told.attempts
    assert [int(span.trace, 16) for span in attempts] == [ids.trace for ids in told.ids]
    assert len({span.trace for span in (told.created, *attempts)}) == 5
    assert [span.attributes["filaviva.job.attempt"] for span in attempts] == [1, 2, 3, 4]
    outcomes = [span.attributes["filaviva.outcome"] for span in attempts]
    assert outcomes == ["retry", "retry", "retry", "succeeded"]
    assert [span.failed for span in attempts] == [True, True, True, False]
    assert {span.kind for span in attempts} == {"CONSUMER"}
    assert not any(span.parent for span in attempts)
    assert {span.links["creation"] for span in attempts} == {told.created.id}
    before = [span.links.get("previous attempt") for span in attempts]
    assert before == [None, *[span.id for span in attempts[:-1]]]


async def test_decision_and_pause_are_in_the_trace_of_the_attempt(told: Told) -> None:
    for number in (1, 2):
        failure, decision, pause = told.after(number)
        assert failure.name == "publish filaviva.retry:attempt.failed"
        assert (decision.kind, decision.service) == ("CONSUMER", "filaviva-retry-scheduler")
        assert decision.attributes["filaviva.outcome"] == "queued"
        assert pause.name.startswith("publish filaviva.delay.l")
        following = told.attempts[number]
        assert following.links["message"] == pause.id
        waited = (following.start - decision.end) / 1e9
        assert 0 < decision.attributes["filaviva.pause_seconds"] <= waited + 0.2


async def test_the_dead_letter_is_in_the_trace_of_the_last_attempt(told: Told) -> None:
    _, decision, dead = told.after(3)
    assert decision.attributes["filaviva.outcome"] == "failed"
    assert decision.attributes["filaviva.reason"] == "attempts_exhausted"
    assert dead.name == "publish filaviva.dead:traced"
    filed = only(told.otlp.below(dead))
    assert (filed.service, filed.kind) == ("filaviva-dlq-handler", "CONSUMER")
    assert filed.attributes["filaviva.reason"] == "attempts_exhausted"


async def test_a_replay_links_to_the_attempt_that_died(told: Told) -> None:
    created, died = told.created.id, told.attempts[2].id
    assert told.replay.links == {"creation": created, "previous attempt": died}
    assert told.attempts[3].links["message"] == only(told.otlp.below(told.replay)).id


async def test_a_step_is_run_and_paid_for_once(told: Told) -> None:
    below = told.otlp.below
    steps = [only([s for s in below(a) if s.name == "step answer"]) for a in told.attempts]
    states = [step.attributes["filaviva.step.state"] for step in steps]
    assert states == ["succeeded", "reused", "reused", "reused"]
    call = only([span for span in below(steps[0]) if span.name == "chat gpt-4o"])
    assert call.kind == "CLIENT"
    assert call.attributes["gen_ai.provider.name"] == "openai"
    assert call.attributes["gen_ai.usage.input_tokens"] == 100
    assert call.attributes["filaviva.cost_usd"] > 0


async def test_a_figure_leads_to_a_trace_it_comes_from(traced: Traced, told: Told) -> None:
    page = await metrics(traced.now("worker"))
    assert any(f'trace_id="{span.trace}"' in page for span in told.attempts)


async def test_calls_to_others_are_part_of_the_attempt(traced: Traced, otlp: Receiver) -> None:
    url = f"http://127.0.0.1:{traced.now('producer').http_port}/healthz"
    job = await traced.submitted("read", document=CANARY, url=url)
    await traced.succeeded(job)
    (span,) = await attempts_of(otlp, job, 1)
    step = only([one for one in otlp.below(span) if one.name == "step answer"])
    called = only([one for one in otlp.below(step) if one.name == "GET"])
    assert called.attributes["url.full"] == url
    database = [one for one in otlp.below(span) if "db.query.text" in one.attributes]
    assert "SELECT set_config(?, ?, true)" in {s.attributes["db.query.text"] for s in database}


async def test_what_is_not_sampled_is_traced_nowhere(traced: Traced, otlp: Receiver) -> None:
    trace = uuid4().hex
    left_out = {"traceparent": f"00-{trace}-00f067aa0ba902b7-00"}
    job = await traced.submitted("read", left_out, document="two", failures=1)
    await traced.succeeded(job)
    kept = {"traceparent": f"00-{uuid4().hex}-00f067aa0ba902b7-01"}
    second = await traced.submitted("read", kept, document="three")
    (span,) = await attempts_of(otlp, second, 1)
    created: Span = await until(lambda: next(iter(
        otlp.named("create", filaviva__job__id=str(second))), None))  # fmt: skip
    assert created.trace == kept["traceparent"][3:35]
    assert span.links["creation"] == created.id
    assert not [one for one in otlp.spans if trace in one.trace]
    assert not [one for one in otlp.spans if one.attributes.get("filaviva.job.id") == str(job)]
    assert (await traced.row(job))["traceparent"][3:35] == trace


@pytest.mark.parametrize("kind", ["blocking", "killable"])
async def test_blocking_handlers_are_traced_and_log_as_others(
    traced: Traced, otlp: Receiver, kind: str
) -> None:
    job = await traced.submitted(kind)
    await traced.succeeded(job)
    (span,) = await attempts_of(otlp, job, 1)
    assert only([s for s in otlp.below(span) if s.name == "step double"])
    mine = [line for line in traced.lines if line.get("job_id") == str(job)]
    assert {line["logger"] for line in mine} >= {"shop", "filaviva.job"}
    for line in mine:
        assert (line["attempt"], line["job_type"]) == (1, f"traced.{kind}")
        assert line["trace_id"] == span.trace
        assert line["correlation_id"]


async def test_every_line_of_a_job_names_it(traced: Traced, otlp: Receiver) -> None:
    told = {"X-Request-Id": "order-17"}
    job = await traced.submitted("read", told, document=CANARY, failures=1)
    await traced.succeeded(job)
    attempts = await attempts_of(otlp, job, 2)
    mine = [line for line in traced.lines if line.get("job_id") == str(job)]
    for event, logger in (
        ("from the context", "filaviva.job"),
        ("from the standard library", "shop"),
    ):
        lines = [line for line in mine if line["event"] == event]
        assert [line["attempt"] for line in lines] == [1, 2]
        assert [line["trace_id"] for line in lines] == [span.trace for span in attempts]
        assert {line["correlation_id"] for line in lines} == {"order-17"}
        assert {line["logger"] for line in lines} == {logger}
        assert {line["service"] for line in lines} == {"worker"}


async def test_a_retry_that_is_asked_for_is_part_of_the_request(
    traced: Traced, otlp: Receiver
) -> None:
    job = await traced.submitted("leak", document="four", how="logged")
    await traced.final(job)
    answer = await traced.call("producer", "POST", f"/v1/jobs/{job}/retry", json={})
    assert answer.status_code == 202, answer.text
    first, second = await attempts_of(otlp, job, 2)

    def sent_back() -> Span | None:
        return next(iter(otlp.named("retry filaviva.jobs", filaviva__job__id=str(job))), None)

    retry: Span = await until(sent_back)
    request = await until(lambda: [span for span in otlp.spans if span.id == retry.parent])
    assert only(request).name == "POST /v1/jobs/{job_id}/retry"
    assert retry.links["previous attempt"] == first.id
    sent = await until(lambda: otlp.below(retry))
    assert second.links["message"] == only(sent).id


async def test_the_attempt_of_a_killed_worker_is_decided_in_its_trace(
    traced: Traced, otlp: Receiver
) -> None:
    job = await traced.submitted("read", document="five", hangs=True)
    running = "SELECT 1 FROM filaviva.jobs WHERE id = $1 AND state = 'running'"
    await until(lambda: traced.value(running, job))
    await traced.restart("worker")
    await traced.succeeded(job)
    (second,) = await attempts_of(otlp, job, 1)
    (decision,) = await until(lambda: otlp.named("decide", filaviva__job__id=str(job)))
    lost = attempt(job, 1)
    assert (int(decision.trace, 16), int(decision.parent, 16)) == (lost.trace, lost.span)
    assert decision.attributes["filaviva.error.class"] == "lost"
    assert int(second.links["previous attempt"], 16) == lost.span


async def test_what_a_job_is_about_gets_into_nothing_that_many_see(
    traced: Traced, otlp: Receiver
) -> None:
    url = f"http://127.0.0.1:{traced.now('producer').http_port}/healthz"
    jobs = [
        await traced.submitted("leak", document=CANARY, how=how)
        for how in ("key", "int", "sql", "logged", "step", "result")
    ]
    jobs.append(await traced.submitted("read", document=CANARY, url=url))
    bad = {"type": "traced.leak", "data": {"document": {CANARY: CANARY}}}
    refused = await traced.call(
        "producer", "POST", f"/v1/jobs?{CANARY}=1", json=bad, headers={"Idempotency-Key": "k"}
    )
    assert refused.status_code in {400, 422}
    bad["data"]["how"] = [CANARY]
    invalid = await traced.call(
        "producer", "POST", "/v1/jobs", json=bad, headers={"Idempotency-Key": "k"}
    )
    assert invalid.json()["code"] == "invalid_data"
    assert CANARY not in invalid.text
    await traced.final(*jobs)
    for job in jobs[:-1]:
        await until(lambda job=job: traced.value(
            "SELECT id FROM filaviva.dead_letters WHERE job_id = $1", job))  # fmt: skip
    await until(lambda: len(traced.slack.posts) >= 3)
    letters = await traced.call("dlq-handler", "GET", "/v1/dead-letters")
    assert len(letters.json()["items"]) >= len(jobs) - 1
    services = [service for service in traced.all() if service.alive]
    pages = await asyncio.gather(*map(metrics, services))
    for service in services:  # what they have to tell is told then: this test is the last one
        assert service.stop() == 0

    planted = "SELECT count(*) FROM filaviva.jobs WHERE payload::text LIKE $1"
    assert await traced.value(planted, f"%{CANARY}%") >= len(jobs)
    for raw in otlp.raw:
        assert CANARY.encode() not in raw
        assert ANSWER.encode() not in raw
        assert traced.token.encode() not in raw
    secrets = (CANARY, ANSWER, traced.token, traced.database, traced.vhost)
    for secret in secrets:
        assert secret not in traced.written
        assert secret not in "".join(pages)
        assert secret not in json.dumps(traced.slack.posts)
