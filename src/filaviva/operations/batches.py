"""Batches follow their items: the one place where a batch's row and events are written.

Before: somebody has committed a change of some items, or only thinks so.
After: the batch's state, progress and cost are what its items say, its events tell what is new;
waiting items have been let go where there is room, and the rest stopped where too many failed.
May happen twice: the second finds told what is, and writes nothing.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import lifecycle
from filaviva.database import as_dict
from filaviva.database.fetch import fetch
from filaviva.operations import batch_state
from filaviva.operations.batch_state import FINAL, Batch
from filaviva.operations.stop import Reached, stop
from filaviva.outbox import OutboxRow
from filaviva.waking import wake

# Everybody who locks a batch and its items takes the batch first: its id is the smaller one.
_LOCK = "SELECT id FROM filaviva.jobs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE"

# The batches that these jobs are or belong to, before anybody locks the items themselves.
_HOLD = """
SELECT id FROM filaviva.jobs WHERE id = ANY(ARRAY(
    SELECT job_id FROM filaviva.batches WHERE job_id = ANY($1::uuid[])
    UNION SELECT parent_id FROM filaviva.jobs WHERE id = ANY($1::uuid[]) AND parent_id IS NOT NULL))
ORDER BY id FOR NO KEY UPDATE
"""

# A statement of its own: in the locking one, two who end the last two items at once would each
# see the other's still running. A row per batch, so that each is one walk along its index.
_READ = """
SELECT jobs.id, jobs.state, jobs.cancel_requested_at IS NOT NULL AS canceling,
    jobs.cost_usd, batches.total, batches.accept_partial,
    batches.fail_fast, batches.max_failures, batches.concurrency, batches.forgiven,
    coalesce(nullif(batches.told, ''), repeat('q', batches.total)) AS told,
    items.letters, items.items_cost_usd
FROM filaviva.jobs JOIN filaviva.batches ON batches.job_id = jobs.id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(item.cost_usd), 0) AS items_cost_usd, string_agg(CASE item.state
        WHEN 'queued' THEN CASE WHEN item.parked_reason = 'concurrency' THEN 'w' ELSE 'q' END
        WHEN 'running' THEN 'r' WHEN 'cancel_requested' THEN 'x'
        WHEN 'succeeded' THEN 's' WHEN 'failed' THEN 'f' ELSE 'c' END,
        '' ORDER BY item.item_index) AS letters
    FROM filaviva.jobs AS item WHERE item.parent_id = jobs.id) AS items
WHERE jobs.id = ANY($1::uuid[]) ORDER BY jobs.id
"""

# What is to be stopped, by ids alone: the statement that stops looks at each again.
_TO_STOP = """
SELECT id FROM filaviva.jobs
WHERE parent_id = ANY($1::uuid[]) AND state = ANY('{queued,running}'::text[])
"""

_RELEASE = """
WITH batch AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::int[]) AS x(id, room)),
next AS MATERIALIZED (
    SELECT waiting.id FROM batch CROSS JOIN LATERAL (
        SELECT id FROM filaviva.jobs
        WHERE parent_id = batch.id AND state = 'queued' AND parked_reason = 'concurrency'
        ORDER BY item_index LIMIT batch.room) AS waiting),
locked AS MATERIALIZED (
    SELECT id, state, parked_reason FROM filaviva.jobs
    WHERE id IN (SELECT id FROM next) ORDER BY id FOR NO KEY UPDATE),
released AS (
    UPDATE filaviva.jobs AS jobs SET
        parked_reason = NULL, epoch = jobs.epoch + 1, issue = 1, reissued_at = NULL,
        queued_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM locked WHERE jobs.id = locked.id AND locked.state = 'queued'
        AND locked.parked_reason = 'concurrency'
    RETURNING jobs.id AS job_id, jobs.epoch, jobs.issue, jobs.type, jobs.version, jobs.queue,
        jobs.priority, jobs.correlation_id, jobs.traceparent, jobs.not_before)
SELECT * FROM released ORDER BY job_id
"""

_ITEM_EVENTS = """
INSERT INTO filaviva.job_events (job_id, kind, data)
SELECT x.batch, 'item',
    jsonb_build_object('index', x.index, 'jobId', item.id, 'status', x.status)
FROM unnest($1::uuid[], $2::int[], $3::text[]) WITH ORDINALITY AS x(batch, index, status, place)
JOIN filaviva.jobs AS item ON item.parent_id = x.batch AND item.item_index = x.index
ORDER BY place
"""

# Out of a final state there is no way but this one, and to `cancel_requested` none but this one.
# What ends again is told again, under another epoch.
_GO_ON = """
UPDATE filaviva.jobs SET state = 'running', finished_at = NULL, error = NULL,
    epoch = epoch + CASE state WHEN 'queued' THEN 0 ELSE 1 END,
    cancel_requested_at = CASE state WHEN 'queued' THEN cancel_requested_at END
WHERE id = ANY($1::uuid[])
"""

_WRITE = """
WITH followed AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::numeric[],
        $6::text[], $7::int[], $8::boolean[])
    AS x(id, state, told, progress, cost_usd, error, forgiven, ended)),
written AS (
    UPDATE filaviva.jobs AS jobs SET
        state = x.state, parked_reason = 'items', progress = x.progress::jsonb,
        cost_usd = x.cost_usd, error = x.error::jsonb,
        started_at = CASE WHEN x.state <> 'queued'
            THEN coalesce(jobs.started_at, clock_timestamp()) END,
        finished_at = CASE WHEN x.ended THEN coalesce(jobs.finished_at, clock_timestamp()) END,
        updated_at = clock_timestamp()
    FROM followed AS x WHERE jobs.id = x.id),
remembered AS (
    UPDATE filaviva.batches AS batches SET told = x.told, forgiven = x.forgiven,
        ended_at = CASE WHEN x.ended THEN clock_timestamp() END
    FROM followed AS x WHERE batches.job_id = x.id)
INSERT INTO filaviva.job_events (job_id, kind, data)
SELECT job_id, kind, data::jsonb
FROM unnest($9::uuid[], $10::text[], $11::text[]) WITH ORDINALITY AS e(job_id, kind, data, place)
ORDER BY place
"""


_AUTHOR = "batch"


@dataclass(frozen=True, slots=True)
class Followed:
    """What to do after the commit: messages to hand over, changes to announce.

    `states` are those of all batches that were looked at, `items` how many items they have.
    """

    messages: Sequence[OutboxRow] = ()
    jobs: frozenset[UUID] = field(default_factory=frozenset)
    states: Mapping[UUID, str] = field(default_factory=dict)
    items: int = 0
    canceled: Sequence[Reached] = ()  # items that had not begun


@dataclass(frozen=True, slots=True)
class _Acted:
    messages: Sequence[OutboxRow]
    released: frozenset[UUID]
    stopped: Sequence[Reached]

    @property
    def items(self) -> frozenset[UUID]:
        """The items that are no longer as they were read."""
        return self.released | {job.id for job in self.stopped}


async def follow(connection: AsyncConnection, batch_ids: Iterable[UUID]) -> Followed:
    """Bring these batches up to their items, under their locks."""
    wanted = sorted(set(batch_ids))
    if not wanted:
        return Followed()
    await fetch(connection, _LOCK, (wanted,))
    batches = await _read(connection, wanted)
    acted = await _act(connection, batches)
    if acted.items:
        batches = await _read(connection, wanted)
    changed = [batch for batch in batches if _is_news(batch)]
    await _write(connection, changed)
    states = {batch.id: batch_state.state_of(batch) for batch in batches}
    await lifecycle.tell(connection, [b.id for b in changed if _moves(b)])
    jobs = acted.items | {batch.id for batch in changed}
    canceled = [job for job in acted.stopped if job.state == "canceled"]
    looked_at = sum(batch.total for batch in batches)
    return Followed(acted.messages, jobs, states, looked_at, canceled)


# By primary key: nothing but the ids is known of these jobs.
_BATCHES_OF = """
SELECT DISTINCT parent_id FROM filaviva.jobs
WHERE id = ANY($1::uuid[]) AND parent_id IS NOT NULL
"""

_OPEN = """
SELECT job_id, total FROM filaviva.batches
WHERE ended_at IS NULL AND job_id > $1::uuid ORDER BY job_id LIMIT $2
"""


async def batches_of(connection: AsyncConnection, job_ids: Iterable[UUID]) -> set[UUID]:
    """Tell which batches these jobs are items of."""
    return {row[0] for row in await fetch(connection, _BATCHES_OF, (sorted(job_ids),))}


async def still_open(
    connection: AsyncConnection, *, after: UUID, limit: int
) -> list[tuple[UUID, int]]:
    """List batches that have not ended, in key order, with how many items each has."""
    return [(row[0], row[1]) for row in await fetch(connection, _OPEN, (after, limit))]


async def hold(connection: AsyncConnection, job_ids: Collection[UUID]) -> None:
    """Lock the batches that these jobs are or belong to: before their items, as everybody."""
    await fetch(connection, _HOLD, (sorted(job_ids),))


async def _read(connection: AsyncConnection, ids: Sequence[UUID]) -> list[Batch]:
    found = await connection.exec_driver_sql(_READ, (ids,))
    batches = [Batch(**as_dict(row)) for row in found]
    # Items that are not there any more tell nothing of those that are: such a batch stays.
    return [batch for batch in batches if batch.letters and len(batch.letters) == batch.total]


async def _act(connection: AsyncConnection, batches: Sequence[Batch]) -> _Acted:
    reasons = {batch.id: why for batch in batches if (why := batch.stops_because)}
    stopped = await _stop_items(connection, reasons)
    room = [(batch.id, batch.room) for batch in batches if batch.room]
    if not room:
        return _Acted((), frozenset(), stopped)
    found = await connection.exec_driver_sql(_RELEASE, _columns(room))
    free = [as_dict(row) for row in found]
    messages = await wake(connection, free)
    return _Acted(messages, frozenset(job["job_id"] for job in free), stopped)


async def _stop_items(connection: AsyncConnection, reasons: Mapping[UUID, str]) -> list[Reached]:
    stopped: list[Reached] = []
    for reason in sorted(set(reasons.values())):
        wanted = sorted(batch_id for batch_id, why in reasons.items() if why == reason)
        found = await fetch(connection, _TO_STOP, (wanted,))
        done = await stop(connection, [row[0] for row in found], author=_AUTHOR, reason=reason)
        stopped += [job for job in done.jobs if job.changed]
    return stopped


def _is_news(batch: Batch) -> bool:
    return (
        batch.letters != batch.told
        or batch.items_cost_usd != batch.cost_usd
        or batch_state.state_of(batch) != batch.state
    )


async def _write(connection: AsyncConnection, batches: Sequence[Batch]) -> None:
    if not batches:
        return
    told = [
        (batch.id, index, status)
        for batch in batches
        for index, status in batch_state.changes(batch.told, batch.letters)
    ]
    if told:
        await connection.exec_driver_sql(_ITEM_EVENTS, _columns(told))
    going_on = [batch.id for batch in batches if _goes_on(batch)]
    if going_on:
        await connection.exec_driver_sql(_GO_ON, (going_on,))
    events = [event for batch in batches for event in _events(batch)]
    rows = [_row(batch) for batch in batches]
    await connection.exec_driver_sql(_WRITE, (*_columns(rows), *_event_columns(events)))


def _goes_on(batch: Batch) -> bool:
    state = batch_state.state_of(batch)
    to_cancel = batch.state == "queued" and state == "cancel_requested"
    # Nothing changes in what has ended, unless it went on: perhaps to the same end.
    return to_cancel or (batch.state in FINAL and not batch.rests)


def _moves(batch: Batch) -> bool:
    return _goes_on(batch) or batch_state.state_of(batch) != batch.state


def _row(batch: Batch) -> tuple[Any, ...]:
    state = batch_state.state_of(batch)
    return (
        batch.id,
        state,
        batch.letters,
        batch_state.progress(batch.letters),
        batch.items_cost_usd,
        json.dumps(batch_state.error(batch)) if state == "failed" else None,
        batch.pardoned,
        state in FINAL,
    )


def _events(batch: Batch) -> Iterator[tuple[UUID, str, str]]:
    progress = batch_state.progress(batch.letters)
    if progress != batch_state.progress(batch.told):
        yield batch.id, "progress", progress
    if not _moves(batch):
        return
    state = batch_state.state_of(batch)
    if _goes_on(batch) and state != "running":
        yield batch.id, "state", json.dumps({"status": "running"})
    told: dict[str, Any] = {"status": state}
    if state == "failed":
        told["error"] = batch_state.error(batch)
    yield batch.id, "state", json.dumps(told)


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True)))


def _event_columns(events: Sequence[tuple[UUID, str, str]]) -> tuple[list[Any], ...]:
    return _columns(events) if events else ([], [], [])
