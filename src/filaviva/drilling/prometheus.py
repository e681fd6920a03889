"""Ask a Prometheus: about the alert of the rules, and what the panels would show."""

from dataclasses import dataclass
from typing import Any, Final

import httpx2

from filaviva.database import redacted
from filaviva.drill.contract import DrillCall
from filaviva.errors import Unreachable

ALERT: Final = "FilavivaProviderFailing"
_FIRING: Final = (
    f'ALERTS{{alertname="{ALERT}",alertstate="firing",type="{DrillCall.contract_type}"}}'
)
# Those that Alertmanager tells somebody of, as `deploy/alertmanager` routes them.
_OTHERS: Final = f'ALERTS{{alertname!="{ALERT}",alertstate="firing",severity!~"info|none"}}'
_STEP: Final = 1.0
_MARGIN: Final = 30.0
_SCRAPED: Final = f'count(filaviva_job_attempts_total{{type="{DrillCall.contract_type}"}})'


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of one series: (Unix time, value)."""

    labels: dict[str, str]
    samples: tuple[tuple[float, float], ...]


class Prometheus:
    """One server, by its HTTP API."""

    def __init__(self, url: str) -> None:
        self.place = redacted(url)
        self._url = url
        self._http = httpx2.AsyncClient(trust_env=False, timeout=10)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def scraped(self) -> bool:
        """Tell whether it knows the figures of a worker that serves the drill."""
        return bool(await self._instant(_SCRAPED))

    async def everything_is_up(self) -> bool:
        """Tell whether it has scraped each of its targets."""
        active = (await self._get("targets", state="active"))["activeTargets"]
        return bool(active) and all(each["health"] == "up" for each in active)

    async def has_rule(self) -> bool:
        """Tell whether it has loaded the alert's rule."""
        groups = (await self._get("rules", type="alert"))["groups"]
        return any(rule["name"] == ALERT for group in groups for rule in group["rules"])

    async def interval(self) -> float:
        """Give the seconds from one scrape of a worker to the next."""
        active = (await self._get("targets", state="active"))["activeTargets"]
        wanted = [each for each in active if each["labels"].get("app") == "filaviva"] or active
        return max((_seconds(each.get("scrapeInterval", "15s")) for each in wanted), default=15.0)

    async def alertmanagers(self) -> list[str]:
        """Give the Alertmanagers that it tells."""
        found = (await self._get("alertmanagers"))["activeAlertmanagers"]
        return [str(each["url"]).partition("/api/")[0] for each in found]

    async def fires(self) -> bool:
        """Tell whether the alert fires now."""
        return bool(await self._instant(_FIRING))

    async def fired(self, since: float, until: float) -> tuple[float, float] | None:
        """Give from when to when the alert fired; None if it never did."""
        found = await self.over(_FIRING, since, until, _STEP)
        times = [at for each in found for at, _ in each.samples]
        return (min(times), max(times) + _STEP) if times else None

    async def others(self, since: float, until: float) -> int:
        """Count what else there was to tell: other alerts that began or ended meanwhile."""
        found: dict[tuple[str, str], list[float]] = {}
        for each in await self.over(_OTHERS, since - _MARGIN, until, _MARGIN / 2):
            group = (each.labels["alertname"], each.labels.get("type", ""))
            found.setdefault(group, []).extend(at for at, _ in each.samples)
        began = sum(min(times) > since - _MARGIN / 2 for times in found.values())
        return began + sum(max(times) < until - _MARGIN for times in found.values())

    async def now(self, expr: str) -> list[Series]:
        """Give what a query shows now."""
        return await self._instant(expr)

    async def over(self, expr: str, since: float, until: float, step: float) -> list[Series]:
        """Give what a query showed over a time."""
        answer = await self._get(
            "query_range", query=expr, start=f"{since:.3f}", end=f"{until:.3f}", step=f"{step:g}"
        )
        return [_series(each["metric"], each["values"]) for each in answer["result"]]

    async def _instant(self, expr: str) -> list[Series]:
        answer = await self._get("query", query=expr)
        return [_series(each["metric"], [each["value"]]) for each in answer["result"]]

    async def _get(self, path: str, **parameters: str) -> Any:
        try:
            answer = await self._http.get(f"{self._url}/api/v1/{path}", params=parameters)
            told = answer.json()
        except (httpx2.HTTPError, ValueError) as away:
            why = str(away) or type(away).__name__
            raise Unreachable(f"Prometheus at {self.place} does not answer: {why}") from away
        if told.get("status") != "success":
            raise Unreachable(f"Prometheus at {self.place} refuses: {told.get('error', '')[:300]}")
        return told["data"]


def _series(labels: dict[str, str], values: list[Any]) -> Series:
    samples = [(float(at), float(value)) for at, value in values]
    # NaN is not itself.
    return Series(labels, tuple((at, value) for at, value in samples if value == value))  # noqa: PLR0124


def _seconds(text: str) -> float:
    """Read a duration as Prometheus writes it: 15s, 500ms, 1m30s."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    total, number, unit = 0.0, "", ""
    for letter in f"{text}0":
        if letter.isdigit() or letter == ".":
            if unit:
                total, number, unit = total + float(number) * units[unit], "", ""
            number += letter
        else:
            unit += letter
    return total
