"""Lifecycle: tell other services that a job has ended, where its handler's policy wants it told.

Before: the caller's transaction has brought jobs to a final state.
After: an event for each that is to be told leaves with the same commit; nobody listening is no
fault.
May happen twice: no, since a job ends once; a subscriber may be given it again, under the same id.
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from filaviva.broker.topology import Topology
from filaviva.database.fetch import fetch
from filaviva.database.lines import Connected

# Not locked for us: a sweep takes them, so that no caller has rows to hand over; who knows that
# there are some hurries the relay of its process. Without a job's id: who looks for a job's
# messages on their way means those that make it go on.
_TELL: Final = """
INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data, attributes,
    correlation_id, traceparent, mandatory, locked_until)
SELECT $2, 'job.' || job.state || '.v1',
    job.id || ':' || job.state || ':' || (extract(epoch FROM job.finished_at) * 1000000)::bigint,
    'job.' || job.state || '.v1',
    jsonb_build_object('jobId', job.id, 'type', job.type, 'version', job.version,
        'tenant', job.tenant, 'parentId', job.parent_id, 'attempt', job.attempt,
        'costUsd', job.cost_usd::text, 'finishedAt', job.finished_at)
    || CASE job.state WHEN 'failed' THEN jsonb_build_object(
        'errorClass', job.error->>'class', 'errorCode', job.error->>'code') ELSE '{}' END,
    jsonb_strip_nulls(jsonb_build_object('subject', job.id, 'tracestate', job.tracestate)),
    job.correlation_id, job.traceparent, false,
    clock_timestamp()
FROM filaviva.jobs AS job
JOIN filaviva.contracts AS contract ON contract.type = job.type AND contract.version = job.version
WHERE job.id = ANY($1::uuid[]) AND job.state IN ('succeeded', 'failed', 'canceled')
    AND (contract.policy->>'lifecycle')::boolean
ORDER BY job.id
"""


async def tell(connection: Connected, job_ids: Iterable[UUID]) -> None:
    """Tell of these jobs, which this transaction has ended, those whose policy says so."""
    ended = sorted(set(job_ids))
    if ended:
        await fetch(connection, _TELL, (ended, Topology().lifecycle))
