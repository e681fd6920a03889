"""What the sandbox does wrong on purpose, planned for each document."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer right or wrong, after a while or once released; every one of these is charged."""

    form: Literal["right", "bad_output", "bad_total"] = "right"
    after: float = 0.0
    held: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error status; nothing is charged."""

    status: int
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """Say nothing for so many seconds; nothing is charged."""

    seconds: float


Fault: TypeAlias = Answer | Refuse | Hang

_PLAIN = {
    "ok": Answer(),
    "held": Answer(held=True),
    "bad_output": Answer(form="bad_output"),
    "bad_total": Answer(form="bad_total"),
}
FORMS = "ok, held, bad_output, bad_total, slow:S, hang:S, 429:S, 429-date:S, or a status 400 to 599"


def fault(text: str) -> Fault:
    """Read one planned fault; raise ValueError naming what was found and what is expected."""
    word, _, number = text.partition(":")
    try:
        return _fault(word, number)
    except ValueError as wrong:
        raise ValueError(f"found the fault {text!r}, expected one of: {FORMS}") from wrong


def _fault(word: str, number: str) -> Fault:
    match word:
        case "slow":
            return Answer(after=_seconds(number))
        case "hang":
            return Hang(_seconds(number))
        case "429-date":
            return Refuse(429, _date_after(_seconds(number)))
        case "429" if number:
            return Refuse(429, f"{_seconds(number):g}")
    return _PLAIN.get(word) or Refuse(_status(word))


def _seconds(number: str) -> float:
    seconds = float(number)
    if not 0 <= seconds <= 3600:  # noqa: PLR2004 - an hour
        raise ValueError(number)
    return seconds


def _status(word: str) -> int:
    status = int(word)
    if not 400 <= status <= 599:  # noqa: PLR2004 - the error statuses of HTTP
        raise ValueError(word)
    return status


def _date_after(seconds: float) -> str:
    # An HTTP date has whole seconds: round up, or the client would come too early.
    moment = datetime.now(UTC).timestamp() + seconds
    return format_datetime(datetime.fromtimestamp(math.ceil(moment), UTC), usegmt=True)


class FaultPlan:
    """For each document the faults of its next calls, in order; then all goes well."""

    def __init__(self) -> None:
        self._planned: dict[str, deque[str]] = {}

    def add(self, document: str, faults: Iterable[str]) -> None:
        """Plan these faults after those already planned; all or, if one is wrong, none."""
        wanted = list(faults)
        for text in wanted:
            fault(text)
        self._planned.setdefault(document, deque()).extend(wanted)

    def take(self, document: str | None) -> str:
        """Return what happens to the next call for this document."""
        planned = self._planned.get(document or "")
        # A fault is read when it happens: a Retry-After date counts from that moment.
        return planned.popleft() if planned else "ok"

    def clear(self) -> None:
        """Forget everything planned."""
        self._planned.clear()

    def left(self) -> dict[str, list[str]]:
        """Return what is still planned."""
        return {name: list(faults) for name, faults in self._planned.items() if faults}
