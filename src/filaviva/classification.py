"""Say what kind of failure an exception is: may it be repeated, must a person look at it.

The most specific rule decides: the exception's class and its ancestors are tried in order against
the handler's `retry_on` and `terminal_on` and the classes that handlers raise on purpose. Only what
none of them names is recognised by kind: timeouts, lost connections, HTTP statuses, pydantic's
errors. What nobody knows is `unexpected`, and repeated.
"""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from pydantic import ValidationError

from filaviva.canonical import storable
from filaviva.errors import (
    InvalidInput,
    InvalidOutput,
    LeaseLost,
    OutOfReach,
    Refused,
    Retryable,
    Terminal,
)
from filaviva.flaws import flaws_of, sentence
from filaviva.foreign import RETRIED, Recognised, ask, recognise
from filaviva.outcome import Canceled, Dead, ErrorClass, Failure, Retry
from filaviva.policy import Policy
from filaviva.retry_after import retry_after, seconds
from filaviva.traces import frames

Verdict: TypeAlias = Literal["retry", "dead"]

_ON_PURPOSE: dict[type[BaseException], tuple[Verdict, ErrorClass]] = {
    LeaseLost: ("retry", "lost"),
    OutOfReach: ("retry", "lost"),
    InvalidInput: ("dead", "invalid_input"),
    InvalidOutput: ("dead", "invalid_output"),
    Refused: ("dead", "refused"),
    Terminal: ("dead", "terminal"),
}


@dataclass(frozen=True, slots=True)
class _Ruling:
    verdict: Verdict
    error_class: ErrorClass
    recognised: Recognised | None


def classify(
    error: BaseException,
    policy: Policy,
    *,
    step: str | None = None,
    canceled: bool = False,
    now: datetime | None = None,
) -> Retry | Dead | Canceled:
    """Decide what a raised error makes of the job; `canceled`: somebody had asked it to stop."""
    if canceled and isinstance(error, asyncio.CancelledError):
        return Canceled()
    moment = now or datetime.now(UTC)
    outcomes = [_classify_one(leaf, policy, step, moment) for leaf in _leaves(error)]
    return max(outcomes, key=_weight)


def _weight(outcome: Retry | Dead) -> float:
    """Of several at once: what no repetition can mend, else who asks for the longest pause."""
    return math.inf if isinstance(outcome, Dead) else outcome.retry_after or 0.0


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _classify_one(
    error: BaseException, policy: Policy, step: str | None, now: datetime
) -> Retry | Dead:
    ruling = _ruling(error, policy)
    failure = Failure(
        error_class=ruling.error_class,
        code=storable(type(error).__name__, 200),
        message=message(error),
        frames=frames(error),
        step=step,
    )
    if ruling.verdict == "dead":
        return Dead(failure)
    return Retry(failure, _asked_pause(error, ruling.recognised, now))


def _ruling(error: BaseException, policy: Policy) -> _Ruling:
    recognised = _recognised(error)
    known = None if recognised is None else recognised.error_class
    for ancestor in type(error).__mro__:
        rule = _rule(ancestor, policy, known)
        if rule is not None:
            return _Ruling(*rule, recognised)
    repeated = known is None or known in RETRIED
    return _Ruling("retry" if repeated else "dead", known or "unexpected", recognised)


def _rule(
    ancestor: type[BaseException], policy: Policy, known: ErrorClass | None
) -> tuple[Verdict, ErrorClass] | None:
    if ancestor in policy.retry_on:
        # What is repeated is not terminal, in the metrics neither.
        return "retry", "upstream" if known is None or known == "terminal" else known
    if ancestor in policy.terminal_on:
        return "dead", known or "terminal"
    if ancestor is Retryable:
        return "retry", known or "upstream"
    return _ON_PURPOSE.get(ancestor)


def _recognised(error: BaseException) -> Recognised | None:
    if isinstance(error, ValidationError):
        return Recognised("invalid_output")
    found = recognise(error)
    if found is None and isinstance(error, Retryable) and error.__cause__ is not None:
        return recognise(error.__cause__)  # raise Retryable(…) from a time-out
    return found


def _asked_pause(
    error: BaseException, recognised: Recognised | None, now: datetime
) -> float | None:
    own = seconds(ask(lambda: getattr(error, "retry_after", None), None))
    if own is not None:
        return own
    return retry_after(recognised.headers, now=now) if recognised else None


def message(error: BaseException) -> str:
    """Say what an exception says, fit to be stored; pydantic's inputs stay out."""
    if isinstance(error, ValidationError):
        return storable(sentence(error.title, flaws_of(error)))
    text = ask(lambda: str(error), "") or type(error).__name__
    return storable(text)
