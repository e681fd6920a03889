"""Our own messages between the services: ids only, never documents or prompts."""

from uuid import UUID

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


WIRE: tuple[type[Contract], ...] = (WakeUp, AttemptFailed, JobDead)
