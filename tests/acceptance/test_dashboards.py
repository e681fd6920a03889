"""A real Prometheus on real services under load with failures: every question has an answer."""

import os
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from filaviva.monitoring import deployed
from filaviva.monitoring.boards import BOARDS, cost, overview, retries
from filaviva.monitoring.grafana import DEPLOYED, REPLAYED
from filaviva.monitoring.panels import Panel, Query, Sql
from filaviva.operations.doctor import Addresses, Finding
from filaviva.operations.doctor.production import Asked, examine_production
from filaviva.operations.doctor.production.sight import SERVICES
from fixtures.journey import Journey, Service
from fixtures.pictures import draw
from fixtures.prometheus import Prometheus, filled_in, prometheus, selectors
from fixtures.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

READER = Path(__file__).parents[2] / "deploy/grafana/reader.sql"
PANELS = [panel for board in BOARDS for panel in board.panels]
# Turns stand in line only in a flood of thousands.
MAY_BE_EMPTY = {"Who stands in line"}


async def load(journey: Journey, server: Prometheus) -> None:
    """Let happen what happens in production: failures, a killed worker, cancels, a replay."""
    submit = journey.submit
    kept = [
        await submit("priced", failures=1),
        await submit("work", steps=2, failures=1, key="twice"),
        await submit("work", failures=1, error="unexpected"),
        await submit("tally", fate="later"),
        *[await submit("work", seconds=1) for _ in range(4)],
    ]
    await submit("work", steps=2, failures=1, key="twice")
    dead = [
        await submit("priced", failures=9),
        await submit("correctable", good=False),
        await submit("slow", seconds=9),
        await submit("spoiled", long=False),
    ]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    await submit("work", runAt=later)
    stopped = await submit("work", seconds=60)
    await _refused(journey)
    await _told(journey)
    await journey.final(*kept, *dead, seconds=90)
    await until(lambda: _only_these_two_are_left(journey), seconds=60)
    # A killed worker takes along what nobody has asked it for.
    await until(partial(server.looked_since, time.time()), seconds=30)
    (await _who_runs(journey, stopped)).kill()
    await journey.call("producer", "POST", f"/v1/jobs/{stopped}/cancel")
    again = await submit("priced", failures=1)  # what the killed one has told is stale
    await journey.final(stopped, again, seconds=90)
    await _replayed(journey, dead[1])


async def _only_these_two_are_left(journey: Journey) -> bool:
    """One runs for a minute, and one is due in an hour."""
    waiting = "SELECT count(*) FROM filaviva.jobs WHERE state = 'queued'"
    running = "SELECT count(*) FROM filaviva.jobs WHERE state = 'running'"
    return (await journey.value(waiting), await journey.value(running)) == (1, 1)


async def _who_runs(journey: Journey, job: UUID) -> Service:
    """The worker that has a job; its id says which process it is."""
    pid = int((await journey.row(job))["lease_owner"].split(":")[1])
    (worker,) = [each for each in journey.services["worker"] if each.pid == pid]
    return worker


async def _refused(journey: Journey) -> None:
    """Send what does not fit, and what nobody knows."""
    for kind, content in (("ledger.work", {"failures": "many"}), ("no.such", {})):
        body = {"type": kind, "data": content}
        headers = {"Idempotency-Key": kind}
        refused = await journey.call("producer", "POST", "/v1/jobs", json=body, headers=headers)
        assert refused.status_code == 422, refused.text


async def _told(journey: Journey) -> None:
    """Publish an event, and submit for an end user."""
    event = {"type": "ledger.happened", "data": {}, "subject": "someone"}
    for path, key in (("/v1/events", "event"), ("/v1/jobs", "subject")):
        content = event | ({"type": "ledger.work"} if path == "/v1/jobs" else {})
        headers = {"Idempotency-Key": key}
        done = await journey.call("producer", "POST", path, json=content, headers=headers)
        assert done.status_code == 202 or path == "/v1/events", done.text


async def _replayed(journey: Journey, job: UUID) -> None:
    """Correct a dead letter, send it back and see it done."""
    letters = "SELECT id FROM filaviva.dead_letters WHERE job_id = $1"
    letter = await until(lambda: journey.value(letters, job), seconds=60)
    patch = [{"op": "replace", "path": "/good", "value": True}]
    body = {"scope": {"ids": [str(letter)]}, "patch": patch, "reason": "tried on purpose"}
    started = await journey.call("dlq-handler", "POST", "/v1/replays", json=body)
    assert started.status_code == 202, started.text
    await journey.succeeded(job)


def addresses(journey: Journey, broker: Any) -> dict[str, list[str]]:
    """Where the jobs of deploy/prometheus/prometheus.yml are."""
    found = {
        name: [f"127.0.0.1:{each.metrics_port}" for each in processes]
        for name, processes in journey.services.items()
    }
    metrics = [urlsplit(broker.prometheus_url).netloc]
    return found | {"rabbitmq": metrics, "rabbitmq-queues": metrics}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(
    standing: Journey, brokers: Any, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Prometheus]:
    """Prometheus, after it has seen the load."""
    await standing.start_all("worker")
    await standing.value(
        "INSERT INTO filaviva.limits (tenant, subject, running) VALUES ('default', '', 1000)"
        " RETURNING tenant"
    )
    folder = tmp_path_factory.mktemp("prometheus")
    vhost = unquote(urlsplit(standing.vhost).path[1:])
    where = addresses(standing, brokers.get("system"))
    with prometheus(folder, where, vhost) as server:
        await load(standing, server)
        replayed = "sum(filaviva_replays_total{outcome='succeeded'}) > 0"
        await until(lambda: server.ask(replayed), seconds=60)
        await until(lambda: server.ask("sum(filaviva_leases_expired_total) > 0"), seconds=60)
        for _ in range(2):  # a rate needs two scrapes, a rule what was scraped before it
            await until(partial(server.looked_since, time.time()), seconds=30)
        yield server


async def test_every_panel_has_an_answer(seen: Prometheus) -> None:
    empty = [
        f"{board.uid} / {panel.title}: {ask.expr}"
        for board in BOARDS
        for panel in board.panels
        for ask in panel.ask
        if isinstance(ask, Query) and not seen.ask(filled_in(ask.expr))
    ]

    assert empty == []


async def test_every_rule_is_healthy_and_what_it_looks_at_is_there(seen: Prometheus) -> None:
    rules = [rule for group in seen.get("rules")["groups"] for rule in group["rules"]]

    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
    wanted = {each for rule in rules for each in selectors(rule["query"])}
    assert [each for each in sorted(wanted) if not seen.get("query", query=each)["result"]] == []


async def test_alerts_fire_for_what_went_wrong(seen: Prometheus) -> None:
    firing = {each["labels"]["alertname"] for each in seen.get("alerts")["alerts"]}

    assert {"FilavivaWatchdog", "FilavivaDeadLettersNew"} <= firing


async def test_the_figures_are_told_by_one_process(seen: Prometheus) -> None:
    assert seen.ask("count(filaviva_outbox_pending)") == [1]
    assert seen.ask('sum(filaviva_jobs{state="paused"})')[0] >= 1


async def test_what_was_done_is_what_is_counted(seen: Prometheus, standing: Journey) -> None:
    finished = "SELECT count(*) FROM filaviva.jobs WHERE state = ANY($1)"
    states = ["succeeded", "canceled"]

    counted = 'filaviva_jobs_finished_total{state=~"succeeded|canceled"}'
    (told,) = seen.ask(f"sum(max_over_time({counted}[5m]))")
    done = await standing.value(finished, states)
    assert told >= done
    assert seen.ask("sum(filaviva_llm_cost_usd_total)")[0] > 0
    assert seen.ask('sum(filaviva_attempt_cost_usd_total{outcome="retry"})')[0] > 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(standing: Journey) -> AsyncIterator[asyncpg.Connection]:
    """A connection with the rights of Grafana's role."""
    connection = await asyncpg.connect(standing.database)
    # psql makes the role where it is missing; we do that ourselves.
    script = READER.read_text().partition("\\gexec")[2]
    await connection.execute(
        "DO $$ BEGIN CREATE ROLE filaviva_reader LOGIN;"
        " EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    await connection.execute(script.replace(":password", "'read'"))
    await connection.execute("SET ROLE filaviva_reader")
    yield connection
    await connection.execute("RESET ROLE; DROP OWNED BY filaviva_reader")
    await connection.close()


async def test_every_table_from_postgresql_has_rows_for_who_may_only_read(
    seen: Prometheus, reader: asyncpg.Connection
) -> None:
    del seen  # the load has happened
    asked = [(panel.title, ask.text) for panel in PANELS for ask in _sql(panel)]
    asked.append(("annotation of replays", REPLAYED))

    for title, text in asked:
        timed = re.sub(r"\$__timeFilter\((.*?)\)", r"\1 > now() - interval '1 hour'", text)
        timed = timed.replace("$__timeFrom()", "(now() - interval '1 hour')")
        rows = await reader.fetch(timed.replace("${type:regex}", ".*"))
        assert rows or title in MAY_BE_EMPTY, title


async def test_the_reader_sees_neither_payloads_nor_keys(reader: asyncpg.Connection) -> None:
    for wanted in ("payload FROM filaviva.jobs", "result FROM filaviva.jobs",
                   "error_message FROM filaviva.attempts", "raw FROM filaviva.dead_letters",
                   "hash FROM filaviva.api_keys", "output FROM filaviva.steps"):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await reader.fetch(f"SELECT {wanted}")


def _sql(panel: Panel) -> list[Sql]:
    return [cast("Sql", ask) for ask in panel.ask if isinstance(ask, Sql)]


async def test_a_deploy_is_an_annotation(seen: Prometheus) -> None:
    assert seen.ask(DEPLOYED)


@pytest.mark.browser
async def test_the_pictures_of_the_docs_can_be_drawn(seen: Prometheus, tmp_path: Path) -> None:
    """FILAVIVA_PICTURES=$PWD/docs/images keeps them."""
    folder = Path(os.environ.get("FILAVIVA_PICTURES") or tmp_path)
    for board in (overview.BOARD, retries.BOARD, cost.BOARD):
        file = folder / f"{board.uid}.png"
        draw(board, seen, file, seconds=25)
        assert file.read_bytes().startswith(b"\x89PNG")


async def test_the_list_for_production_is_tried_on_real_services(
    seen: Prometheus, standing: Journey, brokers: Any
) -> None:
    """A job sent twice, an alert sent on purpose, and a Prometheus asked."""
    asked = Asked(
        author="ana",
        prometheus=seen.url,
        alerts=deployed.alerts(),
        api=f"http://127.0.0.1:{standing.now('producer').http_port}",
        send_job_twice=True,
        send_test_alert=True,
    )
    addresses = Addresses(standing.vhost, brokers.get("system").management_url)

    async def scraped() -> dict[str, Finding] | None:
        findings = await examine_production(standing.database, addresses, asked)
        found = {each.check: each for each in findings}
        return found if found["scraped"].level == "ok" else None

    # Who was started last is seen within ten seconds; a test alert goes out with each look.
    found = await until(scraped, seconds=40, every=2)

    well = ["double send", "who sends alerts", "test alert", "scraped", "rules", "watchdog"]
    well += [f"job {name}" for name in (*SERVICES, "rabbitmq") if name != "worker"]
    assert {check: found[check] for check in well if found[check].level != "ok"} == {}
    assert "1 of 2 targets are not up" in found["job worker"].found  # the load has killed it
    assert "Prometheus/" in found["scraped"].found
    assert found["alertmanager"].level == "attention"
    assert any("TEST, nothing has failed" in text for text in standing.slack.texts)
    assert [each for each in found.values() if "could not be looked at" in each.found] == []
