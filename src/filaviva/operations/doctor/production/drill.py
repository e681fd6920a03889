"""Has the failure drill passed, when, and how hard was it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Final

from filaviva.operations import drills
from filaviva.operations.doctor.finding import Finding, attention, ok, wrong
from filaviva.operations.doctor.production.sight import Sight
from filaviva.operations.drills import Drill

_AGE: Final = timedelta(days=30)
_CUT_SECONDS: Final = 120.0
_EXPECTED: Final = "a drill that passed within the last 30 days, with a cut of 120 s or more"
_RUN: Final = "run `filaviva drill` on this installation: docs/howto/run-a-drill.md"


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Read the last report."""
    async with sight.connect() as connection:
        last = await drills.last(connection)
        passed = await drills.last(connection, passed=True)
    yield verdict(last, passed)


def verdict(last: Drill | None, passed: Drill | None) -> Finding:
    """Say what the last drill, and the last that passed, are worth."""
    if last is None:
        return wrong("drill passed", "there was none", _RUN, expected=_EXPECTED)
    told = f"the last one, of {_day(last)} by {last.author} with a cut of {last.cut_seconds:g} s"
    if not last.passed:
        before = "no other has passed" if passed is None else f"one passed on {_day(passed)}"
        found = f"{told}, did not pass{_broken(last)}; {before}"
        repair = f"repair that, then {_RUN}"
        return wrong("drill passed", found, repair, expected=_EXPECTED)
    if datetime.now(UTC) - last.ended_at > _AGE or last.cut_seconds < _CUT_SECONDS:
        return attention("drill passed", f"{told}, passed", _RUN, expected=_EXPECTED)
    return ok("drill passed", f"{told}, passed")


def _broken(drill: Drill) -> str:
    names = [fact["name"] for fact in drill.report.get("facts", ()) if not fact["holds"]]
    return f" ({', '.join(names)})" if names else ""


def _day(drill: Drill) -> str:
    return f"{drill.ended_at:%Y-%m-%d %H:%M} UTC"
