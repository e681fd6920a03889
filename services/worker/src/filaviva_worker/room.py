"""Room: which deliveries of running jobs are held, and how many more the broker may send.

RabbitMQ ends a consumer that holds a message too long. So the delivery of a long job is let go: its
lease alone carries it on, and its slot stays taken.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from filaviva.broker.consumer import Delivery


@dataclass(slots=True)
class Held:
    """The unacknowledged delivery of a running job."""

    delivery: Delivery
    since: float


class Room:
    """The deliveries of one lane's running jobs."""

    def __init__(self, slots: int, *, detach_after: float) -> None:
        self._slots = slots
        self._detach_after = detach_after
        self._held: dict[UUID, Held] = {}
        self._detached: set[UUID] = set()
        self._older: set[UUID] = set()  # here since before the present consumer

    def hold(self, job_id: UUID, delivery: Delivery) -> None:
        """Keep the delivery of a job that runs now."""
        self._held[job_id] = Held(delivery, time.monotonic())

    def let_go(self, job_id: UUID) -> Delivery | None:
        """Give the delivery of a job that has ended; None if it was detached before."""
        self._detached.discard(job_id)
        held = self._held.pop(job_id, None)
        return None if held is None else held.delivery

    def detach(self) -> Mapping[UUID, Delivery]:
        """Give the deliveries of jobs that have run for long; their slots stay taken."""
        limit = time.monotonic() - self._detach_after
        long = {job: held.delivery for job, held in self._held.items() if held.since < limit}
        for job_id in long:
            del self._held[job_id]
        self._detached |= long.keys()
        return long

    def begin_anew(self, here: Iterable[UUID]) -> None:
        """Expect a new consumer: the broker does not count what is here now in its prefetch.

        With nothing detached that is left to the lane's patience: a consumer that is begun anew
        for each slot that frees would never hold its full share again.
        """
        self._older = set(here) if self._detached else set()

    def left(self, here: Iterable[UUID]) -> int:
        """Say how many deliveries the present consumer may hold; `here`: all jobs of the lane."""
        self._older.intersection_update(here if self._detached else ())
        return max(0, self._slots - len(self._detached | self._older))
