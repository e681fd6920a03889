"""The job that tells of another one's end."""

from datetime import datetime
from typing import Final, Literal
from uuid import UUID

from filaviva.policy import Policy
from filaviva_contracts import Contract

QUEUE: Final = "callbacks"
# 10 s, 20 s, … to ten hours: some two days altogether.
POLICY: Final = Policy(max_attempts=16, base=10, cap=36_000, jitter=10, timeout=60, retention=30)


class CallBack(Contract, type="filaviva.callback", version=1):
    """A job has ended; its URL stays in its own row, where it can be erased."""

    job_id: UUID
    type: str
    version: int
    status: Literal["succeeded", "failed", "canceled"]
    finished_at: datetime
    attempts: int
    cost_usd: str
    error_class: str | None = None
    error_code: str | None = None
