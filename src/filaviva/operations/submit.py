"""Submit: keep a job for good, once per idempotency key, many callers in one commit.

Before: checked submissions wait, each with a caller. After: job, first event and wake-up are one
commit, and the wake-up is on its way to the relay; or the caller knows why not.
May happen twice: yes; the second one finds the first by (tenant, key) and gets the same job.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, cast
from uuid import UUID

import structlog
import uuid_utils
from asyncpg import PostgresError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import failpoints
from filaviva.database.fetch import fetch
from filaviva.database.lines import Connected, Lines
from filaviva.database.transaction import code, said, transact, unreachable
from filaviva.errors import FilavivaError, Rejected, Unreachable
from filaviva.operations import batch_birth
from filaviva.operations.birth import Stored, at_once, store_all
from filaviva.operations.quotas import Quotas
from filaviva.operations.submission import Submission
from filaviva.outbox import OutboxRow
from filaviva.turns import Gate

log = structlog.get_logger("filaviva")


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job that keeps a submission; `duplicate`: it had been kept before."""

    job_id: UUID
    status: str
    duplicate: bool


Key: TypeAlias = tuple[str, str]

# LATERAL with LIMIT keeps it one look-up in the unique index per key, whatever the statistics say.
_KEPT = """
SELECT kept.* FROM unnest($1::text[], $2::text[]) AS wanted(tenant, key)
CROSS JOIN LATERAL (
    SELECT tenant, idempotency_key, id, state, fingerprint FROM filaviva.jobs
    WHERE jobs.tenant = wanted.tenant AND jobs.idempotency_key = wanted.key LIMIT 1) AS kept
"""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A job that is in the database under a key."""

    id: UUID
    state: str
    fingerprint: bytes


@dataclass(slots=True)
class _Entry:
    """One caller who waits, and the id that its job gets if it is the first."""

    submission: Submission
    answer: asyncio.Future[Submitted]
    job_id: UUID = field(default_factory=lambda: UUID(bytes=uuid_utils.uuid7().bytes))

    @property
    def key(self) -> Key:
        return self.submission.tenant, self.submission.idempotency_key

    def settle(self, answer: Submitted | FilavivaError) -> None:
        if self.answer.done():  # its caller went away
            return
        if isinstance(answer, Submitted):
            self.answer.set_result(answer)
        else:
            self.answer.set_exception(answer)


Kepts: TypeAlias = Mapping[Key, _Kept | FilavivaError]


@dataclass(frozen=True, slots=True)
class Limits:
    """How many go into one commit, how many may wait, how long the database may be away."""

    batch: int = 500
    lanes: int = 2
    waiting: int = 10_000
    patience_seconds: float = 8
    large: int = 8  # batches with items, each in a commit of its own
    large_at_once: int = 2


class Submitter:
    """Commit submissions together: at once when idle, whatever has gathered when busy."""

    def __init__(
        self,
        engine: AsyncEngine,
        hand_over: Callable[[Sequence[OutboxRow]], None],
        *,
        limits: Limits | None = None,
        quotas: Quotas | None = None,
        turns: Gate | None = None,
    ) -> None:
        self._engine = engine
        self._lines = Lines(engine)
        self._hand_over = hand_over
        self._limits = limits or Limits()
        self._quotas = quotas
        self._turns = turns
        self._waiting: list[_Entry] = []
        self._lanes: set[asyncio.Task[None]] = set()
        self._large: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(self._limits.large_at_once)

    async def submit(self, submission: Submission) -> Submitted:
        """Return once the job is committed; `Rejected` or `Unreachable` say why it is not."""
        large = submission.batch is not None
        full = len(self._large) >= self._limits.large if large else self._crowded
        if full:
            detail = "too many submissions wait for the database"
            raise Rejected("overloaded", detail, status=503, retry_after=1)
        entry = _Entry(submission, asyncio.get_running_loop().create_future())
        if large:
            self._keep_apart(entry)
        else:
            self._waiting.append(entry)
            if self._free():
                self._lanes.add(asyncio.create_task(self._flush(), name="submit"))
        return await entry.answer

    @property
    def _crowded(self) -> bool:
        return len(self._waiting) >= self._limits.waiting

    def _keep_apart(self, entry: _Entry) -> None:
        """A batch of thousands takes its time: nobody else's submission waits for it."""

        async def settle() -> None:
            async with self._room:
                await self._settle([entry])

        task = asyncio.create_task(settle(), name="submit batch")
        self._large.add(task)
        task.add_done_callback(self._large.discard)

    async def find(self, tenant: str, key: str, fingerprint: bytes) -> Submitted | None:
        """Find the job that an earlier submission with this key and content became."""
        async with self._engine.connect() as connection:
            kept = (await _kept(connection, [(tenant, key)])).get((tenant, key))
        if kept is None or kept.fingerprint != fingerprint:
            return None
        return Submitted(kept.id, kept.state, duplicate=True)

    def _free(self) -> bool:
        # A second lane only for a full batch: the database works on one while we write the next,
        # and fewer submissions than that still share their commits.
        full = len(self._waiting) >= self._limits.batch
        return not self._lanes or (full and len(self._lanes) < self._limits.lanes)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._limits.batch]
                del self._waiting[: self._limits.batch]
                await self._settle(batch)
        finally:
            # Here and not in a callback: who comes in between must not wait for a lane that ended.
            self._lanes.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _settle(self, batch: list[_Entry]) -> None:
        by_key: dict[Key, list[_Entry]] = {}
        for entry in batch:
            by_key.setdefault(entry.key, []).append(entry)
        # In key order, as every process does it: two batches that share keys wait, they never
        # deadlock.
        firsts = [by_key[key][0] for key in sorted(by_key)]
        answers = await self._patiently(firsts)
        for key, entries in by_key.items():
            for entry in entries:
                entry.settle(_answer(entry, answers[key]))

    async def _patiently(self, entries: Sequence[_Entry]) -> Kepts:
        away = "the database does not answer; submit again with the same Idempotency-Key"
        try:
            async with asyncio.timeout(self._limits.patience_seconds):
                return await self._until_answered(entries)
        except TimeoutError:
            return {entry.key: Unreachable(away) for entry in entries}
        except Exception:  # one bad batch must not end the loop of the batches
            log.exception("a batch of submissions failed")
            return {entry.key: FilavivaError("the submission failed") for entry in entries}

    async def _until_answered(self, entries: Sequence[_Entry]) -> Kepts:
        pause = 0.05
        while True:
            try:
                return await self._commit(entries)
            except Exception as error:
                # An unknown COMMIT is read back by doing it again: with the same ids and keys the
                # rows are either there and ours, or are made now.
                if not unreachable(error):
                    raise
                log.warning("the database does not answer", why=said(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)

    async def _commit(self, entries: Sequence[_Entry]) -> Kepts:
        try:
            return await self._together(entries)
        except (DBAPIError, PostgresError) as refused:
            if unreachable(refused):
                raise
            if len(entries) == 1:
                return {entries[0].key: _refusal(refused)}
        # Something in one row: halved until it is alone, so that only that one fails and the others
        # pay a few commits more, not one each.
        middle = len(entries) // 2
        return {**await self._commit(entries[:middle]), **await self._commit(entries[middle:])}

    async def _together(self, entries: Sequence[_Entry]) -> Kepts:
        limited = self._quotas is not None and self._quotas.limits.on_submissions
        if limited or entries[0].submission.batch is not None:
            stored, kept = await transact(self._engine, lambda c: self._checked(c, entries))
        else:
            # What is one statement needs no BEGIN and no COMMIT: a lone job saves two round trips.
            stored, kept = await transact(self._lines.single, lambda c: self._plain(c, entries))
        failpoints.passing("submit.committed")
        self._hand_over(stored.rows)
        return _kepts(entries, stored.created, kept)

    async def _plain(
        self, connection: Connected, entries: Sequence[_Entry]
    ) -> tuple[Stored, Kepts]:
        failpoints.passing("submit.before_commit")
        new = [(entry.job_id, entry.submission) for entry in entries]
        stored = await store_all(connection, new, self._turns)
        return stored, await _known(connection, entries, stored)

    async def _checked(
        self, connection: AsyncConnection, entries: Sequence[_Entry]
    ) -> tuple[Stored, Kepts]:
        refused = await self._refused(connection, entries)
        admitted = [entry for entry in entries if entry.key not in refused]
        stored = await self._store(connection, admitted) if admitted else Stored()
        kept = await _known(connection, admitted, stored)
        failpoints.passing("submit.before_commit")
        return stored, {**kept, **refused}

    async def _store(self, connection: AsyncConnection, entries: Sequence[_Entry]) -> Stored:
        job_id, job, batch = entries[0].job_id, entries[0].submission, entries[0].submission.batch
        if batch is None:
            new = [(entry.job_id, entry.submission) for entry in entries]
            return await store_all(connection, new, self._turns)
        # Always alone.
        now = partial(at_once, self._turns, job)
        rows = await batch_birth.store(connection, job_id, job, batch, at_once=now)
        return Stored() if rows is None else Stored(frozenset((job_id,)), rows)

    async def _refused(
        self, connection: AsyncConnection, entries: Sequence[_Entry]
    ) -> Mapping[Key, Rejected]:
        if self._quotas is None:
            return {}
        return await self._quotas.refusals(connection, [entry.submission for entry in entries])


def _kepts(
    entries: Sequence[_Entry],
    created: Collection[UUID | None],
    kept: Mapping[Key, _Kept | FilavivaError],
) -> Kepts:
    kepts: dict[Key, _Kept | FilavivaError] = {}
    for entry in entries:
        if entry.job_id in created:
            kepts[entry.key] = _Kept(entry.job_id, "queued", entry.submission.fingerprint)
        else:
            # Gone between two statements: whoever removed it made the key free again.
            gone = Rejected("unavailable", "try again", status=503, retry_after=1)
            kepts[entry.key] = kept.get(entry.key, gone)
    return kepts


def _answer(entry: _Entry, kept: _Kept | FilavivaError) -> Submitted | FilavivaError:
    if isinstance(kept, FilavivaError):
        return kept
    if kept.fingerprint != entry.submission.fingerprint:
        detail = "this Idempotency-Key belongs to a job with other content: use a new key"
        return Rejected("idempotency_key_reused", detail, status=422)
    return Submitted(kept.id, kept.state, duplicate=kept.id != entry.job_id)


def _refusal(refused: BaseException) -> Rejected:
    state = code(refused) or ""
    if state.startswith("22"):
        # Valid JSON of a valid shape that PostgreSQL cannot hold: a number beyond all bounds.
        detail = "data holds a value that cannot be stored (a number out of range)"
        return Rejected("invalid_data", detail, status=422)
    log.error("a submission was refused by the database", sqlstate=state)
    detail = "the database is busy with this key or refuses the row; try again"
    return Rejected("unavailable", detail, status=503, retry_after=1)


async def _known(
    connection: Connected, entries: Sequence[_Entry], stored: Stored
) -> dict[Key, _Kept]:
    """Read those that are not new."""
    keys = [entry.key for entry in entries if entry.job_id not in stored.created]
    return await _kept(connection, keys) if keys else {}


async def _kept(connection: Connected, keys: Sequence[Key]) -> dict[Key, _Kept]:
    tenants = [tenant for tenant, _ in keys]
    found = await fetch(connection, _KEPT, (tenants, [key for _, key in keys]))
    return {(tenant, key): _Kept(*kept) for tenant, key, *kept in found}
