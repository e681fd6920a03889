"""The doctor finds what is wrong, and names the next step; on real servers."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from filaviva.app import load_app
from filaviva.broker.connection import close, connect, open_channel
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from filaviva.dev import EmbeddedBroker
from filaviva.operations.doctor import Addresses, Finding, examine, healthy
from filaviva.operations.setup import setup
from filaviva_producer.readiness import Readiness
from fixtures.broker import Broker
from fixtures.command_line import CommandLine
from fixtures.dying import Morgue
from fixtures.management import Management
from fixtures.retrying import Jobs
from fixtures.waiting import until

APP = "fixtures.shop_app:app"
NOWHERE = "amqp://guest:sesame@127.0.0.1:1/"


class Patient:
    """An installation that was set up, with everything alive."""

    def __init__(self, database: str, vhost: str, management_url: str) -> None:
        self.database = database
        self.vhost = vhost
        self.management_url = management_url

    async def findings(self) -> dict[str, Finding]:
        """What the doctor says, by check."""
        addresses = Addresses(self.vhost, self.management_url)
        found = await examine(self.database, addresses)
        return {finding.check: finding for finding in found}


@pytest.fixture
async def patient(database: str, vhost: str, broker: Broker, jobs: Jobs) -> AsyncIterator[Patient]:
    await setup(database_url=database, broker_url=vhost, app=load_app(APP))
    await jobs.worker(queues="ARRAY['billing']", slots=10)
    connection = await connect(vhost, name="stand-in services")
    channel = await open_channel(connection, confirms=False)
    names = Topology()
    for queue in (names.retry_requests, names.dead_letters, names.unroutable):
        await channel.basic_consume(queue, _leave, consumer_tag=f"stand-in {queue}")
    yield Patient(database, vhost, broker.management_url)
    await close(connection)


async def _leave(_: object) -> None:
    """Do nothing with a message."""


@pytest.mark.broker
async def test_a_healthy_installation_has_nothing_to_do(patient: Patient) -> None:
    found = await patient.findings()

    assert {check: each.level for check, each in found.items() if each.level != "ok"} == {}
    assert set(found) == {
        "broker", "alarms", "topology", "retry-scheduler on filaviva.retry.requests",
        "dlq-handler on filaviva.dead.letters", "dlq-handler on filaviva.unroutable",
        "database", "migrations", "workers of billing", "leases", "outbox", "parked jobs", "turns",
        "dead letters", "alerts", "contracts",
    }  # fmt: skip


async def test_the_command_prints_each_finding_and_exits_0_or_1(
    patient: Patient, jobs: Jobs
) -> None:
    cli = CommandLine(
        FILAVIVA_POSTGRES__URL=patient.database,
        FILAVIVA_BROKER__URL=patient.vhost,
        FILAVIVA_BROKER__MANAGEMENT_URL=patient.management_url,
    )

    well = await asyncio.to_thread(cli, "doctor", "--json")
    await jobs.all("UPDATE filaviva.workers SET stopped_at = clock_timestamp()")
    ill = await asyncio.to_thread(cli, "doctor")

    assert (well.code, well.json["healthy"]) == (0, True)
    assert ill.code == 1
    assert "WRONG  workers of billing" in ill.out
    assert "next: run `FILAVIVA_WORKER__QUEUES=billing filaviva run worker`" in ill.out


async def test_a_worker_that_was_not_seen_lately_does_not_count(
    patient: Patient, jobs: Jobs
) -> None:
    await jobs.all("UPDATE filaviva.workers SET last_seen_at = clock_timestamp() - interval '31 s'")

    assert (await patient.findings())["workers of billing"].level == "wrong"


async def test_an_absent_database_is_a_finding_and_the_broker_is_still_looked_at(
    patient: Patient,
) -> None:
    patient.database = urlsplit(patient.database)._replace(path="/not-there").geturl()

    found = await patient.findings()

    assert found["database"].level == "wrong"
    assert found["broker"].level == "ok"
    assert "migrations" not in found


async def test_an_absent_broker_is_a_finding_and_the_database_is_still_looked_at(
    patient: Patient,
) -> None:
    patient.vhost = NOWHERE

    found = await patient.findings()

    assert found["broker"].level == "wrong"
    assert "sesame" not in found["broker"].found
    assert found["workers of billing"].level == "ok"


async def test_without_a_management_url_it_says_what_it_could_not_see(patient: Patient) -> None:
    found = {
        finding.check: finding
        for finding in await examine(patient.database, Addresses(patient.vhost))
    }

    assert [found[check].level for check in ("alarms", "topology")] == ["unknown", "unknown"]
    assert healthy(list(found.values()))


async def test_a_database_that_was_never_set_up_is_told_with_the_command(
    patient: Patient, empty_database: str
) -> None:
    patient.database = empty_database

    found = await patient.findings()

    assert (found["migrations"].level, found["migrations"].next_step) == (
        "wrong",
        "run `filaviva setup`",
    )


async def test_a_schema_of_another_release_is_told(patient: Patient, jobs: Jobs) -> None:
    await jobs.all("UPDATE filaviva.schema_version SET version_num = '0000_before'")

    migrations = (await patient.findings())["migrations"]

    assert migrations.level == "wrong"
    assert "0000_before" in migrations.found


async def test_a_database_that_a_newer_release_has_migrated_is_no_fault(
    patient: Patient, jobs: Jobs
) -> None:
    await jobs.all("UPDATE filaviva.schema_version SET version_num = '9999'")

    migrations = (await patient.findings())["migrations"]

    assert migrations.level == "attention"
    assert "a newer one is being deployed" in migrations.found


@pytest.mark.parametrize(("revision", "ready"), [("0001", False), ("9999", True)])
async def test_a_producer_works_on_the_schema_of_its_release_and_of_later_ones(
    jobs: Jobs, revision: str, *, ready: bool
) -> None:
    await jobs.all("UPDATE filaviva.schema_version SET version_num = :found", found=revision)

    publisher = Publisher("amqp://nobody@127.0.0.1:1/")
    problems = [each for each in await Readiness(jobs.engine, publisher)() if "schema" in each]

    assert (not problems) is ready


async def test_a_lost_queue_is_told_as_drift(patient: Patient, management: Management) -> None:
    name = patient.vhost.rpartition("/")[2]
    management.call("DELETE", f"/api/queues/{name}/filaviva.work.billing")

    topology = (await patient.findings())["topology"]

    assert topology.level == "wrong"
    assert "filaviva.work.billing" in topology.found


async def test_a_queue_that_nobody_consumes_names_the_service_to_run(
    patient: Patient, vhost: str
) -> None:
    connection = await connect(vhost, name="rival")
    channel = await open_channel(connection, confirms=False)
    await channel.queue_delete(Topology().retry_requests)
    await close(connection)

    consumer = (await patient.findings())["retry-scheduler on filaviva.retry.requests"]
    await setup(database_url=patient.database, broker_url=vhost)
    alone = (await patient.findings())["retry-scheduler on filaviva.retry.requests"]

    assert (consumer.level, consumer.next_step) == ("wrong", "run `filaviva setup`")
    assert (alone.level, alone.next_step) == ("wrong", "run `filaviva run retry-scheduler`")


async def test_a_memory_alarm_is_told(patient: Patient, broker: Broker) -> None:
    if not isinstance(broker, EmbeddedBroker):
        pytest.skip("an alarm is raised only on a broker of our own")
    broker.ctl("set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        alarms = await until(lambda: _alarm(patient), seconds=30)
    finally:
        broker.ctl("set_vm_memory_high_watermark", "0.4")

    assert "memory on" in alarms.found
    await until(lambda: _silence(patient), seconds=30)


async def _alarm(patient: Patient) -> Finding | None:
    alarms = (await patient.findings())["alarms"]
    return alarms if alarms.level == "wrong" else None


async def _silence(patient: Patient) -> bool:
    return (await patient.findings())["alarms"].level == "ok"


async def test_an_expired_lease_that_nobody_frees_is_told(patient: Patient, jobs: Jobs) -> None:
    await jobs.running(lease="-31 s")

    leases = (await patient.findings())["leases"]

    assert (leases.level, leases.next_step) == ("wrong", "run `filaviva run retry-scheduler`")


async def test_jobs_on_a_queue_where_no_handler_reads_them_are_told_with_where_they_go(
    patient: Patient, jobs: Jobs
) -> None:
    moved = (
        await jobs.one("SELECT type, version FROM filaviva.contracts WHERE queue = 'billing'")
    ).values()
    kind, version = moved
    for _ in range(3):
        await jobs.queued(type=f"'{kind}'", version=version, queue="'old'")
    await jobs.queued(type="'order.forgotten'", queue="'older'")

    found = await patient.findings()
    again = await setup(database_url=patient.database, broker_url=patient.vhost)

    assert {found[check].level for check in ("jobs on old", "jobs on older")} == {"wrong"}
    assert found["jobs on old"].found.startswith("3 queued job(s) on queue 'old'")
    assert "moved to queue 'billing'" in str(found["jobs on old"].next_step)
    assert "deploy an app" in str(found["jobs on older"].next_step)
    assert [(each.queue, each.goal, each.jobs) for each in again.stranded] == [
        ("old", "billing", 3),
        ("older", None, 1),
    ]


async def test_messages_that_wait_too_long_or_are_parked_are_told(
    patient: Patient, jobs: Jobs
) -> None:
    insert = (
        "INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data, created_at,"
        " parked_at) VALUES ('filaviva.jobs', 'billing', :id, 'filaviva.wakeup.v1', '{}',"
        " clock_timestamp() - interval '61 s', CASE WHEN :parked THEN clock_timestamp() END)"
    )
    await jobs.all(insert, id="m1", parked=False)
    await jobs.all(insert, id="m2", parked=True)

    found = await patient.findings()

    assert found["outbox"].level == "wrong"
    assert "1 waiting, the oldest for 61 s" in found["outbox"].found
    assert found["outbox, parked"].level == "wrong"


async def test_open_dead_letters_and_parked_jobs_ask_for_a_look(
    patient: Patient, morgue: Morgue
) -> None:
    await morgue.letter_of("it broke")
    await morgue.queued(parked_reason="'unsupported_version'")

    found = await patient.findings()

    assert (found["dead letters"].level, found["dead letters"].found) == (
        "attention",
        "1 open, of 1 cause(s)",
    )
    assert found["parked jobs"].found == "1 unsupported_version"
    assert healthy(list(found.values()))


async def test_alerts_that_cannot_be_sent_are_told(patient: Patient, jobs: Jobs) -> None:
    await jobs.all(
        "INSERT INTO filaviva.notifications (kind, channel, tries, error)"
        " VALUES ('failure', 'slack', 3, 'invalid_token')"
    )

    alerts = (await patient.findings())["alerts"]

    assert alerts.level == "wrong"
    assert "invalid_token" in alerts.found


async def test_a_version_that_is_used_after_its_last_day_is_told(
    patient: Patient, jobs: Jobs
) -> None:
    await jobs.all(
        "INSERT INTO filaviva.contracts (type, version, app, queue, schema, sunset)"
        " VALUES ('order.ship', 1, 'orders', 'llm', '{}', current_date - 1),"
        " ('order.ship', 2, 'orders', 'llm', '{}', current_date + 1)"
    )
    await jobs.all(
        "INSERT INTO filaviva.contract_uses (type, version, day, source, uses)"
        " SELECT 'order.ship', version, current_date, 'key:' || sender, 3"
        " FROM generate_series(1, 2) AS version, generate_series(1, 2) AS sender"
    )

    told = (await patient.findings())["contracts"]

    assert told.level == "attention"
    assert "order.ship v1 was to be read until" in told.found
    assert "2 sender(s) used it 6 time(s)" in told.found
    assert "v2" not in told.found


WAITS = (
    "INSERT INTO filaviva.turns (queue, tenant, priority, job_id, epoch)"
    " VALUES ('billing', 'default', 4, gen_random_uuid(), 1)"
)
SEEN = (
    "INSERT INTO filaviva.processes (id, service, host, pid, release, settings, measured)"
    " VALUES ('s1', 'retry-scheduler', 'a', 1, '1.0', '{}', '{}')"
)


async def test_who_waits_for_a_turn_is_told_whether_nobody_runs_or_the_broker_is_silent(
    patient: Patient, jobs: Jobs
) -> None:
    await jobs.all(WAITS)
    nobody = (await patient.findings())["turns"]
    await jobs.all(SEEN)
    silent = (await patient.findings())["turns"]
    await jobs.all(
        "INSERT INTO filaviva.turn_keeper (id, until)"
        " VALUES ('s1', clock_timestamp() + interval '1 minute')"
    )
    given = (await patient.findings())["turns"]

    assert (nobody.level, nobody.next_step) == ("wrong", "run `filaviva run retry-scheduler`")
    assert silent.level == "wrong"
    assert "1 retry-scheduler(s) run but cannot give it: the broker does not say" in silent.found
    assert "start" not in str(silent.next_step)
    assert given.level == "ok"


async def test_servers_that_take_connections_and_say_nothing_cost_it_a_few_seconds(
    patient: Patient,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        where = f"127.0.0.1:{mute.getsockname()[1]}"
        patient.vhost, patient.database = f"amqp://guest:x@{where}/", f"postgresql://me@{where}/x"
        began = time.monotonic()
        found = await patient.findings()

    assert time.monotonic() - began < 9
    assert [found[check].level for check in ("broker", "database")] == ["wrong", "wrong"]
    assert "does not answer within 4 s" in found["database"].found
