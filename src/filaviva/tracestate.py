"""W3C's tracestate: what other tracing systems add to a traceparent, kept as it came.

Only beside a traceparent of the same trace. What does not fit the recommendation is dropped; the
traceparent stays.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

NAME: Final = "tracestate"
MOST_MEMBERS: Final = 32
LONGEST: Final = 512
# Of a list that is too long, large members go first: nobody promises to carry those.
_LARGE: Final = 128


class Several(Protocol):
    """Headers of a request, of which there may be several of one name."""

    def getlist(self, key: str, /) -> list[str]:
        """Give all of this name."""
        ...


_KEY: Final = r"[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}"
# Printable ASCII but comma and equals sign, not ending in a space.
_VALUE: Final = r"[ -+\--<>-~]{0,255}[!-+\--<>-~]"
_MEMBER: Final = re.compile(rf"({_KEY})=({_VALUE})", re.ASCII)


def read(found: object) -> str | None:
    """Read a tracestate; None if there is none, or it is broken."""
    if not isinstance(found, str) or len(found) > MOST_MEMBERS * 2 * LONGEST:
        return None
    members = [member for each in found.split(",") if (member := each.strip(" \t"))]
    keys = [match[1] for each in members if (match := _MEMBER.fullmatch(each))]
    if not 0 < len(members) <= MOST_MEMBERS or len(set(keys)) < len(members):
        return None
    return _within(members) or None


def _within(members: Sequence[str]) -> str:
    """Leave out whole members until the rest may be carried."""
    kept = list(members)
    while len(text := ",".join(kept)) > LONGEST:
        large = [place for place, each in enumerate(kept) if len(each) > _LARGE]
        del kept[large[-1] if large else -1]
    return text


def headers(traceparent: str | None, state: str | None) -> dict[str, str]:
    """Give the headers of a message, or of a request."""
    found = {"traceparent": traceparent, NAME: state}
    return {name: value for name, value in found.items() if value}


def of(request: Several) -> str | None:
    """Give what the headers of a request say: they may say it in several."""
    return ",".join(request.getlist(NAME)) or None


def within(message: Mapping[str, Any], traceparent: str | None) -> dict[str, Any]:
    """Give these headers as of another span: the state stays within its trace."""
    if traceparent is None:
        return dict(message)
    before = message.get("traceparent")
    same = isinstance(before, str) and before[3:35] == traceparent[3:35]
    kept = {name: value for name, value in message.items() if same or name != NAME}
    return {**kept, "traceparent": traceparent}


def beside(traceparent: str | None, found: object) -> str | None:
    """Read what came with this traceparent; without one it says nothing."""
    return None if traceparent is None else read(found)
