"""When a schedule fires: five fields read in a time zone, and what becomes of missed times.

Before: words of a person. After: moments in UTC, each of which comes once, whatever the clocks do.
May happen twice: the same question has the same answer.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, takewhile
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

Missed: TypeAlias = Literal["skip", "once", "all"]
Overlap: TypeAlias = Literal["allow", "skip", "queue"]
OVERLAPS: Final[tuple[Overlap, ...]] = ("allow", "skip", "queue")
MISSED: Final[tuple[Missed, ...]] = ("skip", "once", "all")
# What is later than this was missed: nobody was there to fire it.
GRACE: Final = timedelta(seconds=60)
MOST_MISSED: Final = 100

_LONGEST = 100
_FIELDS: Final = (
    "five fields: minute 0-59, hour 0-23, day of month 1-31, month 1-12 or JAN-DEC, "
    "day of week 0-7 or SUN-SAT, each with * , - and /, such as '30 8 * * MON-FRI'"
)
_NAMES: Final = ("minute", "hour", "day-of-month", "month", "day-of-week")
# The longest turn of a clock is far shorter; from so much earlier on, forwards gives each time as
# it is.
_BEYOND_A_TURN = timedelta(hours=26)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone, with daylight saving as Debian's cron has it.

    A fixed time that a clock change leaves out fires right after the gap; one that comes twice
    fires the first time. What repeats by `*` in minute or hour goes by elapsed time.
    """

    text: str
    zone: ZoneInfo

    @classmethod
    def read(cls, text: str, time_zone: str) -> "Cron":
        """Read both; ValueError says what was found and what is expected."""
        cron = cls(_normal(text), _zone(time_zone))
        try:
            first = next(cron.after(datetime.now(UTC)), None)
        except CronSimError as wrong:
            raise ValueError(_found(text, str(wrong))) from None
        if first is None:
            raise ValueError(f"found {text!r}, which never comes, expected a date that exists")
        return cron

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Give the times later than this moment, in UTC."""
        # The library begins with a wall clock's time: while clocks go back it may start too early.
        times = CronSim(self.text, moment.astimezone(self.zone))
        return (utc for at in times if (utc := at.astimezone(UTC)) > moment)

    def since(self, moment: datetime, now: datetime) -> list[datetime]:
        """Give the times from this moment until now; of very many only the latest."""
        wanted = takewhile(lambda at: at <= now, self.after(moment - timedelta(microseconds=1)))
        found = list(islice(wanted, 2 * MOST_MISSED))
        if len(found) < 2 * MOST_MISSED:
            return found
        back = CronSim(self.text, now.astimezone(self.zone), reverse=True)
        (earliest,) = deque(islice(back, MOST_MISSED), maxlen=1)
        start = max(moment, earliest.astimezone(UTC) - _BEYOND_A_TURN)
        return [*takewhile(lambda at: at <= now, self.after(start - timedelta(microseconds=1)))]


@dataclass(frozen=True, slots=True)
class Turn:
    """What a schedule that is due has to do: fire at these times, leave out so many, go on then."""

    times: tuple[datetime, ...]
    left_out: int
    following: datetime | None


def turn(cron: Cron, *, since: datetime, now: datetime, missed: Missed) -> Turn:
    """Decide what becomes of the times that have come; `since` is the first that was not fired."""
    found = cron.since(since, now)
    match missed:
        case "skip":
            kept = [at for at in found if at > now - GRACE]
        case "once":
            kept = found[-1:]
        case "all":
            kept = found[-MOST_MISSED:]
    return Turn(tuple(kept), len(found) - len(kept), next(cron.after(now), None))


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _zone(name: str) -> ZoneInfo:
    if name not in _zones():
        detail = "an IANA time zone such as UTC, America/Sao_Paulo or Europe/Berlin"
        raise ValueError(f"found {name[:60]!r}, expected {detail}")
    return ZoneInfo(name)


def _normal(text: str) -> str:
    words = text.split()
    if len(text) > _LONGEST or not text.isascii() or len(words) != len(_NAMES):
        found = repr(text) if len(text) <= _LONGEST else f"{len(text)} characters"
        raise ValueError(f"found {len(words)} fields in {found}, expected {_FIELDS}")
    return " ".join(words).upper()


def _found(text: str, wrong: str) -> str:
    words = dict(zip(_NAMES, text.split(), strict=True))
    name = wrong.removeprefix("Bad ")
    what = f"{name} {words[name]!r} in {text!r}" if name in words else repr(text)
    return f"found {what}, expected {_FIELDS}"
