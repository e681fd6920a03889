"""Setup, contracts and topology from the command line, on real servers."""

import json
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from fixtures.broker import Broker
from fixtures.command_line import CommandLine
from fixtures.management import Management

APP = "fixtures.shop_app:app"

# The app of the tests, after somebody has changed its contract where it is.
CHANGED = """
from filaviva import App, Context, Contract

app = App("shop")


class Paid(Contract, type="order.paid", version=1):
    order_id: int


@app.handler(Paid)
async def receipt(job: Paid, ctx: Context) -> str: ...
"""


@pytest.fixture
def cli(empty_database: str, vhost: str, broker: Broker) -> CommandLine:
    return CommandLine(
        FILAVIVA_APP=APP,
        FILAVIVA_POSTGRES__URL=empty_database,
        FILAVIVA_BROKER__URL=vhost,
        FILAVIVA_BROKER__MANAGEMENT_URL=broker.management_url,
    )


def test_setup_makes_everything_and_says_what(
    cli: CommandLine, tmp_path: Path, management: Management, vhost: str
) -> None:
    file = tmp_path / "definitions.json"

    done = cli("setup", "--definitions", str(file), "--json")
    again = cli("setup", "--json")

    assert done.code == 0, done.err
    assert done.json["tables"] == ["shop.receipts"]
    assert (done.json["queues"], done.json["added"]) == (
        ["billing", "callbacks", "drill"],
        ["order.paid v1"],
    )
    assert (again.code, again.json["added"]) == (0, [])
    assert management.queue(vhost, "filaviva.work.billing")["durable"] is True
    assert "filaviva.work.billing" in file.read_text()


def test_setup_without_addresses_names_the_variables() -> None:
    refused = CommandLine(FILAVIVA_APP=APP)("setup")

    assert refused.code == 2
    assert "FILAVIVA_POSTGRES" in refused.err
    assert "FILAVIVA_BROKER" in refused.err


def test_setup_of_an_app_that_does_not_exist_is_a_usage_error(
    empty_database: str, vhost: str
) -> None:
    refused = CommandLine(
        FILAVIVA_APP="fixtures.shop_app:ap",
        FILAVIVA_POSTGRES__URL=empty_database,
        FILAVIVA_BROKER__URL=vhost,
    )("setup")

    assert refused.code == 2
    assert "it has: app" in refused.err


def test_setup_with_an_absent_broker_is_told_as_unreachable(empty_database: str) -> None:
    failed = CommandLine(
        FILAVIVA_APP=APP,
        FILAVIVA_POSTGRES__URL=empty_database,
        FILAVIVA_BROKER__URL="amqp://guest:sesame@127.0.0.1:1/",
    )("setup")

    assert failed.code == 5
    assert "sesame" not in failed.err


def test_a_login_that_the_broker_refuses_is_a_configuration_error_as_the_databases_is(
    empty_database: str, vhost: str, broker: Broker
) -> None:
    def stranger(url: str) -> str:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"stranger:sesame@{host}").geturl()

    def command(amqp: str, management: str) -> CommandLine:
        return CommandLine(
            FILAVIVA_APP=APP,
            FILAVIVA_POSTGRES__URL=empty_database,
            FILAVIVA_BROKER__URL=amqp,
            FILAVIVA_BROKER__MANAGEMENT_URL=management,
        )

    managed = broker.management_url
    unknown_user = command(stranger(vhost), managed)("setup")
    unknown_vhost = command(f"{vhost}-none", managed)("setup")
    command(vhost, managed)("setup")
    unknown_reader = command(vhost, stranger(managed))("topology", "verify")

    for refused in (unknown_user, unknown_vhost):
        assert refused.code == 2
        assert refused.err.startswith("FILAVIVA_BROKER__URL: ")
        assert "sesame" not in refused.err
    assert "'stranger'" in unknown_user.err
    assert unknown_reader.code == 2
    assert unknown_reader.err.startswith("FILAVIVA_BROKER__MANAGEMENT_URL: ")


def test_published_contracts_are_listed_and_exported(cli: CommandLine, tmp_path: Path) -> None:
    cli("setup")

    listed = cli("contracts", "list", "--json").json["items"]
    exported = cli("contracts", "export", "--published", "--to", str(tmp_path))
    unknown = cli("contracts", "export", "order.payed", "--published")

    assert [(each["type"], each["queue"]) for each in listed] == [
        ("filaviva.callback", "callbacks"),
        ("filaviva.drill", "drill"),
        ("order.paid", "billing"),
    ]
    assert listed[2]["policy"]["maxAttempts"] == 3
    assert exported.code == 0
    schema = json.loads((tmp_path / "order.paid.v1.json").read_text())
    assert schema["required"] == ["orderId"]
    assert json.loads((tmp_path / "order.paid.v1.result.json").read_text())["type"] == "string"
    assert unknown.code == 3


def test_a_change_of_what_is_deployed_is_refused_before_its_setup(
    cli: CommandLine, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("setup")
    (tmp_path / "a_changed_shop.py").write_text(CHANGED)
    monkeypatch.chdir(tmp_path)
    changed = CommandLine(FILAVIVA_POSTGRES__URL=empty_database, FILAVIVA_APP="a_changed_shop:app")
    changed("contracts", "export")

    told = changed("contracts", "check", "--against-registry")

    assert changed("contracts", "check").code == 0  # a draft, as far as the files know
    assert told.code == 4
    assert "refused  order.paid v1: orderId has another type" in told.out
    assert "at /properties/orderId, since the registry" in told.out


def test_a_lost_queue_is_seen_and_put_back(
    cli: CommandLine, management: Management, vhost: str
) -> None:
    cli("setup")
    before = cli("topology", "verify")
    name = vhost.rpartition("/")[2]
    management.call("DELETE", f"/api/queues/{name}/filaviva.work.billing")

    seen = cli("topology", "verify", "--json")
    planned = cli("topology", "plan")
    tried = cli("topology", "apply", "--dry-run")
    applied = cli("topology", "apply", "--yes")
    after = cli("topology", "verify")

    assert (before.code, seen.code, applied.code, after.code) == (0, 1, 0, 0), applied.err
    lost = [item for item in seen.json["items"] if item["kind"] == "queue"]
    assert [item["name"] for item in lost] == ["filaviva.work.billing"]
    assert "declare" in planned.out
    assert tried.out == planned.out


def test_a_queue_with_other_arguments_is_named_with_the_way_out(
    cli: CommandLine, management: Management, vhost: str
) -> None:
    name = vhost.rpartition("/")[2]
    management.call(
        "PUT",
        f"/api/queues/{name}/filaviva.work.billing",
        {"durable": True, "arguments": {"x-queue-type": "classic"}},
    )

    refused = cli("setup")

    assert refused.code == 2
    assert "rabbitmqctl delete_queue filaviva.work.billing" in refused.err


def test_a_stale_binding_is_planned_and_removed(
    cli: CommandLine, vhost: str, management: Management
) -> None:
    cli("setup")
    name = quote(vhost.rpartition("/")[2], safe="")
    between = f"/api/bindings/{name}/e/filaviva.events/q/filaviva.work.billing"
    management.call("POST", between, {"routing_key": "order.forgotten.v1"})

    planned = cli("topology", "plan", "--json").json["items"]
    applied = cli("topology", "apply", "--yes")
    after = cli("topology", "verify")

    assert [(one["action"], one["found"]) for one in planned] == [("stale", "'order.forgotten.v1'")]
    assert "removed 1 stale bindings" in applied.out
    assert after.code == 0


def test_the_topology_is_not_compared_without_a_management_url(
    empty_database: str, vhost: str
) -> None:
    cli = CommandLine(
        FILAVIVA_APP=APP, FILAVIVA_POSTGRES__URL=empty_database, FILAVIVA_BROKER__URL=vhost
    )
    cli("setup")

    refused = cli("topology", "verify")

    assert refused.code == 2
    assert "FILAVIVA_BROKER__MANAGEMENT_URL" in refused.err
