"""How long a job waits before its next attempt."""

import math
import random
from collections.abc import Callable

# Longer than any useful pause, short enough that a date can still hold its end.
LONGEST = 10 * 365 * 86_400.0

Uniform = Callable[[float, float], float]


def pause(  # noqa: PLR0913 - the terms of one formula
    n: int,
    *,
    base: float,
    cap: float,
    jitter: float,
    retry_after: float | None = None,
    uniform: Uniform = random.uniform,
) -> float:
    """Give the seconds to wait after the nth failure: min(base·2^(n-1), cap) + uniform(0, jitter).

    Never less than what the other side asked for.
    """
    drawn = _doubled(base, n, cap) + uniform(0.0, jitter)
    return min(max(drawn, _asked(retry_after)), LONGEST)


def _doubled(base: float, n: int, cap: float) -> float:
    try:
        return min(math.ldexp(base, max(n, 1) - 1), cap)
    except OverflowError:
        return cap


def _asked(retry_after: float | None) -> float:
    if retry_after is None or math.isnan(retry_after):
        return 0.0
    return max(retry_after, 0.0)
