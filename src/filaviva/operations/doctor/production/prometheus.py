"""Ask a Prometheus whether it scrapes our jobs, has our rules, and tells somebody."""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from filaviva.few import few
from filaviva.operations.doctor.bounded import ANSWER_SECONDS
from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.production.sight import SERVICES, Process

WATCHDOG: Final = "FilavivaWatchdog"
_NEXT: Final = "see deploy/prometheus/prometheus.yml"
_SHOWN: Final = 4


async def examine(
    url: str, live: Sequence[Process], alerts: Collection[str]
) -> AsyncIterator[Finding]:
    """Ask what it scrapes, which rules it has, and whom it tells."""
    try:
        async with httpx2.AsyncClient(
            base_url=url.rstrip("/"), timeout=ANSWER_SECONDS, trust_env=False
        ) as client:
            targets = await _ask(client, "targets", state="active")
            groups = await _ask(client, "rules", type="alert")
            managers = await _ask(client, "alertmanagers")
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError) as failed:
        why = f"{type(failed).__name__}: {failed}"[:200]
        where = urlsplit(url).hostname or "what --prometheus names"
        yield unknown("prometheus", f"{where} does not say: {why}", "correct --prometheus URL")
        return
    for finding in _jobs(targets["activeTargets"], live):
        yield finding
    rules = [rule for group in groups["groups"] for rule in group["rules"]]
    yield _loaded({rule["name"] for rule in rules}, set(alerts))
    yield _watchdog(rules)
    yield _managers(managers.get("activeAlertmanagers", []))


async def _ask(client: httpx2.AsyncClient, path: str, **parameters: str) -> Any:
    answer = await client.get(f"/api/v1/{path}", params=parameters)
    return answer.raise_for_status().json()["data"]


def _jobs(targets: Sequence[Mapping[str, Any]], live: Sequence[Process]) -> Iterator[Finding]:
    for job in (*SERVICES, "rabbitmq"):
        found = [each for each in targets if each["labels"].get("job") == job]
        check, running = f"job {job}", sum(each.service == job for each in live)
        down = [each for each in found if each["health"] != "up"]
        if not found:
            yield wrong(check, "no target has this job", _NEXT, expected="one for each process")
        elif down:
            errors = f"{down[0]['scrapeUrl']}: {down[0].get('lastError') or down[0]['health']}"
            told = f"{len(down)} of {len(found)} targets are not up: {errors}"
            yield wrong(check, told, "open the way from Prometheus to this port", expected="all up")
        elif len(found) < running:
            told = f"{len(found)} targets, {running} processes run"
            yield wrong(check, told, _NEXT, expected="one for each process")
        else:
            yield ok(check, f"{len(found)} targets, all up")


def _loaded(names: set[str], wanted: set[str]) -> Finding:
    missing = sorted(wanted - names)
    if not missing:
        return ok("rules", f"{len(wanted)} alerts of ours are loaded")
    return wrong(
        "rules",
        f"not loaded: {few(missing, _SHOWN)}",
        "add deploy/prometheus/rules/*.yml to `rule_files`, and reload Prometheus",
        expected=f"{len(wanted)} alerts",
    )


def _watchdog(rules: Sequence[Mapping[str, Any]]) -> Finding:
    states = [rule["state"] for rule in rules if rule["name"] == WATCHDOG]
    if "firing" in states:
        return ok("watchdog", f"{WATCHDOG} fires, as it always should")
    found = f"{WATCHDOG} is {states[0]}" if states else f"there is no {WATCHDOG}"
    next_step = "docs/runbooks/FilavivaWatchdog.md says what it is for, and what its silence means"
    return wrong("watchdog", found, next_step, expected="it fires all the time")


def _managers(active: Sequence[Mapping[str, Any]]) -> Finding:
    if active:
        return ok("alertmanager", f"alerts go to {', '.join(each['url'] for each in active)}")
    return attention(
        "alertmanager",
        "Prometheus tells none",
        "name it under `alerting`; deploy/alertmanager has an example that tells Slack",
        expected="one at least, or another one who reads the alerts",
    )
