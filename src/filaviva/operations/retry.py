"""Repeat what failed: a job, or the failed and canceled items of a batch, perhaps corrected.

Before: they are failed or canceled. After: they are queued afresh, through the one function that
sends jobs back; their batch goes on; who wanted it and why is in the audit log.
May happen twice: the second finds nothing that can be repeated and is refused (409).
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva import canonical, notify
from filaviva.database.fetch import fetch
from filaviva.errors import Flaw, Rejected
from filaviva.operations import audit, batches, jobs
from filaviva.operations.corrections import LONGEST, Validate
from filaviva.operations.erasure import without_data
from filaviva.operations.jobs import Job, Reach
from filaviva.operations.requeue import requeue
from filaviva.outbox import OutboxRow
from filaviva.turns import Gate

REPEATABLE: Final = frozenset(("failed", "canceled"))
_MANY = 50
_MOST_FLAWS = 100
_SAME: Final = object()

# In key order: an item is locked where it is sent back, after its batch.
_ITEMS = """
SELECT item_index, id, state FROM filaviva.jobs WHERE parent_id = $1::uuid ORDER BY item_index
"""


@dataclass(frozen=True, slots=True)
class Part:
    """An item that is to be repeated; without data as it was."""

    index: int
    data: Any = _SAME

    @property
    def corrected(self) -> bool:
        return self.data is not _SAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be repeated, by whom and why; `parts` None: everything that can be."""

    author: str
    reason: str = "retry"
    parts: Sequence[Part] | None = None
    data: Any = _SAME

    @property
    def corrected(self) -> bool:
        return self.data is not _SAME


@dataclass(frozen=True, slots=True)
class Retried:
    """What goes again; the messages are handed over after the commit."""

    job_id: UUID
    state: str
    jobs: Collection[UUID]
    refused: Sequence[int] = ()  # indexes of items that are neither failed nor canceled
    messages: Sequence[OutboxRow] = ()


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The items to send back, corrected texts for some of them, and those that cannot go."""

    ids: Sequence[UUID]
    payloads: Mapping[UUID, str] = field(default_factory=dict)
    refused: Sequence[int] = ()


async def retry(  # noqa: PLR0913 - what, whose, how
    connection: AsyncConnection,
    job_id: UUID,
    reach: Reach,
    wish: Wish,
    *,
    validate: Validate,
    gate: Gate | None = None,
) -> Retried:
    """Repeat what failed of a job within reach, or of a batch.

    NotFound if there is none, Rejected 422 for data that does not fit, 409 if nothing can go.
    """
    job = await jobs.get(connection, job_id, reach)
    _refuse_misfits(job, wish)
    check = _Check(job, validate)
    if job.is_batch:
        texts = await check.parts(wish.parts or ())
        await batches.hold(connection, [job_id])
        chosen = await _choose(connection, job, wish, texts)
    else:
        payloads = {job_id: await check.data(wish.data, "/data")} if wish.corrected else {}
        await batches.hold(connection, [job_id])
        chosen = _Chosen([job_id], payloads)
    retried = await _send_back(connection, job, wish, chosen, gate)
    await _record(connection, reach.tenant, wish, chosen, retried)
    return retried


def _refuse_misfits(job: Job, wish: Wish) -> None:
    if job.is_batch and wish.corrected:
        detail = "the job is a batch, expected items with their data"
        raise _invalid(Flaw("/data", detail))
    if not job.is_batch and wish.parts is not None:
        raise _invalid(Flaw("/items", "the job is no batch, expected data at most"))
    if job.is_batch and job.state == "cancel_requested":
        detail = f"batch {job.id} is being canceled: repeat it when that has ended"
        raise Rejected("conflict", detail, status=409)
    if not job.is_batch and job.state not in REPEATABLE:
        raise _nothing(f"job {job.id} is {job.state}")


async def _choose(
    connection: AsyncConnection, batch: Job, wish: Wish, texts: Mapping[int, str]
) -> _Chosen:
    items = {row[0]: (row[1], row[2]) for row in await fetch(connection, _ITEMS, (batch.id,))}
    able = {index for index, (_, state) in items.items() if state in REPEATABLE}
    if wish.parts is None:
        return _Chosen([items[index][0] for index in sorted(able)])
    flaws = [
        Flaw(f"/items/{place}/index", f"found {part.index}, the batch has {len(items)} items")
        for place, part in enumerate(wish.parts)
        if part.index not in items
    ]
    if flaws:
        raise _invalid(*flaws[:_MOST_FLAWS])
    wanted = [part.index for part in wish.parts]
    return _Chosen(
        [items[index][0] for index in wanted if index in able],
        {items[index][0]: text for index, text in texts.items()},
        [index for index in wanted if index not in able],
    )


async def _send_back(
    connection: AsyncConnection, job: Job, wish: Wish, chosen: _Chosen, gate: Gate | None
) -> Retried:
    done = await requeue(
        connection,
        chosen.ids,
        author=wish.author,
        reason=wish.reason,
        payloads=chosen.payloads,
        detail={"cause": "retry"},
        gate=gate,
    )
    if not done.epochs:
        what = "batch" if job.is_batch else "job"
        for why in (await without_data(connection, chosen.ids)).values():
            raise Rejected("conflict", f"{what} {job.id} cannot be repeated: {why}", status=409)
        raise _nothing(f"nothing of {what} {job.id} is failed or canceled")
    followed = await batches.follow(connection, {job.id, job.parent_id or job.id})
    changed = {job.id, *done.epochs, *followed.jobs}
    await notify.send(connection, notify.CHANNEL, map(str, sorted(changed)))
    return Retried(
        job.id,
        followed.states.get(job.id, "queued"),
        frozenset(done.epochs),
        chosen.refused,
        [*done.messages, *followed.messages],
    )


async def _record(
    connection: AsyncConnection, tenant: str, wish: Wish, chosen: _Chosen, retried: Retried
) -> None:
    await audit.record(
        connection,
        author=wish.author,
        action="job.retried",
        tenant=tenant,
        target=str(retried.job_id),
        detail={
            "reason": wish.reason,
            "jobs": [str(job_id) for job_id in sorted(retried.jobs)[:100]],
            "count": len(retried.jobs),
            "corrected": len(chosen.payloads),
        },
    )


@dataclass(frozen=True, slots=True)
class _Check:
    """What corrected data must be: what the job's contract says."""

    job: Job
    validate: Validate

    async def parts(self, parts: Sequence[Part]) -> dict[int, str]:
        """Give the corrected texts by index; refuse what does not fit, with pointers."""
        # Thousands of items take their time: nobody else's work must wait for them.
        if len(parts) > _MANY:
            return await asyncio.to_thread(self._parts, parts)
        return self._parts(parts)

    async def data(self, value: Any, pointer: str) -> str:
        """Give one corrected text."""
        return await asyncio.to_thread(self._data, value, pointer)

    def _data(self, value: Any, pointer: str) -> str:
        text = canonical.dumps(value)
        flaws = self._flaws(value, text, pointer)
        if flaws:
            raise self._unfit(flaws)
        return text

    def _parts(self, parts: Sequence[Part]) -> dict[int, str]:
        texts: dict[int, str] = {}
        flaws: list[Flaw] = []
        seen: set[int] = set()
        for place, part in enumerate(parts):
            if part.index in seen:
                raise _invalid(Flaw(f"/items/{place}/index", f"found {part.index} twice"))
            seen.add(part.index)
            if part.corrected:
                texts[part.index] = canonical.dumps(part.data)
                pointer = f"/items/{place}/data"
                flaws += self._flaws(part.data, texts[part.index], pointer)
        if flaws:
            raise self._unfit(flaws[:_MOST_FLAWS])
        return texts

    def _flaws(self, value: Any, text: str, pointer: str) -> list[Flaw]:
        size = len(text.encode())
        if size > LONGEST:
            return [Flaw(pointer, f"found {size} bytes of data, expected at most {LONGEST}")]
        flaws = self.validate(self.job.type, self.job.version, value)
        return [Flaw(f"{pointer}{flaw.pointer}", flaw.detail) for flaw in flaws]

    def _unfit(self, flaws: Sequence[Flaw]) -> Rejected:
        first = f"{flaws[0].pointer}: {flaws[0].detail}"
        detail = f"the corrected data does not fit {self.job.type} v{self.job.version}: {first}"
        return Rejected("invalid_data", detail, status=422, flaws=flaws)


def _invalid(*flaws: Flaw) -> Rejected:
    detail = f"{flaws[0].pointer}: {flaws[0].detail}"
    return Rejected("invalid_request", detail, status=422, flaws=flaws)


def _nothing(detail: str) -> Rejected:
    full = f"{detail}: only what failed or was canceled can be repeated"
    return Rejected("conflict", full, status=409)
