"""Are our figures looked at: has somebody scraped each process, and are our rules loaded."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from filaviva.few import few
from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.production import prometheus
from filaviva.operations.doctor.production.sight import EVERY, Process, Sight

_LATE_SECONDS: Final = 180.0
_SHOWN: Final = 3
# People look like this; they do not come every quarter of a minute.
_PEOPLE: Final = ("curl/", "wget/", "mozilla/", "httpie/")
_NEXT: Final = (
    "let Prometheus scrape the metrics port of every process: deploy/prometheus/prometheus.yml "
    "has the jobs, docs/howto/watch-it-in-grafana.md the ports"
)
_EXPECTED: Final = f"a scrape of every process within the last {_LATE_SECONDS:g} s"


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Ask Prometheus what it knows, and the processes who came."""
    async for finding in _by_prometheus(sight):
        yield finding
    yield scrapes(sight.live())


async def _by_prometheus(sight: Sight) -> AsyncIterator[Finding]:
    if sight.asked.prometheus is None:
        yield unknown(
            "prometheus",
            "nobody said where it is",
            "name it: `filaviva doctor --production --prometheus http://prometheus:9090`",
            expected="every job up, every rule of ours loaded, FilavivaWatchdog firing",
        )
        return
    asked = sight.asked
    async for finding in prometheus.examine(sight.asked.prometheus, sight.known(), asked.alerts):
        yield finding


def scrapes(live: Sequence[Process]) -> Finding:
    """Say whose figures nobody looks at."""
    if not live:
        return unknown("scraped", "nothing runs that could be", "start the services")
    missed = [each for each in live if _missed(each)]
    if missed:
        told = few(missed, _SHOWN, lambda each: f"{each.service} {each.id}")
        found = f"{len(missed)} of {len(live)} processes are not: {told}"
        return wrong("scraped", found, _NEXT, expected=_EXPECTED)
    agents = sorted({each.scraped_by or "nobody who says a name" for each in live} - {""})
    told = f"{len(live)} processes, by {', '.join(agents) or 'somebody'}"
    if any(agent.lower().startswith(_PEOPLE) for agent in agents):
        return attention("scraped", told, _NEXT, expected="a program that comes again by itself")
    return ok("scraped", told)


def _missed(process: Process) -> bool:
    ago = process.scraped_seconds_ago
    # Its row is written every so often: what has just come is not in it yet.
    return ago is None or ago > _LATE_SECONDS + EVERY
