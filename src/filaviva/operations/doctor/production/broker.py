"""RabbitMQ as production needs it: nodes, copies of queues, room, users and their rights."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx2

from filaviva.broker.connection import user_of
from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.management import Management, why
from filaviva.operations.doctor.production.sight import Sight

_COPIES: Final = 3
_GIB: Final = 2**30
_LEAST_DISK: Final = 2 * _GIB
_MEMORY_SHARE: Final = 0.8
_MAINTAINED: Final = 4
_SHOWN: Final = 3
_NEEDS_MANAGEMENT: Final = (
    "set FILAVIVA_BROKER__MANAGEMENT_URL=https://user:password@host:15671 to let doctor look"
)
_NEEDS_ADMINISTRATOR: Final = (
    "look by hand: `rabbitmqctl list_users; rabbitmqctl list_permissions -p VHOST`; or name a "
    "management user with the tag administrator for this one command"
)


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Ask the management API for all of it."""
    addresses = sight.addresses
    if addresses.management is None:
        yield unknown("broker in production", "no management URL", _NEEDS_MANAGEMENT)
        return
    try:
        async with Management(addresses.management) as management:
            nodes = await management.get("/api/nodes")
            queues = await management.get(f"/api/queues/{quote(addresses.vhost, safe='')}")
            yield _version(await management.get("/api/overview"))
            for finding in (*node_findings(nodes), copies(queues, len(nodes)), policies(queues)):
                yield finding
            for finding in await _users(management, sight):
                yield finding
    except (httpx2.HTTPError, ValueError) as failed:
        found = f"the management API does not say: {why(failed)}"
        next_step = "correct FILAVIVA_BROKER__MANAGEMENT_URL; its user needs the tag monitoring"
        yield unknown("broker in production", found, next_step)


def _version(overview: Mapping[str, Any]) -> Finding:
    version = str(overview.get("rabbitmq_version", "0"))
    if int(version.split(".", maxsplit=1)[0]) >= _MAINTAINED:
        return ok("broker's release", version)
    return attention(
        "broker's release",
        f"{version}, which gets no repairs any more",
        "plan the way to 4.3 (through 3.13 and 4.2: their makers' upgrade guide)",
        expected="a series that is maintained; 4.3 is what we recommend",
    )


def node_findings(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    running = [node for node in nodes if node.get("running")]
    expected = "three nodes, all running"
    if len(running) < len(nodes):
        down = ", ".join(node["name"] for node in nodes if not node.get("running"))
        yield wrong("nodes", f"{down} is down", "start it again", expected=expected)
    elif any(node.get("partitions") for node in nodes):
        repair = "mend the network, then restart the nodes of the smaller side"
        yield wrong("nodes", "they do not see each other", repair, expected=expected)
    elif len(nodes) < _COPIES:
        yield attention(
            "nodes",
            f"{len(nodes)}: while it is away jobs are kept in PostgreSQL, and nothing is delivered",
            "run three, for queues with three copies",
            expected=expected,
        )
    else:
        yield ok("nodes", f"{len(nodes)}, all running")
    yield _disk(running)
    yield _memory(running)


def _disk(nodes: Sequence[Mapping[str, Any]]) -> Finding:
    # A node that has just started does not know yet.
    known = [node for node in nodes if "disk_free_limit" in node and "disk_free" in node]
    low = [node for node in known if node["disk_free_limit"] < _LEAST_DISK]
    full = [node for node in known if node["disk_free"] < 2 * node["disk_free_limit"]]
    expected = "disk_free_limit of 2 GB or more, and twice as much free"
    if full:
        told = f"{full[0]['name']} has {full[0]['disk_free'] / _GIB:.1f} GiB left"
        repair = "give it a larger disk: at the limit the broker takes no message"
        return attention("broker's disk", told, repair, expected=expected)
    if low:
        limit = low[0]["disk_free_limit"] / _GIB
        told = f"{low[0]['name']} takes messages until {limit:.2f} GiB are left"
        repair = "set `disk_free_limit.absolute = 2GB` or more in rabbitmq.conf"
        return attention("broker's disk", told, repair, expected=expected)
    if not known:
        return unknown("broker's disk", "no node says", "look again in a minute")
    return ok("broker's disk", "; ".join(map(_room, known)))


def _room(node: Mapping[str, Any]) -> str:
    free, limit = node["disk_free"] / _GIB, node["disk_free_limit"] / _GIB
    return f"{node['name']}: {free:.0f} GiB free, limit {limit:.1f}"


def _memory(nodes: Sequence[Mapping[str, Any]]) -> Finding:
    shares = {n["name"]: n["mem_used"] / n["mem_limit"] for n in nodes if n.get("mem_limit")}
    if not shares:
        return unknown(
            "broker's memory", "nothing was said", "`rabbitmq-diagnostics memory_breakdown`"
        )
    worst = max(shares, key=shares.__getitem__)
    limit = next(n["mem_limit"] for n in nodes if n["name"] == worst) / _GIB
    told = f"{worst} uses {shares[worst]:.0%} of {limit:.1f} GiB, at which it takes no message"
    if shares[worst] > _MEMORY_SHARE:
        repair = "give it more memory (vm_memory_high_watermark goes by what the machine has)"
        return attention("broker's memory", told, repair, expected=f"less than {_MEMORY_SHARE:.0%}")
    return ok("broker's memory", told)


def _ours(queues: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [queue for queue in queues if queue["name"].startswith("filaviva.")]


def copies(queues: Sequence[Mapping[str, Any]], nodes: int) -> Finding:
    ours, check = _ours(queues), "copies of queues"
    if not ours:
        return unknown(check, "none of our queues is there", "run `filaviva setup`")
    classic = [queue for queue in ours if queue.get("type") != "quorum"]
    away = [q for q in ours if len(q.get("online", ())) < len(q.get("members", ()))]
    few = [q for q in ours if len(q.get("members", ())) < _COPIES]
    expected = "quorum queues with three copies, each on a node that runs"
    if classic:
        told, repair = _told(classic, "are no quorum queues"), "run `filaviva topology plan`"
        return wrong(check, told, repair, expected=expected)
    if away:
        told, repair = _told(away, "miss a copy"), "start the nodes that are down"
        return wrong(check, told, repair, expected=expected)
    if few and nodes >= _COPIES:
        grow = "`rabbitmq-queues grow NODE all`, for each node without"
        return wrong(check, _told(few, "have fewer copies than nodes"), grow, expected=expected)
    if few:
        told = f"{len(few)} queues have one or two: with their disk what they hold is lost, though "
        told += "jobs, pauses and dead letters are issued again from PostgreSQL, and events are not"
        return attention(check, told, "run three nodes", expected=expected)
    return ok(check, f"{len(ours)} queues with three or more")


def _told(queues: Sequence[Mapping[str, Any]], what: str) -> str:
    names = ", ".join(queue["name"] for queue in queues[:_SHOWN])
    return f"{len(queues)} queues {what}: {names}"


def policies(queues: Sequence[Mapping[str, Any]]) -> Finding:
    """A policy of somebody else's may bound what must not be bounded."""
    check = "policies on our queues"
    bounded = [queue for queue in _ours(queues) if queue.get("effective_policy_definition")]
    if not bounded:
        return ok(check, "none")
    what = ", ".join(sorted({name for q in bounded for name in q["effective_policy_definition"]}))
    return attention(
        check,
        _told(bounded, f"are under a policy that sets {what}"),
        "see that it neither bounds, expires nor redirects: `filaviva topology verify` says so",
        expected="none, or one about copies alone",
    )


async def _users(management: Management, sight: Sight) -> list[Finding]:
    own = user_of(sight.addresses.amqp)
    names = {str(each.settings.get("brokerUser")) for each in sight.known()} or {own}
    guests = [name for name in names if name == "guest"]
    others, vhost = sorted(names - {"guest"}), sight.addresses.vhost
    return [
        await _guest(management, used=bool(guests)),
        *[await _rights(management, vhost, name) for name in others],
    ]


async def _guest(management: Management, *, used: bool) -> Finding:
    check, drop = "user guest", "`rabbitmqctl delete_user guest`, once nobody uses it"
    if used:
        found = "our processes use it: everybody knows its password"
        own = "make a user: docs/howto/run-on-existing-servers.md"
        return wrong(check, found, own, expected="users of your own")
    there = await management.permitted("/api/users")
    if there is None:
        found = f"{management.user} may not see the users"
        return unknown(check, found, _NEEDS_ADMINISTRATOR)
    if any(user["name"] == "guest" for user in there):
        return attention(check, "it is there", drop, expected="none")
    return ok(check, "there is none")


async def _rights(management: Management, vhost: str, name: str) -> Finding:
    check = f"rights of {name}"
    user = await management.permitted(f"/api/users/{quote(name, safe='')}")
    if user is None:
        return unknown(check, f"{management.user} may not see them", _NEEDS_ADMINISTRATOR)
    rows = await management.get(f"/api/users/{quote(name, safe='')}/permissions")
    here = [row for row in rows if row["vhost"] == vhost]
    tags = user.get("tags") or []
    tags = [tag for tag in (tags.split(",") if isinstance(tags, str) else tags) if tag]
    much = []
    if "administrator" in tags:
        much.append("it is an administrator")
    if any(row["configure"] not in ("", "^$") for row in here):
        much.append(f"it may declare and delete {here[0]['configure']!r}")
    others = [row["vhost"] for row in rows if row["vhost"] != vhost]
    if others:
        much.append(f"it may enter {len(others)} other virtual hosts")
    if not much:
        return ok(check, "it reads and writes here, and declares nothing")
    return attention(
        check,
        "; ".join(much),
        "let services have a user that only reads and writes, and `filaviva setup` another that "
        "declares: docs/howto/go-to-production.md",
        expected="configure '', read and write on ^filaviva\\. here, no tag but monitoring",
    )
