"""What the API refuses, and how jobs end that did not succeed: an error per way to react."""

from collections.abc import Mapping
from typing import Any, Final

from filaviva.client.wire import JobStatus
from filaviva.errors import FilavivaError, Flaw, NotFound, Rejected


class Refusal(Rejected):
    """The API understood and declined; `code` is for programs, `flaws` say what is wrong where."""

    request_id: str | None = None


class Unauthenticated(Refusal):
    """The API key is unknown, revoked or expired."""


class Forbidden(Refusal):
    """The API key lacks a scope or a job type."""


class Missing(Refusal, NotFound):
    """There is no such job, there is none any more, or it is another tenant's."""


class Conflict(Refusal):
    """The job's state does not allow it."""


class InvalidRequest(Refusal):
    """What was sent does not fit: nothing was stored, and sending it again cannot help."""


class Overloaded(Refusal):
    """The API takes no more for now, and went on saying so for as long as we had patience."""


class JobFailed(FilavivaError):
    """The job has failed; `job` tells why."""

    def __init__(self, job: JobStatus) -> None:
        why = job.error and (job.error.message or job.error.code)
        super().__init__(f"job {job.id} {job.status}: {why or 'no error is told'}")
        self.job = job


class JobCanceled(FilavivaError):
    """Somebody canceled the job."""

    def __init__(self, job: JobStatus) -> None:
        super().__init__(f"job {job.id} was canceled")
        self.job = job


_BY_STATUS: Final[Mapping[int, type[Refusal]]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: Missing,
    409: Conflict,
    410: Missing,
    429: Overloaded,
    502: Overloaded,
    503: Overloaded,
    504: Overloaded,
}
_OURS: Final = range(400, 500)


def refusal(status: int, problem: Mapping[str, Any], retry_after: float | None) -> Refusal:
    """Make the error of a problem+json (RFC 9457); a body of another kind has no code."""
    kind = _BY_STATUS.get(status, InvalidRequest if status in _OURS else Refusal)
    flaws = [
        Flaw(str(flaw.get("pointer", "")), str(flaw.get("detail", "")))
        for flaw in problem.get("errors", ())
    ]
    error = kind(
        str(problem.get("code", f"http_{status}")),
        str(problem.get("detail") or problem.get("title") or f"the API answered {status}"),
        status=status,
        flaws=flaws,
        retry_after=retry_after,
    )
    error.request_id = problem.get("requestId")
    return error
