"""Claim: take due jobs for this worker, a batch in one statement.

Before: deliveries of wake-ups are held, unacknowledged; their jobs are `queued`.
After: each job that was still due is `running` with our lease, a new fence and an open attempt.
May happen twice: yes; the second claim finds another state or epoch and takes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from filaviva.database.fetch import fetch
from filaviva.database.lines import Connected
from filaviva_worker.wakeup import WakeUp

CONSUMER = "worker"
# A job whose worker died so often may be what kills them: such jobs run one at a time, so that a
# poisonous one takes no innocent suspect with it. One loss is no suspicion: machines do stop.
SUSPICIOUS = 2

# A claim is not flushed to disk: a crash of the server takes it back, as if it had not been, and
# whoever works under it finds its fence void. That needs fences that are never given twice, also
# after a crash or on a standby that lacks the last commits: so they come from the clock.
#
# The inbox comes first (everybody locks inbox, then jobs): counting `seen` inside `locked` makes
# the planner finish it before the first job is locked.
_CLAIM = """
WITH unflushed AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
wanted AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $10::text[], $11::int[])
    AS x(id, epoch, message_id, type, version)),
seen AS (
    INSERT INTO filaviva.inbox AS i (consumer, message_id)
    SELECT $4, message_id FROM wanted CROSS JOIN unflushed
    ON CONFLICT (consumer, message_id) DO UPDATE SET duplicates = i.duplicates + 1
    RETURNING i.message_id, i.duplicates),
locked AS MATERIALIZED (
    SELECT id, tenant, type, version, state, epoch, losses, not_before, deadline, parked_reason
    FROM filaviva.jobs
    WHERE id = ANY($1::uuid[]) AND (SELECT count(*) FROM seen) >= 0
    ORDER BY id FOR NO KEY UPDATE),
due AS MATERIALIZED (
    SELECT locked.id, locked.losses,
        (locked.tenant = ANY($12::text[]) OR '*' = ANY($12::text[])) AS limited
    FROM locked JOIN wanted USING (id, type, version)
    WHERE locked.state = 'queued' AND locked.epoch = wanted.epoch AND locked.parked_reason IS NULL
      AND (locked.not_before IS NULL OR locked.not_before <= clock_timestamp())
      AND (locked.deadline IS NULL OR locked.deadline > clock_timestamp())),
mine AS MATERIALIZED (
    SELECT id FROM due WHERE losses < $8 AND NOT limited
    UNION ALL (
        SELECT id FROM due WHERE losses >= $8 AND $9 AND NOT limited ORDER BY id LIMIT 1)),
claimed AS (
    UPDATE filaviva.jobs SET
        state = 'running', attempt = attempt + 1,
        fence = greatest(fence + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        lease_owner = $5, claim_id = $6,
        lease_expires_at = clock_timestamp() + make_interval(secs => $7),
        started_at = coalesce(started_at, clock_timestamp()), updated_at = clock_timestamp()
    FROM mine WHERE jobs.id = mine.id
    RETURNING {columns}),
opened AS (
    INSERT INTO filaviva.attempts (job_id, number, fence, worker)
    SELECT id, attempt, fence, $5 FROM claimed),
told AS (
    INSERT INTO filaviva.job_events (job_id, kind, data)
    SELECT id, 'state', jsonb_build_object('status', 'running', 'attempt', attempt) FROM claimed)
SELECT CASE
        WHEN claimed.id IS NOT NULL THEN 'claimed'
        WHEN locked.state = 'queued' AND locked.epoch = wanted.epoch
             AND locked.parked_reason IS NULL AND locked.not_before > clock_timestamp()
            THEN 'early'
        WHEN due.limited THEN 'limited'
        WHEN due.id IS NOT NULL THEN 'suspect'
        WHEN seen.duplicates > 0 THEN 'duplicate'
        ELSE 'stale'
    END, wanted.id, claimed.*
FROM wanted JOIN seen USING (message_id)
LEFT JOIN locked USING (id) LEFT JOIN due USING (id) LEFT JOIN claimed USING (id)
"""

_COLUMNS = """jobs.id, jobs.type, jobs.version, jobs.tenant, jobs.subject, jobs.correlation_id,
        jobs.traceparent, jobs.payload::text, jobs.revision, jobs.attempt, jobs.fence,
        jobs.priority, jobs.losses,
        extract(epoch FROM greatest(jobs.queued_at, jobs.not_before))::float8,
        extract(epoch FROM clock_timestamp() - greatest(jobs.queued_at, jobs.not_before))::float8,
        (jobs.not_before IS NOT NULL),
        extract(epoch FROM jobs.deadline - clock_timestamp())::float8,
        extract(epoch FROM clock_timestamp() - jobs.created_at)::float8, jobs.submitted_by,
        jobs.parent_id, (jobs.callback_url IS NOT NULL), jobs.cost_usd::float8, jobs.tracestate"""

_CLAIM_SQL = _CLAIM.format(columns=_COLUMNS)

_MINE_AGAIN = f"""
SELECT {_COLUMNS} FROM filaviva.jobs
WHERE id = ANY($1::uuid[]) AND claim_id = $2 AND lease_owner = $3 AND state = 'running'
"""


class Verdict(StrEnum):
    """What became of one wanted wake-up."""

    CLAIMED = "claimed"
    EARLY = "early"
    SUSPECT = "suspect"
    LIMITED = "limited"
    DUPLICATE = "duplicate"
    STALE = "stale"


@dataclass(slots=True)
class Claimed:
    """A job that is ours until the lease ends; the fence voids whatever comes after it."""

    id: UUID
    type: str
    version: int
    tenant: str
    subject: str | None
    correlation_id: str
    traceparent: str | None
    payload: str
    revision: int
    attempt: int
    fence: int
    priority: int
    losses: int
    due_at: float  # seconds since 1970, database clock
    waited: float  # seconds from due to claimed
    paused: bool
    seconds_left: float | None  # until the deadline
    age: float  # seconds since the submission
    submitted_by: str | None = None
    parent_id: UUID | None = None
    calls_back: bool = False  # once it has ended
    spent: float = 0.0  # USD, by earlier attempts
    tracestate: str | None = None


@dataclass(frozen=True, slots=True)
class Claims:
    """What one claim statement gave."""

    claimed: dict[UUID, Claimed]
    others: dict[UUID, Verdict]


async def claim(  # noqa: PLR0913 - the parameters of one statement
    connection: Connected,
    wanted: Sequence[WakeUp],
    *,
    worker: str,
    claim_id: UUID,
    lease_seconds: float,
    suspect_too: bool = True,
    apart: Sequence[str] = (),
) -> Claims:
    """Claim what is due among `wanted` (at most one wake-up per job), and at most one suspect.

    What is due of the tenants `apart` ("*": of all) is left alone: `Verdict.LIMITED`.
    """
    ordered = sorted(wanted, key=_by_message)
    arguments = (
        [wake.job_id for wake in ordered],
        [wake.epoch for wake in ordered],
        [wake.message_id for wake in ordered],
        CONSUMER,
        worker,
        claim_id,
        lease_seconds,
        SUSPICIOUS,
        suspect_too,
        [wake.type for wake in ordered],
        [wake.version for wake in ordered],
        list(apart),
    )
    rows = await fetch(connection, _CLAIM_SQL, arguments)
    taken: dict[UUID, Claimed] = {}
    others: dict[UUID, Verdict] = {}
    for row in rows:
        if row[0] == "claimed":
            taken[row[1]] = Claimed(*row[2:])
        else:
            others[row[1]] = Verdict(row[0])
    return Claims(taken, others)


async def claimed_before(
    connection: Connected, job_ids: Sequence[UUID], *, worker: str, claim_id: UUID
) -> dict[UUID, Claimed]:
    """After a lost answer: which of these jobs did the claim with this id take?"""
    rows = await fetch(connection, _MINE_AGAIN, (list(job_ids), claim_id, worker))
    return {row[0]: Claimed(*row) for row in rows}


def _by_message(wake: WakeUp) -> str:
    return wake.message_id
