"""What the list for production makes of what it finds, in both directions."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from filaviva.monitoring import deployed
from filaviva.operations.doctor.finding import Finding
from filaviva.operations.doctor.production import (
    access,
    bounds,
    broker,
    drill,
    leases,
    postgres,
    replicas,
    scraped,
    versions,
)
from filaviva.operations.doctor.production.bounds import Handled, Taken
from filaviva.operations.doctor.production.sight import SERVICES, Process
from filaviva.operations.drills import Drill
from filaviva.operations.in_flight import InFlight, Readable
from filaviva.operations.keys import Key
from filaviva.operations.limits import Row
from filaviva.policy import Policy, StoredPolicy

RULES = Path(__file__).parents[2] / "deploy/prometheus/rules"
NOW = datetime.now(UTC)
SETTINGS = {
    "environment": "prod",
    "leaseSeconds": 15.0,
    "graceSeconds": 30.0,
    "detachAfterSeconds": 600.0,
    "concurrency": 100,
    "poolSize": 10,
    "slack": True,
    "callbacks": True,
    "callbacksAnywhere": False,
    "links": True,
    "retention": True,
}
MEASURED = {"clockAhead": 0.01, "clockDoubt": 0.01, "loopLag": 0.2, "renewalGap": 5.1}


def process(service: str = "worker", host: str = "a", **changes: Any) -> Process:
    """A process that is as it should be, but for the changes."""
    settings = SETTINGS | {name: changes.pop(name) for name in SETTINGS if name in changes}
    measured = MEASURED | {"databaseUser": "shop", "superuser": False, "databaseTls": True}
    measured |= {name: changes.pop(name) for name in [*measured] if name in changes}
    usual: dict[str, Any] = {
        "id": f"{host}:1:{service}",
        "release": "1.0.0",
        "scraped_by": "Prometheus/3.9",
        "scraped_seconds_ago": 12.0,
        "age_seconds": 600.0,
        "live": True,
    }
    return Process(
        service=service, host=host, settings=settings, measured=measured, **(usual | changes)
    )


def levels(*findings: Finding) -> dict[str, str]:
    return {finding.check: finding.level for finding in findings}


def test_every_finding_that_is_not_well_says_what_was_expected_or_what_to_do() -> None:
    alone = [process(service) for service in SERVICES]

    for finding in (drill.verdict(None, None), scraped.scrapes([]), *map(_alone, alone)):
        assert finding.next_step, finding


def _alone(one: Process) -> Finding:
    return replicas.replicas(one.service, [one])


@pytest.mark.parametrize(
    ("hosts", "level"), [("", "wrong"), ("a", "attention"), ("aa", "attention"), ("ab", "ok")]
)
def test_two_of_each_service_on_two_machines_are_expected(hosts: str, level: str) -> None:
    live = [process("producer", host) for host in hosts]

    assert replicas.replicas("producer", live).level == level


@pytest.mark.parametrize(
    ("gap", "level"), [(5.1, "ok"), (10.5, "attention"), (15.0, "wrong"), (None, "unknown")]
)
def test_the_lease_is_compared_with_the_longest_time_between_renewals(
    gap: float | None, level: str
) -> None:
    workers = [process(), process(renewalGap=gap)] if gap else [process(renewalGap=0.0)]

    lease, *_ = leases.worker_findings(workers, workers, None)

    assert lease.level == level


@pytest.mark.parametrize(("given", "level"), [(None, "unknown"), (30, "wrong"), (50, "ok")])
def test_the_time_to_stop_is_grace_and_twenty_seconds(given: float | None, level: str) -> None:
    *_, stop = leases.worker_findings([process()], [process()], given)

    assert (stop.check, stop.level) == ("time to stop", level)
    assert level == "ok" or str(stop.expected).startswith("50 s or more")


@pytest.mark.parametrize(
    ("version", "queue", "detach", "level"),
    [
        ("3.10.8", {}, 600.0, "ok"),
        ("3.10.8", {}, 1700.0, "wrong"),
        ("4.3.6", {}, 7200.0, "ok"),  # it honours what each consumer asks for
        ("4.3.6", {"arguments": {"x-consumer-timeout": 60_000}}, 600.0, "wrong"),
        ("4.1.0", {"effective_policy_definition": {"consumer-timeout": 3_600_000}}, 1700.0, "ok"),
    ],
)
def test_a_long_job_lets_go_before_the_broker_loses_patience(
    version: str, queue: Mapping[str, Any], detach: float, level: str
) -> None:
    found = leases.patience_of(version, [queue], [process(detachAfterSeconds=detach)])

    assert found.level == level


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, "ok"),
        ({"scraped_by": "curl/8.1"}, "attention"),
        ({"scraped_seconds_ago": 500.0}, "wrong"),
        ({"scraped_seconds_ago": None, "scraped_by": None}, "wrong"),
    ],
)
def test_a_process_that_nobody_scrapes_is_told(changes: dict[str, Any], level: str) -> None:
    found = scraped.scrapes([process(), process("producer", **changes)])

    assert found.level == level
    assert level != "wrong" or "1 of 2" in found.found


@pytest.mark.parametrize(
    ("most", "pool", "level"), [("200", 10, "ok"), ("100", 40, "attention"), ("100", 50, "wrong")]
)
def test_all_pools_fit_into_what_postgresql_grants(most: str, pool: int, level: str) -> None:
    settings = {"max_connections": most, "superuser_reserved_connections": "3"}

    # A worker has two pools.
    found = postgres.connections(
        settings, [process(poolSize=pool // 2), process("producer", poolSize=pool)], 9
    )

    assert found.level == ("ok" if pool == 10 else level)


def a_drill(*, passed: bool = True, days: float = 1, cut: float = 120) -> Drill:
    ended = NOW - timedelta(days=days)
    return Drill(uuid4(), "ana", ended, ended, passed, cut, {})


@pytest.mark.parametrize(
    ("last", "level"),
    [
        (None, "wrong"),
        (a_drill(passed=False), "wrong"),
        (a_drill(days=31), "attention"),
        (a_drill(cut=10), "attention"),
        (a_drill(), "ok"),
    ],
)
def test_a_drill_counts_if_it_passed_lately_and_was_hard(last: Drill | None, level: str) -> None:
    assert drill.verdict(last, None).level == level


def test_a_drill_that_did_not_pass_names_what_did_not_hold() -> None:
    facts = [{"name": "pauses grew", "holds": True}, {"name": "Slack was told", "holds": False}]
    last = replace(a_drill(passed=False), report={"facts": facts})

    assert "did not pass (Slack was told); one passed on" in drill.verdict(last, a_drill()).found


def a_key(**changes: Any) -> Key:
    usual: dict[str, Any] = {
        "id": "abc", "name": "shop", "tenant": "default", "scopes": ("jobs:write",),
        "types": None, "created_at": NOW - timedelta(days=100), "last_used_at": NOW,
        "expires_at": NOW + timedelta(days=9), "revoked_at": None,
    }  # fmt: skip
    return Key(**(usual | changes))


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"scopes": ("admin",)}, "keys that may do much"),
        (
            {"scopes": ("jobs:write", "jobs:read", "jobs:cancel", "dlq:read")},
            "keys that may do much",
        ),
        ({"expires_at": None}, "keys without an end"),
        ({"last_used_at": None}, "keys that nobody uses"),
        ({"last_used_at": NOW - timedelta(days=91)}, "keys that nobody uses"),
    ],
)
def test_a_key_that_may_too_much_or_for_too_long_is_told(
    changes: dict[str, Any], check: str
) -> None:
    good = levels(*access.key_findings([a_key()], NOW))
    bad = levels(*access.key_findings([a_key(), a_key(**changes)], NOW))
    gone = levels(*access.key_findings([a_key(), a_key(**changes, revoked_at=NOW)], NOW))

    assert set(good.values()) == {"ok"}
    assert [name for name, level in bad.items() if level != "ok"] == [check]
    assert gone == good


def test_without_any_key_nobody_can_submit() -> None:
    assert levels(*access.key_findings([], NOW)) == {"API keys": "attention"}


def handled(kind: str = "shop.order", queue: str = "shop", **policy: Any) -> Handled:
    stored = Policy(**({"max_attempts": 4, "timeout": 30} | policy)).stored()
    return Handled(kind, 1, queue, StoredPolicy.read(stored))


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        ({"timeout": None}, "no timeout"),
        ({"max_attempts": 1}, "the first failure is the last"),
        ({"max_attempts": 100, "timeout": 3600}, "100 attempts may take"),
    ],
)
def test_a_policy_without_bounds_is_told(policy: dict[str, Any], word: str) -> None:
    well = bounds.policies([handled()])
    odd = bounds.policies([handled(), handled("shop.odd", **policy)])

    assert (well.level, odd.level) == ("ok", "attention")
    assert odd.found.startswith("shop.odd v1: ")
    assert word in odd.found


def test_policies_that_nobody_has_chosen_are_told() -> None:
    usual = Handled("shop.order", 1, "shop", StoredPolicy.read(Policy(timeout=600).stored()))

    assert bounds.policies([usual]).level == "attention"
    assert bounds.policies([usual, handled()]).level == "ok"
    assert bounds.policies([]).level == "unknown"


def test_a_queue_that_mixes_short_and_long_work_is_told_by_what_was_measured_or_by_timeouts() -> (
    None
):
    short, long = handled("shop.mail", timeout=5), handled("shop.year", timeout=900)
    apart = replace(long, queue="slow")
    taken = [Taken("shop", "shop.mail", 9, 0.2), Taken("shop", "shop.year", 9, 400.0)]

    assert bounds.classes([short, long], []).level == "attention"
    assert bounds.classes([short, apart], []).level == "ok"
    assert "shop.mail takes 0.2 s and shop.year 7 min" in bounds.classes([short], taken).found
    assert bounds.classes([short, long], [replace(t, median=2.0) for t in taken]).level == "ok"


def limit(tenant: str, **figures: Any) -> Row:
    usual = {"per_minute": None, "burst": None, "queued": None, "running": None}
    return Row(tenant=tenant, subject="", updated_at=NOW, **{**usual, **figures})


def test_tenants_without_limits_stand_in_the_way_of_each_other() -> None:
    every = limit("*", queued=100, running=10, per_minute=60.0)
    high = limit("*", queued=100, running=100, per_minute=60.0)

    alone = levels(*bounds.limit_findings(["shop"], [], 100))
    two = levels(*bounds.limit_findings(["shop", "bank"], [limit("shop", running=5)], 100))
    well = levels(*bounds.limit_findings(["shop", "bank"], [every], 100))
    vain = levels(*bounds.limit_findings(["shop"], [high], 100))

    waiting, running = "limits of waiting jobs", "limits of running jobs"
    assert alone == {
        waiting: "attention",
        running: "attention",
        "limits of submissions": "attention",
    }
    assert two == {waiting: "wrong", running: "wrong", "limits of submissions": "attention"}
    assert set(well.values()) == {"ok"}
    assert vain["limits have effect"] == "attention"


def node(**changes: Any) -> dict[str, Any]:
    usual = {
        "name": "mq1", "running": True, "disk_free": 90 * 2**30, "disk_free_limit": 2 * 2**30,
        "mem_used": 2**30, "mem_limit": 8 * 2**30,
    }  # fmt: skip
    return usual | changes


@pytest.mark.parametrize(
    ("changes", "check", "level"),
    [
        ({"running": False}, "nodes", "wrong"),
        ({"partitions": ["mq2"]}, "nodes", "wrong"),
        ({"disk_free_limit": 50_000_000}, "broker's disk", "attention"),
        ({"disk_free": 3 * 2**30}, "broker's disk", "attention"),
        ({"mem_used": 7 * 2**30}, "broker's memory", "attention"),
    ],
)
def test_a_node_that_is_not_fit_for_production_is_told(
    changes: dict[str, Any], check: str, level: str
) -> None:
    three = [node(), node(name="mq2"), node(name="mq3")]

    assert set(levels(*broker.node_findings(three)).values()) == {"ok"}
    assert levels(*broker.node_findings([*three[1:], node(**changes)]))[check] == level
    assert levels(*broker.node_findings([node()]))["nodes"] == "attention"


def queue(**changes: Any) -> dict[str, Any]:
    usual = {
        "name": "filaviva.work.shop", "type": "quorum", "members": ["a", "b", "c"],
        "online": ["a", "b", "c"], "arguments": {"x-delivery-limit": 20},
    }  # fmt: skip
    return usual | changes


@pytest.mark.parametrize(
    ("changes", "nodes", "level"),
    [
        ({}, 3, "ok"),
        ({"type": "classic"}, 3, "wrong"),
        ({"online": ["a", "b"]}, 3, "wrong"),
        ({"members": ["a"], "online": ["a"]}, 3, "wrong"),
        ({"members": ["a"], "online": ["a"]}, 1, "attention"),
        ({"name": "theirs", "type": "classic"}, 3, "unknown"),
    ],
)
def test_queues_have_three_copies(changes: dict[str, Any], nodes: int, level: str) -> None:
    assert broker.copies([queue(**changes)], nodes).level == level


def test_a_delivery_limit_that_a_policy_lowers_is_told() -> None:
    lowered = queue(effective_policy_definition={"delivery-limit": 3})

    assert leases.deliveries([queue()]).level == "ok"
    assert leases.deliveries([queue(), lowered]).level == "wrong"
    assert leases.deliveries([]).level == "unknown"
    assert broker.policies([lowered]).level == "attention"


def test_the_alerts_that_it_looks_for_are_those_of_the_rules() -> None:
    groups = [g for file in RULES.glob("*.yml") for g in yaml.safe_load(file.read_text())["groups"]]
    named = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}

    assert named == deployed.alerts()


@pytest.mark.parametrize(
    ("readers", "level"),
    [(("yes",), "ok"), (("yes", "unknown"), "attention"), (("no", "unknown"), "wrong")],
)
def test_who_reads_what_is_in_flight_is_told(readers: tuple[Readable, ...], level: str) -> None:
    found = [
        InFlight(
            type=f"doc.{reader}", version=1, place="queue", queue="docs", messages=7, oldest=None,
            apps=(), readable=reader,
        )
        for reader in readers
    ]  # fmt: skip

    told = versions.readable(found)

    assert told.level == level
    assert "doc.yes" not in told.found
