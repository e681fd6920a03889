"""Our own messages between the services: ids only, never documents or prompts."""

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel

from filaviva_contracts.contract import Contract


class WakeUp(Contract, type="filaviva.wakeup", version=1):
    """A job is due."""

    job_id: UUID
    epoch: int
    type: str
    version: int
    queue: str


class AttemptFailed(Contract, type="filaviva.attempt.failed", version=1):
    """An attempt failed; what happened stands in its row."""

    job_id: UUID
    fence: int


class JobDead(Contract, type="filaviva.job.dead", version=1):
    """A job needs a person."""

    job_id: UUID
    epoch: int
    reason: str


class _Ended(BaseModel):
    """What is told of every job that has ended."""

    job_id: UUID
    type: str
    version: int
    tenant: str
    parent_id: UUID | None = None
    attempt: int
    cost_usd: str
    finished_at: datetime


class JobSucceeded(Contract, _Ended, type="job.succeeded", version=1):
    """A job has succeeded: its result is to be had where the job is."""


class JobFailed(Contract, _Ended, type="job.failed", version=1):
    """A job has failed for good, unless a person sends it back."""

    error_class: str | None = None
    error_code: str | None = None


class JobCanceled(Contract, _Ended, type="job.canceled", version=1):
    """A job was canceled, and has provably stopped."""


LIFECYCLE: tuple[type[Contract], ...] = (JobSucceeded, JobFailed, JobCanceled)
WIRE: tuple[type[Contract], ...] = (WakeUp, AttemptFailed, JobDead, *LIFECYCLE)


def told(contract_type: str) -> tuple[int, ...]:
    """Give the versions in which we tell others of a job's end; none for any other type."""
    return tuple(one.contract_version for one in LIFECYCLE if one.contract_type == contract_type)
