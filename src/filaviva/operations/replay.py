"""Replays: sending dead letters back, as they are or corrected, with progress, reason and author.

Before: the letters are open. After `start`: they are under this replay and nobody else's, and the
dlq-handler sends them at the wanted pace.
May happen twice: a second replay of the same letters finds none that is open and is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import simplejson
from sqlalchemy import Text, cast, select
from sqlalchemy.ext.asyncio import AsyncConnection
from uuid_utils.compat import uuid7

from filaviva.database.tables import dead_letters, jobs
from filaviva.errors import Flaw, NotFound, Rejected
from filaviva.operations import audit
from filaviva.operations.corrections import Validate, corrected, readable, validator
from filaviva.operations.dead_letters import Filter
from filaviva.operations.erasure import without_data
from filaviva.operations.reach import EVERYTHING, Reach
from filaviva.operations.replay_report import report
from filaviva.registry import Registry
from filaviva_contracts.wire import told

MOST_LETTERS = 100_000
MOST_CORRECTED = 1_000

# Nothing that a person could mend by sending the same bytes again.
UNREADABLE = frozenset({"undecodable", "oversize", "id_reused", "forbidden"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What is wanted, by whom and why; `patch` is a JSON Patch on the job's data."""

    letters: Filter
    author: str
    reason: str
    patch: Sequence[Mapping[str, Any]] | None = None
    rate_per_second: float | None = None
    canary: int | None = None
    scope: Mapping[str, Any] = field(default_factory=dict)


async def start(
    connection: AsyncConnection,
    request: ReplayRequest,
    *,
    registry: Registry,
    reach: Reach = EVERYTHING,
) -> dict[str, Any]:
    """Put the open letters of the scope under a new replay; the answer names the refused ones.

    Raises NotFound when nothing is in scope, Rejected 409 when no letter of it is open, and
    Rejected 422 when the patch does not apply or its result does not fit the contract.
    """
    _check(request)
    replay_id = uuid7()
    taken, refused = await _take(connection, request, replay_id, registry, reach)
    if request.patch is not None:
        await _try_patch(connection, request.patch, taken, validator(registry))
    await _record(connection, request, replay_id, taken, reach)
    shown = await report(connection, replay_id, reach=reach)
    return {**shown, "refused": [str(letter) for letter in refused], "refusals": refused}


async def plan(
    connection: AsyncConnection,
    request: ReplayRequest,
    *,
    registry: Registry,
    reach: Reach = EVERYTHING,
) -> dict[str, Any]:
    """Say what `start` would do, with every check, and change nothing."""
    trial = await connection.begin_nested()
    try:
        return await start(connection, request, registry=registry, reach=reach)
    finally:
        await trial.rollback()


def _check(request: ReplayRequest) -> None:
    flaws = []
    if not request.reason.strip() or len(request.reason) > 1000:  # noqa: PLR2004 - said below
        flaws.append(Flaw("/reason", "expected 1 to 1000 characters that say why"))
    if request.rate_per_second is not None and not 0 < request.rate_per_second <= 10_000:  # noqa: PLR2004
        flaws.append(Flaw("/ratePerSecond", "expected more than 0 and at most 10000"))
    if request.canary is not None and request.canary < 1:
        flaws.append(Flaw("/canary", "expected at least 1"))
    if flaws:
        raise Rejected("invalid_data", flaws[0].detail, status=422, flaws=flaws)
    if request.patch is not None:
        readable(request.patch)


_TAKE = """
UPDATE filaviva.dead_letters SET status = 'replaying', replay_id = $2
WHERE id = ANY($1::uuid[])
"""


async def _take(
    connection: AsyncConnection,
    request: ReplayRequest,
    replay_id: UUID,
    registry: Registry,
    reach: Reach,
) -> tuple[list[Any], dict[str, str]]:
    """Lock the letters in key order and put the open ones under the replay."""
    found = await _locked(connection, request, reach)
    lost = await without_data(connection, {row.job_id for row in found if row.job_id})
    refused = {
        str(row.id): why
        for row in found
        if (why := _refusal(row, request, registry) or lost.get(row.job_id))
    }
    taken = [row for row in found if str(row.id) not in refused]
    if not taken:
        why = next(iter(refused.values()))
        detail = f"none of the {len(refused)} dead letters can be replayed: {why}"
        raise Rejected("conflict", detail, status=409)
    if request.patch is not None and len(taken) > MOST_CORRECTED:
        detail = f"found {len(taken)} letters to correct, expected at most {MOST_CORRECTED}"
        raise Rejected("scope_too_large", detail, status=422)
    await connection.exec_driver_sql(_TAKE, ([row.id for row in taken], replay_id))
    return taken, refused


async def _locked(
    connection: AsyncConnection, request: ReplayRequest, reach: Reach
) -> Sequence[Any]:
    letter = dead_letters.c
    query = (
        select(letter.id, letter.status, letter.reason, letter.job_id, letter.type, letter.version)
        .where(reach.letters(), *request.letters.conditions())
        .order_by(letter.id)
        .limit(MOST_LETTERS + 1)
        .with_for_update(key_share=True)
    )
    # A group or filter means its open letters; who names ids hears about each of them.
    named = request.letters.ids
    narrow = query if named is not None else query.where(letter.status == "open")
    found = (await connection.execute(narrow)).all()
    if not found and named is None:
        found = (await connection.execute(query.limit(MOST_CORRECTED))).all()
    if not found:
        raise NotFound("found no dead letter in this scope")
    missing = set(named or ()) - {row.id for row in found}
    if missing:
        raise NotFound(f"found no dead letter {min(map(str, missing))}")
    if len(found) > MOST_LETTERS:
        detail = f"found more than {MOST_LETTERS} letters: narrow the filter"
        raise Rejected("scope_too_large", detail, status=422)
    return found


def _refusal(letter: Any, request: ReplayRequest, registry: Registry) -> str | None:
    if letter.status != "open":
        return f"it is {letter.status} already"
    return None if letter.job_id is not None else _foreign_refusal(letter, request, registry)


def _foreign_refusal(letter: Any, request: ReplayRequest, registry: Registry) -> str | None:
    if letter.reason in UNREADABLE:
        verb = "corrected by a patch" if request.patch is not None else "sent again"
        return f"it is {letter.reason} and no job of ours: it cannot be {verb}, only discarded"
    if request.patch is not None:
        return "it is a foreign message and no job of ours: its publisher has to correct it"
    if letter.version is None or not (
        registry.find(letter.type, letter.version) or letter.version in told(letter.type)
    ):
        return f"no contract {letter.type} v{letter.version} is published yet"
    return None


async def _try_patch(
    connection: AsyncConnection,
    patch: Sequence[Mapping[str, Any]],
    taken: Sequence[Any],
    validate: Validate,
) -> None:
    ids = sorted({row.job_id for row in taken})
    columns = (jobs.c.id, cast(jobs.c.payload, Text).label("payload"), jobs.c.type, jobs.c.version)
    for job in await connection.execute(select(*columns).where(jobs.c.id.in_(ids))):
        corrected(job.payload, patch, type=job.type, version=job.version, validate=validate)


_INSERT = """
INSERT INTO filaviva.replays (id, tenant, author, reason, scope, patch, rate_per_second, canary)
VALUES ($1, $2, $3, $4, $5::text::jsonb, $6::text::jsonb, $7, $8)
"""
_INSERT_LETTERS = """
INSERT INTO filaviva.replay_letters
    (replay_id, dead_letter_id, job_id, cost_before, estimated_usd)
SELECT $1, letter.id, letter.job_id, coalesce(job.cost_usd, 0), coalesce(last.cost_usd, 0)
FROM filaviva.dead_letters AS letter
LEFT JOIN filaviva.jobs AS job ON job.id = letter.job_id
LEFT JOIN filaviva.attempts AS last ON last.job_id = job.id AND last.number = job.attempt
WHERE letter.id = ANY($2::uuid[]) ORDER BY letter.id
"""


async def _record(
    connection: AsyncConnection,
    request: ReplayRequest,
    replay_id: UUID,
    taken: Sequence[Any],
    reach: Reach,
) -> None:
    patch = None if request.patch is None else _json(request.patch)
    row = (replay_id, reach.tenant, request.author, request.reason, _json(request.scope), patch)
    pace = (request.rate_per_second, request.canary)
    await connection.exec_driver_sql(_INSERT, (*row, *pace))
    await connection.exec_driver_sql(_INSERT_LETTERS, (replay_id, [row.id for row in taken]))
    await audit.record(
        connection,
        author=request.author,
        action="replay.started",
        tenant=reach.tenant,
        target=str(replay_id),
        detail={"reason": request.reason, "letters": len(taken), "patch": request.patch},
    )


def _json(value: Any) -> str:
    return simplejson.dumps(value, use_decimal=True, default=str)


_STOP = """
UPDATE filaviva.replays SET state = 'stopped', finished_at = clock_timestamp(), error = $2
WHERE id = $1 AND state = 'running' RETURNING id
"""
# What is on its way to the broker is left to its sender: opened now, it could be sent twice.
_FREE = """
WITH freed AS (
    UPDATE filaviva.replay_letters SET state = 'stopped'
    WHERE replay_id = $1 AND state = 'waiting' AND held_until IS NULL RETURNING dead_letter_id),
locked AS MATERIALIZED (
    SELECT letter.id FROM filaviva.dead_letters AS letter
    WHERE letter.id IN (SELECT dead_letter_id FROM freed) AND letter.status = 'replaying'
    ORDER BY letter.id FOR NO KEY UPDATE)
UPDATE filaviva.dead_letters AS letter SET status = 'open', replay_id = NULL
FROM locked WHERE letter.id = locked.id
"""


async def stop(
    connection: AsyncConnection, replay_id: UUID, *, author: str, reach: Reach = EVERYTHING
) -> dict[str, Any]:
    """Send no further letter: those that wait are open again, those sent go on. 409 if ended."""
    found = await report(connection, replay_id, reach=reach)
    if not await halt(connection, replay_id):
        now = (await report(connection, replay_id, reach=reach))["status"]
        raise Rejected("conflict", f"replay {replay_id} is {now}, expected running", status=409)
    await audit.record(
        connection,
        author=author,
        action="replay.stopped",
        tenant=found["tenant"],
        target=str(replay_id),
    )
    return await report(connection, replay_id, reach=reach)


async def halt(connection: AsyncConnection, replay_id: UUID, why: str | None = None) -> bool:
    """Stop a running replay and free what it has not sent; False if it had ended already."""
    stopped = await connection.exec_driver_sql(_STOP, (replay_id, why))
    if stopped.first() is None:
        return False
    await connection.exec_driver_sql(_FREE, (replay_id,))
    return True
