"""Are limits set: of tenants and of handlers; and does short work wait behind long.

A class of work is a queue: what takes a second must not wait behind what takes an hour.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.few import few
from filaviva.limits import EVERY, WHOLE
from filaviva.operations import limits
from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.production.sight import LATELY, Sight
from filaviva.policy import ASYNC_TIMEOUT, StoredPolicy

_DAY: Final = 86_400.0
_SHORT_SECONDS, _LONG_SECONDS, _APART = 5.0, 60.0, 30.0
_SHOWN: Final = 3
_USUAL: Final = StoredPolicy.read({})

R = TypeVar("R", bound="Handled | Taken")

_TENANTS: Final = """
SELECT DISTINCT tenant FROM filaviva.api_keys
WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp()) ORDER BY 1
"""
_TYPES: Final = """
SELECT type, version, queue, policy FROM filaviva.contracts
WHERE queue IS NOT NULL AND deprecated_at IS NULL AND type NOT LIKE 'filaviva.%'
ORDER BY queue, type, version
"""
# Job ids grow with time: the primary key leads to the newest attempts.
_DURATIONS: Final = f"""
SELECT jobs.queue, jobs.type, count(*)::int AS attempts,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY taken.seconds)::float8 AS median
FROM (SELECT job_id, extract(epoch FROM finished_at - started_at)::float8 AS seconds
    FROM filaviva.attempts WHERE job_id >= {LATELY} AND outcome = 'succeeded'
    ORDER BY job_id DESC LIMIT 20000) AS taken
JOIN filaviva.jobs AS jobs ON jobs.id = taken.job_id
WHERE jobs.type NOT LIKE 'filaviva.%'
GROUP BY jobs.queue, jobs.type ORDER BY jobs.queue, median
"""


@dataclass(frozen=True, slots=True)
class Handled:
    """A version of a type, its queue and the bounds of its handler."""

    type: str
    version: int
    queue: str
    policy: StoredPolicy

    @property
    def unchosen(self) -> bool:
        """It is what a handler has whose author said nothing."""
        return self.policy in (_USUAL, replace(_USUAL, timeout=ASYNC_TIMEOUT))

    @property
    def worst_seconds(self) -> float | None:
        """How long a job may go on failing: every attempt and every pause at its longest."""
        each = self.policy
        if each.timeout is None:
            return None
        pauses = (
            min(each.base * 2.0**n, each.cap) + each.jitter for n in range(each.max_attempts - 1)
        )
        return each.max_attempts * each.timeout + sum(pauses)


@dataclass(frozen=True, slots=True)
class Taken:
    """What attempts of a type took lately."""

    queue: str
    type: str
    attempts: int
    median: float


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Look at limits, policies and queues."""
    async with sight.connect() as connection:
        tenants = [row[0] for row in await connection.exec_driver_sql(_TENANTS)]
        for finding in limit_findings(tenants, await limits.rows(connection), _slots(sight)):
            yield finding
        handled = await _handled(connection)
        yield policies(handled)
        found = await connection.exec_driver_sql(_DURATIONS)
        yield classes(handled, [Taken(**row) for row in found.mappings()])


async def _handled(connection: AsyncConnection) -> list[Handled]:
    found = await connection.exec_driver_sql(_TYPES)
    return [Handled(r.type, r.version, r.queue, StoredPolicy.read(r.policy)) for r in found]


def _slots(sight: Sight) -> int:
    return sum(each.settings.get("concurrency", 0) for each in sight.known("worker"))


def limit_findings(
    tenants: Sequence[str], rows: Sequence[limits.Row], slots: int
) -> Iterator[Finding]:
    whole = {row.tenant: row for row in rows if row.subject == WHOLE}
    every = whole.get(EVERY)
    for figure, what in (("queued", "waiting jobs"), ("running", "running jobs")):
        bound = {name for name, row in whole.items() if getattr(row, figure) is not None}
        free = [] if EVERY in bound else [each for each in tenants if each not in bound]
        yield _unbounded(figure, what, free, len(tenants))
    figures = [row.running for row in whole.values() if row.running is not None]
    if figures and slots and min(figures) >= slots:
        yield attention(
            "limits have effect",
            f"the lowest limit of running jobs is {min(figures)}, and all workers have {slots} "
            "slots for each of their queues",
            "set one below the slots: `filaviva limits set --tenant '*' --running N`",
            expected="no tenant may fill every slot",
        )
    if every is not None and every.per_minute is not None:
        yield ok("limits of submissions", f"{every.per_minute:g} a minute for every tenant")
    else:
        yield attention(
            "limits of submissions",
            "who has no limit of its own may submit as fast as it can",
            "`filaviva limits set --tenant '*' --per-minute N`: docs/howto/limit-tenants.md",
            expected="a pace for every tenant",
        )


def _unbounded(figure: str, what: str, free: Sequence[str], tenants: int) -> Finding:
    check = f"limits of {what}"
    if not free:
        return ok(check, "each tenant has one")
    level = wrong if tenants > 1 else attention
    return level(
        check,
        f"{len(free)} of {tenants} tenants have none: {', '.join(free[:_SHOWN])}",
        f"`filaviva limits set --tenant '*' --{figure} N`: docs/howto/limit-tenants.md",
        expected="one for every tenant, or one for all of them ('*')",
    )


def policies(handled: Sequence[Handled]) -> Finding:
    check = "policies"
    if not handled:
        return unknown(check, "no app has published a handler", "run `filaviva setup` with its app")
    odd = [
        f"{each.type} v{each.version}: {why}" for each in handled if (why := _odd(each)) is not None
    ]
    if odd:
        found = few(odd, _SHOWN, between="; ", last="; and")
        next_step = "decide on Policy(max_attempts=…, timeout=…, cap=…) of these handlers"
        expected = "2 attempts or more, a timeout, an end within a day"
        return attention(check, found, next_step, expected=expected)
    if all(each.unchosen for each in handled):
        return attention(
            check,
            f"all {len(handled)} have the policy that everybody has before choosing",
            "decide how often, how far apart and how long each may try: docs/reference/handlers.md",
            expected="attempts, pauses and timeouts that somebody has decided on",
        )
    worst = max(each.worst_seconds or 0.0 for each in handled)
    most = max(each.policy.max_attempts for each in handled)
    return ok(check, f"{len(handled)}: {most} attempts at most, over after {_span(worst)}")


def _odd(handled: Handled) -> str | None:
    policy, worst = handled.policy, handled.worst_seconds
    if worst is None:
        return "nothing bounds an attempt (no timeout)"
    if policy.max_attempts == 1:
        return "one attempt: the first failure is the last"
    if worst > _DAY:
        return f"{policy.max_attempts} attempts may take {_span(worst)} in all"
    return None


def _span(seconds: float) -> str:
    if seconds < 120:  # noqa: PLR2004 - two minutes
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} days"


def classes(handled: Sequence[Handled], taken: Sequence[Taken]) -> Finding:
    """Find queues where short work waits behind long: as measured, or else as bounded."""
    check, measured = "classes", {queue: [*found] for queue, found in _by_queue(taken)}
    mixed = [told for queue, found in measured.items() if (told := _mixed(queue, found))]
    for queue, found in _by_queue(handled):
        if queue not in measured and (told := _apart(queue, found)):
            mixed.append(told)
    if mixed:
        return attention(
            check,
            "; ".join(mixed[:_SHOWN]),
            "give what takes long a queue of its own: @app.handler(…, queue=…), and workers for it",
            expected="in each queue, work of about one length",
        )
    how = f"{len(measured)} queues by what attempts took lately" if measured else "by timeouts"
    return ok(check, f"no queue mixes short and long work ({how})")


def _by_queue(rows: Sequence[R]) -> Iterator[tuple[str, list[R]]]:
    for queue, found in groupby(sorted(rows, key=attrgetter("queue")), key=attrgetter("queue")):
        yield queue, list(found)


def _mixed(queue: str, found: Sequence[Taken]) -> str | None:
    short, long = min(found, key=attrgetter("median")), max(found, key=attrgetter("median"))
    if short.median > _SHORT_SECONDS or long.median < max(_LONG_SECONDS, _APART * short.median):
        return None
    return (
        f"queue {queue}: {short.type} takes {short.median:.1f} s and {long.type} "
        f"{_span(long.median)} (medians)"
    )


def _apart(queue: str, found: Sequence[Handled]) -> str | None:
    limits: Mapping[str, float] = {
        each.type: each.policy.timeout for each in found if each.policy.timeout is not None
    }
    if not limits:
        return None
    short, long = min(limits, key=limits.__getitem__), max(limits, key=limits.__getitem__)
    if limits[long] < max(_LONG_SECONDS, _APART * limits[short]):
        return None
    return (
        f"queue {queue}: {short} may take {_span(limits[short])} and {long} {_span(limits[long])} "
        "(timeouts; nothing was measured yet)"
    )
