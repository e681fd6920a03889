"""Ids of attempts' spans: computed, so that whoever knows the job finds and links them.

A link to the attempt before needs no column, and is right even when the worker that ran it died
without a word.
"""

import hashlib
import threading
from typing import NamedTuple
from uuid import UUID

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator


class Ids(NamedTuple):
    """The ids of one span."""

    trace: int
    span: int


def attempt(job_id: UUID, number: int) -> Ids:
    """Give the ids of the span of a job's attempt, which begins a trace of its own."""
    digest = hashlib.sha256(b"filaviva attempt %b %d" % (job_id.bytes, number)).digest()
    return Ids(int.from_bytes(digest[:16]), int.from_bytes(digest[16:24]))


class PlannedIds(RandomIdGenerator):
    """Random ids, except for the one span that `plan` was called for."""

    def __init__(self) -> None:
        self._planned = threading.local()

    def plan(self, ids: Ids | None) -> None:
        """Use these for the next span that this thread begins, or none."""
        self._planned.ids = ids

    def generate_trace_id(self) -> int:
        """Give the planned id, or a random one."""
        ids: Ids | None = getattr(self._planned, "ids", None)
        return super().generate_trace_id() if ids is None else ids.trace

    def generate_span_id(self) -> int:
        """Give the planned id, once, or a random one."""
        ids: Ids | None = getattr(self._planned, "ids", None)
        if ids is None:
            return super().generate_span_id()
        self._planned.ids = None
        return ids.span
