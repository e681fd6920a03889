"""Who runs: how many of each service, on how many machines, of which release, by which clock."""

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpx2

from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.management import Management, why
from filaviva.operations.doctor.production.sight import SERVICES, Process, Sight

_MOST_AHEAD: Final = 1.0
# A date in HTTP is of whole seconds, and the answer was under way.
_BROKER_AHEAD: Final = 3.0


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Look at every process that was seen lately."""
    yield await _broker_clock(sight)
    for service in SERVICES:
        yield replicas(service, sight.live(service))
    live = sight.live()
    yield _releases(live)
    yield _environment(live)
    yield _clocks(live)


def replicas(service: str, live: Sequence[Process]) -> Finding:
    check, run = f"replicas of {service}", f"run one more `filaviva run {service}`"
    expected = "two or more, on two or more machines (a container counts as a host)"
    if not live:
        return wrong(check, "none runs", f"run `filaviva run {service}`", expected=expected)
    hosts = {each.host for each in live}
    if len(live) == 1:
        found = f"one, on {live[0].host}: while it is started again, nobody does its duty"
        return attention(check, found, run, expected=expected)
    if len(hosts) == 1:
        found = f"{len(live)}, all on {live[0].host}"
        return attention(check, found, f"{run} on another machine", expected=expected)
    return ok(check, f"{len(live)} on {len(hosts)} hosts")


def _releases(live: Sequence[Process]) -> Finding:
    found = sorted({each.release for each in live})
    if len(found) < 2:  # noqa: PLR2004 - one
        return ok("releases", f"all of {found[0]}" if found else "nothing runs")
    told = ", ".join(f"{sum(e.release == one for e in live)} of {one}" for one in found)
    next_step = "nothing during a deploy; else replace those of the older release"
    return attention("releases", told, next_step, expected="one release")


def _environment(live: Sequence[Process]) -> Finding:
    names = sorted({str(each.settings.get("environment")) for each in live})
    if not names or names == ["development"] or len(names) > 1:
        return attention(
            "environment",
            f"alerts call this place {' and '.join(names) or 'nothing: nothing runs'}",
            "set FILAVIVA_ENVIRONMENT=production for every service",
            expected="one name, and not the one that everybody has before choosing",
        )
    return ok("environment", f"alerts call this place {names[0]}")


def _clocks(live: Sequence[Process]) -> Finding:
    off = [(each, each.measured["clockAhead"]) for each in live if _ahead(each) > _MOST_AHEAD]
    if not live:
        return unknown("clocks", "nothing runs whose clock could be compared", "start the services")
    if not off:
        worst = max(map(_ahead, live))
        return ok("clocks", f"{len(live)} processes within {max(worst, 0.01):.2f} s of PostgreSQL")
    told = ", ".join(f"{each.service} on {each.host} by {ahead:+.1f} s" for each, ahead in off[:3])
    return attention(
        "clocks",
        f"they differ from PostgreSQL's: {told}",
        "let a time service (NTP) run on every machine: logs, traces, signed links and Slack's "
        "signatures go by these clocks; leases and pauses go by PostgreSQL's alone",
        expected=f"{_MOST_AHEAD:g} s at most",
    )


def _ahead(process: Process) -> float:
    """How far its clock is off at the least."""
    measured = process.measured
    return float(abs(measured.get("clockAhead", 0.0)) - measured.get("clockDoubt", 0.0))


async def _broker_clock(sight: Sight) -> Finding:
    check, url = "the broker's clock", sight.addresses.management
    if url is None:
        need = "set FILAVIVA_BROKER__MANAGEMENT_URL=http://user:password@host:15672"
        return unknown(check, "no management URL", need)
    management = Management(url)
    try:
        async with management:
            await management.get("/api/whoami")
    except (httpx2.HTTPError, ValueError) as failed:
        return unknown(check, why(failed), "see what is said of the broker")
    return next(_compared(check, management.date))


def _compared(check: str, date: str | None) -> Iterator[Finding]:
    if date is None:
        yield unknown(check, "its answers bear no date", "compare it by hand: `date -u` there")
        return
    ahead = (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds()
    if abs(ahead) <= _BROKER_AHEAD:
        yield ok(check, "as here, as far as whole seconds tell")
        return
    yield attention(
        check,
        f"{ahead:+.0f} s from the clock here",
        "let a time service (NTP) run on both machines",
        expected=f"{_BROKER_AHEAD:g} s at most",
    )
