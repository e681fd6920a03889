"""Everything Filaviva raises that a caller can act on."""

from collections.abc import Sequence
from dataclasses import dataclass


class FilavivaError(Exception):
    """The root of our errors."""


class Retryable(FilavivaError):
    """Raised by a handler: the same job may succeed later. `retry_after` is in seconds."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Terminal(FilavivaError):
    """Raised by a handler: repeating this job cannot help."""


class Refused(Terminal):
    """Raised by a handler: the other side understood and declined (a policy, a safety rule)."""


class InvalidOutput(Terminal):
    """What the handler or a model returned does not fit its schema or cannot be stored."""


class InvalidInput(Terminal):
    """The job's data does not fit the handler's contract: the handler was not started."""

    def __init__(self, message: str, flaws: "Sequence[Flaw]" = ()) -> None:
        super().__init__(message)
        self.flaws = tuple(flaws)


class UpcastFailed(InvalidInput):
    """An upcaster could not make the job's data what the handler's version expects."""


class ResultTooLarge(InvalidOutput):
    """The result is over the limit: larger content is referenced, not returned."""


class LeaseLost(FilavivaError):
    """The job is no longer ours: nothing this attempt still writes will count."""


class OutOfReach(Retryable):
    """Our own database did not answer a handler: the attempt counts as lost, not as a failure."""


class CancelRequested(LeaseLost):
    """Somebody asked for the job to stop: no further step starts, and its outcome is `canceled`."""


class ConfigurationError(FilavivaError):
    """The process cannot start: the message says what was found, what is expected, what to do."""


class Unreachable(FilavivaError):
    """The broker or the database does not answer."""


class NotAdmitted(Unreachable):
    """The broker is there and refuses the login or the virtual host: waiting will not help."""


class NotPublished(FilavivaError):
    """The broker has not taken the message over; it is still ours."""

    def __init__(self, message: str, *, event_id: str | None = None) -> None:
        super().__init__(message)
        self.event_id = event_id


class Incompatible(FilavivaError):
    """Files of released contracts cannot be written so: nothing was."""


class NotFound(FilavivaError):
    """There is no such thing, or it belongs to another tenant."""


class Gone(NotFound):
    """It was there, and has been removed for good."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing wrong with an input: where (JSON pointer) and what."""

    pointer: str
    detail: str


class Rejected(FilavivaError):
    """A request that cannot be taken: nothing was stored. `code` and `status` are public."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int,
        flaws: Sequence[Flaw] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.status = status
        self.flaws = tuple(flaws)
        self.retry_after = retry_after
