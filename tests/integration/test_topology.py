"""The topology on a real broker."""

from urllib.parse import quote, urlsplit

import aiormq
import pytest

from filaviva.broker.apply import apply
from filaviva.broker.definitions import export
from filaviva.broker.drift import Drift, verify
from filaviva.broker.topology import Topology
from filaviva.errors import ConfigurationError, Unreachable
from fixtures.broker import Broker
from fixtures.management import Management
from fixtures.waiting import until

TOPOLOGY = Topology()
DECLARATIONS = TOPOLOGY.declarations(["llm", "mail"])


def name_of(vhost: str) -> str:
    return urlsplit(vhost).path[1:]


@pytest.mark.broker
async def test_what_was_applied_is_read_back_without_a_difference(
    broker: Broker, vhost: str
) -> None:
    await apply(vhost, DECLARATIONS)
    await apply(vhost, DECLARATIONS)

    assert await verify(broker.management_url, name_of(vhost), DECLARATIONS) == []


@pytest.mark.broker
async def test_imported_definitions_are_the_same_as_applied_ones(
    broker: Broker, vhost: str, management: Management
) -> None:
    management.call("POST", "/api/definitions", export(DECLARATIONS, name_of(vhost)))

    assert await verify(broker.management_url, name_of(vhost), DECLARATIONS) == []
    await apply(vhost, DECLARATIONS)


@pytest.mark.broker
async def test_a_queue_with_other_arguments_is_named_with_both_and_the_way_out(vhost: str) -> None:
    connection = await aiormq.connect(vhost)
    channel = await connection.channel()
    await channel.queue_declare(
        "filaviva.delay.l05",
        durable=True,
        arguments={"x-queue-type": "quorum", "x-message-ttl": 5},
    )
    await channel.exchange_declare("filaviva.jobs", exchange_type="direct", durable=True)
    await connection.close()

    with pytest.raises(ConfigurationError) as conflict:
        await apply(vhost, DECLARATIONS)

    queue = next(line for line in str(conflict.value).splitlines() if "queue" in line)
    assert "filaviva.delay.l05" in queue
    assert "rabbitmqctl delete_queue filaviva.delay.l05" in queue
    exchange = next(line for line in str(conflict.value).splitlines() if "exchange f" in line)
    assert "found type = direct, expected topic" in exchange


async def test_drift_names_what_is_missing_and_what_a_policy_changed(
    broker: Broker, vhost: str, management: Management
) -> None:
    await apply(vhost, DECLARATIONS)
    where = quote(name_of(vhost), safe="")
    management.call("DELETE", f"/api/queues/{where}/filaviva.work.mail")
    management.call(
        "PUT",
        f"/api/policies/{where}/surprise",
        {"pattern": "llm", "definition": {"max-length": 10}, "apply-to": "queues"},
    )

    async def seen() -> list[Drift]:
        found = await verify(broker.management_url, name_of(vhost), DECLARATIONS)
        return found if len(found) == 4 else []

    drift = await until(seen)  # the management API learns of a policy with its next statistics

    assert [str(one) for one in drift] == [
        "queue filaviva.work.llm: found a policy with max-length = 10, expected no such policy",
        "queue filaviva.work.mail: found nothing, expected a quorum queue",
        "binding filaviva.jobs -> filaviva.work.mail: found nothing, expected 'mail'",
        "binding filaviva.delay.deliver -> filaviva.work.mail: found nothing, expected '#.mail'",
    ]


async def test_an_absent_broker_is_unreachable_and_no_surprise() -> None:
    with pytest.raises(Unreachable):
        await apply("amqp://nobody@127.0.0.1:1/", DECLARATIONS)
