"""Cancel: no step starts any more, and the state says when the work has stopped.

Before: jobs are queued or at work, perhaps as the items of a batch.
After: as `operations.stop` says; their batches have followed, and the audit log tells who and why.
May happen twice: the second finds nothing to change.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.errors import Rejected
from filaviva.operations import audit, batches, jobs
from filaviva.operations.jobs import Reach
from filaviva.operations.stop import Cancellation, stop

FINAL = frozenset(("succeeded", "failed", "canceled"))


async def cancel(
    connection: AsyncConnection,
    job_ids: Collection[UUID],
    *,
    author: str,
    reason: str | None = None,
    tenant: str | None = None,
) -> Cancellation:
    """Cancel these jobs and their items; final ones stay as they are. Audited, one line a call."""
    await batches.hold(connection, job_ids)
    done = await stop(connection, job_ids, author=author, reason=reason)
    if any(job.changed for job in done.jobs):
        named = sorted(set(job_ids))
        await audit.record(
            connection,
            author=author,
            action="job.canceled",
            tenant=tenant,
            target=str(named[0]) if len(named) == 1 else None,
            detail={
                "jobs": [str(job_id) for job_id in named[:100]],
                "canceled": len(done.canceled),
                "requested": len(done.requested),
                "reason": reason,
            },
        )
    followed = await batches.follow(connection, {*done.parents, *job_ids})
    return replace(done, batches=followed.states, messages=followed.messages)


async def cancel_one(
    connection: AsyncConnection,
    job_id: UUID,
    reach: Reach,
    *,
    author: str,
    reason: str | None = None,
) -> Cancellation:
    """Cancel one job within reach (NotFound otherwise); Rejected (409 `job_final`) if it ended."""
    await jobs.get(connection, job_id, reach)
    done = await cancel(connection, [job_id], author=author, reason=reason, tenant=reach.tenant)
    found = next(job for job in done.jobs if job.id == job_id)
    if found.state in FINAL and not found.changed:
        detail = f"job {job_id} is {found.state} already: there is nothing to cancel"
        raise Rejected("job_final", detail, status=409)
    return done


def requests(payload: str) -> Iterator[tuple[UUID, int]]:
    """Read a notification of `CANCELS`: which jobs, under which fences, are to stop."""
    for word in payload.split(","):
        job_id, _, fence = word.partition(":")
        yield UUID(job_id), int(fence)
