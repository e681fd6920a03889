"""Named places where a test may stop the process: absent unless FILAVIVA_FAILPOINTS names them.

`FILAVIVA_FAILPOINTS="claimed=exit;relay.confirmed=exit@3;completed=raise;claim=freeze:2.5"`:
at the named place end the process as SIGKILL would, raise, or hold the whole process for some
seconds; `@n` means at the nth passage only (default: the first).
"""

import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

_VARIABLE = "FILAVIVA_FAILPOINTS"


class FailpointRaised(Exception):
    """A test asked for this failure."""


@dataclass(slots=True)
class _Failpoint:
    action: str
    seconds: float
    nth: int
    passed: int = 0


_FORM = re.compile(r"([a-z_.]+)=(exit|raise|freeze)(?::([0-9.]+))?(?:@([0-9]+))?")


def _parse(text: str) -> dict[str, _Failpoint]:
    points = {}
    for entry in filter(None, text.split(";")):
        found = _FORM.fullmatch(entry)
        if found is None:  # one that never fires would prove nothing
            raise ValueError(f"{_VARIABLE}: found {entry!r}, expected name=exit|raise|freeze:2@3")
        name, action, seconds, nth = found.groups()
        points[name] = _Failpoint(action, float(seconds or 0), int(nth or 1))
    return points


def armed(environment: Mapping[str, str]) -> dict[str, _Failpoint]:
    """Read which failpoints an environment names."""
    return _parse(environment.get(_VARIABLE, ""))


_points = armed(os.environ)


def passing(name: str) -> None:
    """Say that the journey passes this place."""
    if _points:
        _pass(name)


def _pass(name: str) -> None:
    point = _points.get(name)
    if point is None:
        return
    point.passed += 1
    if point.passed != point.nth:
        return
    if point.action == "exit":
        os.kill(os.getpid(), signal.SIGKILL)
    elif point.action == "raise":
        raise FailpointRaised(name)
    elif point.action == "freeze":
        time.sleep(point.seconds)
