"""The jobs that run in this process: what the heartbeat renews and what a stop reaches."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

# For how long, in seconds, a cancel is remembered that comes before its job has begun here.
_REMEMBERED = 60.0


class Ending(StrEnum):
    """Why a running job was told to stop."""

    CANCELED = "canceled"
    LOST = "lost"
    SHUTDOWN = "shutdown"


class Rung(StrEnum):
    """How hard a canceled job had to be asked, one after the other."""

    COOPERATIVE = "cooperative"
    TASK = "task"
    SIGTERM = "sigterm"
    SIGKILL = "sigkill"
    FENCED = "fenced"


@dataclass(slots=True)
class Live:
    """One job at work. `renew_until` is on the monotonic clock of this process.

    `on_cancel` stops the work rung by rung; without it a cancel ends the task at once.
    """

    job_id: UUID
    fence: int
    renew_until: float
    task: asyncio.Task[None] | None = None
    ending: Ending | None = None
    rung: Rung | None = None
    spent: float = 0.0  # USD, by this attempt
    on_end: list[Callable[[Ending], None]] = field(default_factory=list)
    on_cancel: Callable[["Live"], None] | None = None
    on_abandoned: Callable[["Live"], None] | None = None
    ended_at: float | None = None  # when it was told to stop
    abandoned: bool = False  # it goes on all the same, and counts no more

    def end(self, why: Ending) -> None:
        """Tell the work to stop; the first reason stays."""
        if self.ending is not None:
            return
        self.ending = why
        self.ended_at = time.monotonic()
        for tell in self.on_end:
            tell(why)
        if why is Ending.CANCELED and self.on_cancel is not None:
            self.on_cancel(self)
        else:
            self.interrupt()

    def void_since(self, lease_seconds: float) -> float | None:
        """Tell since when its lease is over for sure; None while it may be renewed.

        What is canceled is the ladder's business: it gives the lease up itself.
        """
        match self.ending:
            case Ending.LOST:
                return self.ended_at
            case None if math.isfinite(self.renew_until):
                return self.renew_until + lease_seconds
            case _:
                return None

    def abandon(self) -> None:
        """Say that it does not stop, and that nothing of it counts; nothing once it is over."""
        if self.task is not None and self.on_abandoned is not None and not self.abandoned:
            self.abandoned = True
            self.on_abandoned(self)

    def interrupt(self) -> None:
        """Cancel what the work awaits; nothing once the work is over."""
        if self.task is not None:
            self.task.cancel()


class LiveJobs:
    """All live jobs by id; read by the heartbeat's thread, written by the event loop."""

    def __init__(self) -> None:
        self._jobs: dict[UUID, Live] = {}
        self._canceled: dict[tuple[UUID, int], float] = {}

    def __contains__(self, job_id: UUID) -> bool:
        return job_id in self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def get(self, job_id: UUID) -> Live:
        """Give a live job; KeyError if it is not one."""
        return self._jobs[job_id]

    def of(self, job_ids: Iterable[UUID]) -> list[Live]:
        """Give those of these jobs that are live."""
        return [self._jobs[job_id] for job_id in job_ids if job_id in self._jobs]

    def add(self, live: Live) -> None:
        """Start to renew this job's lease; a cancel that was faster than its claim counts."""
        self._jobs[live.job_id] = live
        if self._canceled.pop((live.job_id, live.fence), None) is not None:
            live.end(Ending.CANCELED)

    def remove(self, job_id: UUID) -> None:
        """Stop to renew this job's lease."""
        self._jobs.pop(job_id, None)

    def all(self) -> list[Live]:
        """Give what is live now."""
        return list(self._jobs.values())

    def to_renew(self) -> list[tuple[UUID, int]]:
        """Give (job id, fence) of those whose lease should go on."""
        now = time.monotonic()
        # list() of a dict's values is one step for the interpreter: safe from another thread.
        return [(job.job_id, job.fence) for job in self.all() if job.renew_until > now]

    def end(self, job_id: UUID, fence: int, why: Ending) -> None:
        """Tell one job to stop, if it still is the one that was meant."""
        live = self._jobs.get(job_id)
        if live is not None and live.fence == fence:
            live.end(why)

    def cancel(self, job_id: UUID, fence: int) -> None:
        """Cancel one job, also one whose claim is committed but has not come back yet."""
        if job_id in self._jobs:
            self.end(job_id, fence, Ending.CANCELED)
            return
        now = time.monotonic()
        while self._canceled and (oldest := next(iter(self._canceled.items())))[1] < now:
            del self._canceled[oldest[0]]
        self._canceled[job_id, fence] = now + _REMEMBERED
