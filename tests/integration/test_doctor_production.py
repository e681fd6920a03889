"""The list for production on real servers: what it finds, also when they are away."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.app import load_app
from filaviva.database import connect
from filaviva.evolution.folder import Folder, schema_path
from filaviva.monitoring import deployed
from filaviva.operations import drills, keys
from filaviva.operations.doctor import Addresses, Finding
from filaviva.operations.doctor.production import Asked, examine_production, prometheus, trial_alert
from filaviva.operations.doctor.production.sight import SERVICES
from filaviva.operations.setup import setup
from filaviva.telemetry.metrics import Metrics
from filaviva_dlq_handler.slack import Slack, Target
from fixtures.broker import Broker
from fixtures.command_line import CommandLine
from fixtures.management import Management
from fixtures.producer import Producer
from fixtures.retrying import Jobs
from fixtures.slack import SlackStandIn

APP = "fixtures.shop_app:app"
PROJECT = Path(__file__).parents[2] / "examples/invoices"

SETTINGS = {
    "environment": "prod", "leaseSeconds": 15, "graceSeconds": 30, "detachAfterSeconds": 600,
    "concurrency": 100, "poolSize": 10, "brokerUser": "shop", "brokerTls": True, "slack": True,
    "callbacks": True, "callbacksAnywhere": False, "links": True, "retention": True,
}  # fmt: skip
MEASURED = {
    "clockAhead": 0.0, "clockDoubt": 0.01, "loopLag": 0.1, "renewalGap": 5.0,
    "databaseUser": "shop", "superuser": False, "databaseTls": True,
}  # fmt: skip


class Installation:
    """What was set up once for all tests of this module."""

    def __init__(self, database: str, vhost: str, management: str, engine: AsyncEngine) -> None:
        self.database = database
        self.addresses = Addresses(vhost, management)
        self.engine = engine
        self.jobs = Jobs(engine)

    async def look(self, **asked: Any) -> dict[str, Finding]:
        """Go through the list; give the findings by check."""
        given = Asked(author="ana", **asked)
        found = await examine_production(self.database, self.addresses, given)
        return {each.check: each for each in found}

    async def run(self, **changes: Mapping[str, Any]) -> None:
        """Let every service run twice, as it should; `changes` of settings or measurements."""
        settings = json.dumps(SETTINGS | dict(changes.get("settings", {})))
        measured = json.dumps(MEASURED | dict(changes.get("measured", {})))
        for service in SERVICES:
            for host in "ab":
                await self.jobs.all(
                    "INSERT INTO filaviva.processes (id, service, host, pid, release, settings,"
                    " measured, scraped_at, scraped_by) VALUES (:id, :service, :host, 1, '1.0',"
                    " CAST(:settings AS jsonb), CAST(:measured AS jsonb), clock_timestamp(),"
                    " 'Prometheus/3.9')",
                    id=f"{host}:{service}", service=service, host=host, settings=settings,
                    measured=measured,
                )  # fmt: skip


@pytest.fixture(scope="module")
def prepared(module_database: str, module_vhost: str) -> tuple[str, str]:
    asyncio.run(setup(database_url=module_database, broker_url=module_vhost, app=load_app(APP)))
    return module_database, module_vhost


@pytest.fixture
async def here(prepared: tuple[str, str], broker: Broker) -> AsyncIterator[Installation]:
    database, vhost = prepared
    engine = connect(database, name="test", size=4)
    yield Installation(database, vhost, broker.management_url, engine)
    async with engine.begin() as connection:
        await connection.exec_driver_sql(
            "TRUNCATE filaviva.processes, filaviva.drills, filaviva.jobs, filaviva.api_keys,"
            " filaviva.limits, filaviva.notifications, filaviva.workers"
        )
        await connection.exec_driver_sql("DELETE FROM filaviva.contracts WHERE app <> 'shop'")
    await engine.dispose()


@pytest.mark.broker
async def test_on_an_installation_where_nothing_runs_every_check_has_an_answer(
    here: Installation,
) -> None:
    found = await here.look()

    assert [each for each in found.values() if "could not be looked at" in each.found] == []
    assert {each.group for each in found.values()} == {
        "sent twice", "limits and classes", "alerts arrive", "leases and times", "versions",
        "metrics", "drill", "processes", "access", "broker", "database",
    }  # fmt: skip
    wrong = {check for check, each in found.items() if each.level == "wrong"}
    assert {"double send", "last alert", "drill passed", "replicas of worker"} <= wrong
    assert [
        each.check for each in found.values() if each.level == "wrong" and not each.expected
    ] == []


async def test_on_a_well_kept_one_what_can_be_well_is_well(here: Installation) -> None:
    await here.run()
    async with here.engine.begin() as connection:
        drill = await drills.begin(connection, author="ana", cut_seconds=120)
        held = {"facts": [{"name": drills.SENT_TWICE, "holds": True}]}
        await drills.end(connection, drill, passed=True, report=held)
    await here.jobs.all(
        "INSERT INTO filaviva.limits (tenant, queued, running, per_minute) VALUES ('*', 9, 9, 60)"
    )
    await here.jobs.all(
        "INSERT INTO filaviva.notifications (kind, channel, state, sent_at)"
        " VALUES ('failure', 'slack', 'sent', clock_timestamp() - interval '2 hours')"
    )

    found = await here.look(stop_seconds=50)

    well = (
        "double send", "drill passed", "last alert", "who sends alerts", "scraped", "lease",
        "time to stop", "one lease", "event loops", "lost attempts", "in flight", "sunsets",
        "releases", "environment", "clocks", "the broker's clock", "PostgreSQL's users",
        "callbacks' secret", "retention", "limits of running jobs", "limits of submissions",
        "connections", "policies on our queues", "delivery limit",
        *(f"replicas of {service}" for service in SERVICES),
    )  # fmt: skip
    assert {check: found[check] for check in well if found[check].level != "ok"} == {}
    assert "arrived 2.0 hours ago on slack" in found["last alert"].found


async def test_processes_that_are_set_in_the_wrong_way_are_told(here: Installation) -> None:
    odd = {"environment": "development", "slack": False, "retention": False, "brokerUser": "guest"}
    late = {"clockAhead": -9.0, "superuser": True, "loopLag": 3.0}
    await here.run(settings=odd | {"callbacksAnywhere": True, "poolSize": 100}, measured=late)
    await here.jobs.all(
        "UPDATE filaviva.processes SET release = '0.9', scraped_at = NULL,"
        " settings = settings || '{\"callbacks\": false, \"leaseSeconds\": 30}' WHERE host = 'b'"
    )

    found = await here.look(stop_seconds=10)

    expected = {
        "environment": "attention", "who sends alerts": "wrong", "retention": "attention",
        "user guest": "wrong", "clocks": "attention", "PostgreSQL's users": "attention",
        "event loops": "attention", "callbacks' addresses": "attention", "releases": "attention",
        "callbacks' secret": "wrong", "one lease": "attention", "scraped": "wrong",
        "connections": "wrong", "time to stop": "wrong",
    }  # fmt: skip
    assert {check: found[check].level for check in expected} == expected


async def test_a_version_that_nobody_who_runs_reads_is_told(here: Installation) -> None:
    await here.jobs.all(
        "INSERT INTO filaviva.contracts (type, version, app, queue, schema)"
        " VALUES ('order.ship', 1, 'orders', 'llm', '{}')"
    )
    await here.jobs.queued(type="'order.ship'", version=3)

    before = (await here.look())["in flight"]
    await here.jobs.worker(
        queues="ARRAY['llm']", reads='\'[{"type": "order.ship", "min": 1, "max": 3}]\''
    )
    after = (await here.look())["in flight"]

    assert (before.level, after.level) == ("wrong", "ok")
    assert "1 of order.ship v3 (queue)" in before.found


async def test_what_is_published_is_compared_with_what_was_released(
    here: Installation, tmp_path: Path
) -> None:
    unknown = (await here.look())["released contracts"]
    other = (await here.look(project=PROJECT))["released contracts"]

    rows = await here.jobs.all(
        "SELECT type, version, schema FROM filaviva.contracts"
        " WHERE queue IS NOT NULL AND event IS NULL AND type NOT LIKE 'filaviva.%'"
    )
    folder = Folder.open(tmp_path / "contracts")
    for row in rows:
        folder.write(schema_path((row["type"], row["version"]), "data"), row["schema"])
    folder.lock({place.path: folder.digest(place.path) for place in folder.schemas()})
    same = (await here.look(project=tmp_path))["released contracts"]
    await here.jobs.all(
        "UPDATE filaviva.contracts SET schema = '{}' WHERE type NOT LIKE 'filaviva.%'"
    )
    changed = (await here.look(project=tmp_path))["released contracts"]

    assert [each.level for each in (unknown, same, changed, other)] == [
        "unknown", "ok", "wrong", "wrong",
    ]  # fmt: skip
    assert "with another schema than was released" in changed.found
    assert "is published and was never released" in other.found
    assert "was released and is not published" in other.found


async def test_jobs_without_a_key_of_their_sender_are_counted_by_type_and_sender(
    here: Installation,
) -> None:
    key = await keys.create(here.engine, name="web", tenant="default", scopes=["jobs:write"])
    await here.jobs.queued(type="'order.ship'", submitted_by=f"'{key.id}'", fingerprint="'a'")
    well = (await here.look())["jobs with a key"]
    for content in "bc":
        await here.jobs.queued(
            type="'order.ship'", submitted_by=f"'{key.id}'", fingerprint=f"'{content}'",
            idempotency_key=f"'auto:{content}'",
        )  # fmt: skip
    found = await here.look()

    assert well.level == "ok"
    assert found["jobs with a key"].level == "attention"
    assert "2 of 3 order.ship from web" in found["jobs with a key"].found
    assert found["same content, other key"].level == "ok"


async def test_the_same_content_under_another_key_is_told_if_it_came_soon_after(
    here: Installation,
) -> None:
    for minutes in (0, 5, 300):
        when = f"clock_timestamp() - interval '{minutes} minutes'"
        await here.jobs.queued(type="'order.ship'", fingerprint="'a'", created_at=when)

    found = (await here.look())["same content, other key"]

    assert found.level == "attention"
    assert found.found.endswith("1 order.ship")


async def test_a_job_that_is_sent_twice_is_one_job_and_never_runs(
    producer: Producer, prepared: tuple[str, str]
) -> None:
    del prepared
    from filaviva.built_in import built_in  # noqa: PLC0415
    from filaviva.operations.doctor.production import double_send  # noqa: PLC0415
    from filaviva.publishing import publish  # noqa: PLC0415

    async with producer.engine.begin() as connection:
        await publish(connection, built_in())
    await producer.registry.refresh()

    proved = await double_send.prove(producer.engine, Asked(author="ana", api=producer.url))
    nowhere = await double_send.prove(
        producer.engine, Asked(author="ana", api="http://127.0.0.1:1")
    )
    unsaid = await double_send.prove(producer.engine, Asked())

    assert proved.level == "ok", proved
    assert [nowhere.level, unsaid.level] == ["unknown", "unknown"]
    rows = await Jobs(producer.engine).all("SELECT state, attempt FROM filaviva.jobs")
    assert rows == [{"state": "canceled", "attempt": 0}]
    assert [k.revoked_at is None for k in await keys.list_keys(producer.engine)
            if k.name == "filaviva doctor"] == [False, False]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "level", "word"), [(None, "ok", "Slack took it"), (404, "wrong", "answered 404")]
)
async def test_a_test_alert_goes_the_way_of_all_alerts_and_tells_slacks_answer(
    here: Installation, slack: SlackStandIn, answer: int | None, level: str, word: str
) -> None:
    if answer is not None:
        slack.answers.extend([(answer, {})] * 50)
    target = Target(SecretStr(slack.url), environment="prod", pace_seconds=0.05)
    stop = asyncio.Event()
    sending = asyncio.create_task(Slack(here.engine, target, Metrics()).run(stop))
    found = (await here.look(send_test_alert=True))["test alert"]
    stop.set()
    await sending

    assert (found.level, word in found.found) == (level, True), found
    assert [text.startswith("TEST, nothing has failed (prod)") for text in slack.texts] == (
        [] if answer else [True]
    )
    (row,) = await here.jobs.all("SELECT state, kind FROM filaviva.notifications")
    assert row == {"state": "dropped" if answer else "sent", "kind": "test"}


async def test_a_test_alert_that_nobody_sends_is_withdrawn(here: Installation) -> None:
    found = await trial_alert.send(here.engine, author="ana", seconds=0.3)

    assert (found.level, "nobody sent it" in found.found) == ("wrong", True)
    assert await here.jobs.all("SELECT state FROM filaviva.notifications") == [{"state": "dropped"}]


@pytest.mark.broker
async def test_the_rights_of_the_brokers_users_are_judged(
    here: Installation, broker: Broker
) -> None:
    await here.run()
    management, vhost = Management(broker.management_url), here.addresses.vhost
    body = {"password": "sesame", "tags": "administrator"}
    management.call("PUT", "/api/users/shop", body)
    try:
        right = {"configure": ".*", "write": ".*", "read": ".*"}
        management.call("PUT", f"/api/permissions/{vhost}/shop", right)
        much = (await here.look())["rights of shop"]
        management.call("PUT", "/api/users/shop", body | {"tags": ""})
        management.call("PUT", f"/api/permissions/{vhost}/shop", right | {"configure": ""})
        least = (await here.look())["rights of shop"]
    finally:
        management.call("DELETE", "/api/users/shop")

    assert (much.level, least.level) == ("attention", "ok")
    assert "it is an administrator; it may declare and delete '.*'" in much.found


async def test_servers_that_are_away_are_findings(
    here: Installation,
) -> None:
    where = "127.0.0.1:1"
    here.database = f"postgresql://me@{where}/x"
    here.addresses = Addresses(f"amqp://me:x@{where}/", f"http://me:x@{where}")
    began = time.monotonic()
    found = await here.look(prometheus=f"http://{where}")

    assert time.monotonic() - began < 4
    assert found["who runs"].found.startswith("nobody knows who runs:")
    assert found["broker in production"].level == "unknown"
    assert found["prometheus"].level == "unknown"
    assert "nobody knows who runs" in found["processes"].found
    assert [each for each in found.values() if each.level == "wrong"] == []
    assert {each.group for each in found.values()} >= {"broker", "database", "drill", "versions"}


async def test_a_database_of_another_release_is_a_finding(
    here: Installation, empty_database: str
) -> None:
    here.database = empty_database

    found = await here.look()

    assert "run `filaviva setup`" in str(found["who runs"].next_step)
    assert found["commits"].level in ("ok", "wrong")  # the server itself was still looked at
    assert found["drill"].level == "unknown"


async def test_without_a_management_url_it_says_what_it_could_not_see(here: Installation) -> None:
    here.addresses = Addresses(here.addresses.amqp)

    found = await here.look()

    checks = ("broker in production", "broker's patience", "the broker's clock")
    assert [found[check].level for check in checks] == ["unknown"] * 3


PROMETHEUS: dict[str, Any] = {
    "targets": {"activeTargets": [
        {"labels": {"job": job}, "health": "up", "scrapeUrl": f"http://{job}/metrics"}
        for job in (*SERVICES, "rabbitmq")]},
    "rules": {"groups": [{"rules": [
        {"name": name, "state": "firing" if name == prometheus.WATCHDOG else "inactive"}
        for name in sorted(deployed.alerts())]}]},
    "alertmanagers": {"activeAlertmanagers": [{"url": "http://am:9093/api/v2/alerts"}]},
}  # fmt: skip


@pytest.fixture
def told() -> Iterator[tuple[str, dict[str, Any]]]:
    """An HTTP server that answers as Prometheus does, and what it answers."""
    answers: dict[str, Any] = json.loads(json.dumps(PROMETHEUS))

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path.removeprefix("/api/v1/")
            body = json.dumps({"status": "success", "data": answers[path]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()


async def test_prometheus_is_asked_for_jobs_rules_watchdog_and_whom_it_tells(
    told: tuple[str, dict[str, Any]],
) -> None:
    url, answers = told
    well = [each async for each in prometheus.examine(url, [], deployed.alerts())]
    answers["targets"]["activeTargets"][0]["health"] = "down"
    del answers["targets"]["activeTargets"][1]
    del answers["rules"]["groups"][0]["rules"][0]
    for rule in answers["rules"]["groups"][0]["rules"]:
        rule["state"] = "inactive"
    answers["alertmanagers"]["activeAlertmanagers"] = []
    ill = {each.check: each.level async for each in prometheus.examine(url, [], deployed.alerts())}

    assert {each.level for each in well} == {"ok"}
    assert ill == {
        "job producer": "wrong", "job worker": "wrong", "job retry-scheduler": "ok",
        "job dlq-handler": "ok", "job rabbitmq": "ok", "rules": "wrong", "watchdog": "wrong",
        "alertmanager": "attention",
    }  # fmt: skip


async def test_the_command_prints_groups_what_was_expected_and_exits_1(here: Installation) -> None:
    cli = CommandLine(
        FILAVIVA_POSTGRES__URL=here.database, FILAVIVA_BROKER__URL=here.addresses.amqp
    )

    shown = await asyncio.to_thread(cli, "doctor", "--production")
    listed = await asyncio.to_thread(cli, "doctor", "--production", "--json")
    alone = await asyncio.to_thread(cli, "doctor", "--send-test-alert")

    assert (shown.code, listed.code, alone.code) == (1, 1, 2)
    assert "\nalerts arrive\n" in shown.out
    assert "expected: a drill that passed within the last 30 days" in shown.out
    drill = next(each for each in listed.json["findings"] if each["check"] == "drill passed")
    assert (drill["group"], drill["level"]) == ("drill", "wrong")
    assert "expected --production beside this option" in alone.err
    assert await here.jobs.all("SELECT id FROM filaviva.notifications") == []
