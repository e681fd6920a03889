"""Tell of decisions in the trace of the attempt that each follows, while somebody traces."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from filaviva import tracing
from filaviva.broker.topology import Topology
from filaviva.outbox import OutboxRow
from filaviva_retry_scheduler.decide import Decided

_TOPOLOGY: Final = Topology()


def follow(decided: Decided, hops: Mapping[UUID, str]) -> Sequence[OutboxRow]:
    """Give the rows, each belonging to its decision; `hops`: in which span each was asked for."""
    if tracing.spans is None or not decided.decisions:
        return decided.rows
    within: dict[UUID | None, str] = {
        each.attempt.job_id: tracing.spans.decided(
            each,
            hop=hops.get(each.attempt.job_id),
            queue=_TOPOLOGY.retry_requests,
            exchange=_TOPOLOGY.retry,
        )
        for each in decided.decisions
    }
    return [replace(row, hop=within.get(row.job_id)) for row in decided.rows]
