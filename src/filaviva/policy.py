"""What a handler's failures cost at most: how often, how far apart, how long."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Rules: TypeAlias = tuple[type[Exception], ...]
ASYNC_TIMEOUT = 600.0
_DAY = 86_400
_MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Bounds of a handler; pauses and the timeout are in seconds.

    `pause = min(base * 2**(n-1), cap) + uniform(0, jitter)`, never less than Retry-After.
    `retry_on` and `terminal_on` are exception classes; the most specific one decides.
    An async handler without a timeout gets 600 s. A sync handler with one runs in a process of its
    own, since a thread cannot be stopped; without one it runs in a thread, however long it takes.
    `retention` is for how many days a finished job is kept; None: as the settings say.
    `lifecycle`: other services are told on the exchange `filaviva.lifecycle` how its jobs end.
    """

    max_attempts: int = 5
    base: float = 2
    cap: float = 300
    jitter: float = 1
    timeout: float | None = None
    retry_on: Rules = ()
    terminal_on: Rules = ()
    retention: float | None = None
    lifecycle: bool = False

    def __post_init__(self) -> None:
        _whole("max_attempts", self.max_attempts, least=1, most=100)
        _seconds("base", self.base, most=_DAY)
        _seconds("cap", self.cap, most=30 * _DAY)
        _seconds("jitter", self.jitter, most=_DAY)
        if self.timeout is not None:
            _seconds("timeout", self.timeout, most=30 * _DAY)
        if self.retention is not None:
            _days("retention", self.retention)
        if self.timeout == 0:
            raise ValueError(f"timeout: found {self.timeout!r}, expected more than 0 seconds")
        if not isinstance(self.lifecycle, bool):
            raise TypeError(f"lifecycle: found {self.lifecycle!r}, expected True or False")
        if self.cap < self.base:
            raise ValueError(f"cap: found {self.cap!r}, expected at least base ({self.base!r})")
        for name in ("retry_on", "terminal_on"):
            object.__setattr__(self, name, _classes(name, getattr(self, name)))
        both = set(self.retry_on) & set(self.terminal_on)
        if both:
            found = ", ".join(sorted(rule.__name__ for rule in both))
            raise ValueError(f"terminal_on: found {found}, expected none that retry_on names too")

    def seconds(self, *, is_async: bool) -> float | None:
        """Give what one attempt may take; None if nothing bounds it."""
        if self.timeout is None and is_async:
            return ASYNC_TIMEOUT
        return self.timeout

    def stored(self) -> dict[str, Any]:
        """Give what the registry keeps for the services that never load the app."""
        return {
            "maxAttempts": self.max_attempts,
            "base": self.base,
            "cap": self.cap,
            "jitter": self.jitter,
            "timeout": self.timeout,
            "retentionDays": self.retention,
            "lifecycle": self.lifecycle,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """A policy as the registry keeps it: what the services that never load the app need."""

    max_attempts: int
    base: float
    cap: float
    jitter: float
    timeout: float | None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "StoredPolicy":
        """Read a row's policy; what it does not say is as in a Policy without arguments."""
        known = {**Policy().stored(), **stored}
        return cls(
            max_attempts=known["maxAttempts"],
            base=known["base"],
            cap=known["cap"],
            jitter=known["jitter"],
            timeout=known["timeout"],
        )


def _whole(name: str, found: object, *, least: int, most: int) -> None:
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(f"{name}: found {found!r}, expected a whole number")
    if not least <= found <= most:
        raise ValueError(f"{name}: found {found!r}, expected {least} to {most}")


def _seconds(name: str, found: object, *, most: float) -> None:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"{name}: found {found!r}, expected a number of seconds")
    if not math.isfinite(found) or not 0 <= found <= most:
        raise ValueError(f"{name}: found {found!r}, expected 0 to {most} seconds")


def _days(name: str, found: object) -> None:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"{name}: found {found!r}, expected a number of days")
    if not math.isfinite(found) or not 0 < found <= _MOST_DAYS:
        raise ValueError(f"{name}: found {found!r}, expected more than 0 to {_MOST_DAYS} days")


def _classes(name: str, found: object) -> Rules:
    rules = tuple(found) if isinstance(found, tuple | list | set | frozenset) else (found,)
    for rule in rules:
        if not (isinstance(rule, type) and issubclass(rule, Exception)):
            raise TypeError(f"{name}: found {rule!r}, expected exception classes")
    return rules
