"""What a dashboard is made of, in our words; `grafana` writes it in Grafana's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["timeseries", "stat", "table", "heatmap"]
Step: TypeAlias = tuple[float | None, str]

CALM: Final[Sequence[Step]] = ((None, "green"),)


@dataclass(frozen=True, slots=True)
class Query:
    """A question to Prometheus."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Sql:
    """A question to PostgreSQL, for what is no label: tenants, single jobs."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture: what it shows, from when on it is bad, and what to do then."""

    title: str
    text: str
    unit: str
    ask: Sequence[Query | Sql]
    see: str  # the runbook that helps
    steps: Sequence[Step] = CALM
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 7
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels that belong together."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    text: str
    rows: Sequence[Row]
    by_type: bool = False
    since: str = "now-6h"
    tags: Sequence[str] = field(default=("filaviva",))

    @property
    def panels(self) -> Sequence[Panel]:
        """Every panel, in order."""
        return [panel for row in self.rows for panel in row.panels]


def bad_from(orange: float, red: float) -> Sequence[Step]:
    """More is worse."""
    return ((None, "green"), (orange, "orange"), (red, "red"))


def good_from(orange: float, green: float) -> Sequence[Step]:
    """More is better."""
    return ((None, "red"), (orange, "orange"), (green, "green"))


ANY: Final[Sequence[Step]] = ((None, "green"), (1e-9, "red"))  # anything but 0 is wrong


CHOSEN: Final = 'type=~"$type"'  # the types that are chosen above


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Give the rate per second of a counter, summed over processes."""
    return f"sum{_by(by)}(rate({metric}{_where(where)}[$__rate_interval]))"


def increase(metric: str, by: str = "", where: str = "") -> str:
    """Give by how much a counter grew, summed over processes."""
    return f"sum{_by(by)}(increase({metric}{_where(where)}[$__rate_interval]))"


def figure(metric: str, by: str = "", where: str = "") -> str:
    """Give a figure that one process shows for all, summed over the labels left out."""
    inner = f"max without (instance, job, app)({metric}{_where(where)})"
    return f"sum{_by(by)}({inner})"


def age(metric: str, by: str = "", where: str = "") -> str:
    """Give the age of the oldest in seconds; 0 where nothing waits."""
    since = f"min{_by(by)}(({metric}{_where(where)} > 0) or ({metric}{_where(where)} + 1e12))"
    return f"clamp_min((time() - {since}) * ({since} < bool 1e12), 0)"


def quantile(share: float, metric: str, by: str = "", where: str = "") -> str:
    """Give a quantile of a histogram, over all processes."""
    labels = f"le, {by}" if by else "le"
    inner = f"sum by ({labels})(rate({metric}_bucket{_where(where)}[$__rate_interval]))"
    return f"histogram_quantile({share:g}, {inner})"


def quantiles(metric: str, where: str = "") -> Sequence[Query]:
    """Give the usual three."""
    return [
        Query(quantile(share, metric, where=where), f"{share * 100:g} %")
        for share in (0.5, 0.95, 0.99)
    ]


def chosen(column: str) -> str:
    """Restrict a table to the types that are chosen above."""
    return f"{column} ~ '^(${{type:regex}})$'"


def since(column: str, before: str = "0 s") -> str:
    """Restrict a time-ordered id (UUIDv7) to the time shown: the primary key finds those rows."""
    moment = f"extract(epoch FROM $__timeFrom()::timestamptz - interval '{before}')"
    bits = f"lpad(to_hex(({moment} * 1000)::bigint), 12, '0')"
    return f"{column} >= ({bits} || repeat('0', 20))::uuid"


def share(part: str, whole: str) -> str:
    """Give a part of a whole, 0 where there is nothing."""
    return f"{part} / ({whole} > 0) or {whole} * 0"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


def _where(conditions: str) -> str:
    return f"{{{conditions}}}" if conditions else ""
