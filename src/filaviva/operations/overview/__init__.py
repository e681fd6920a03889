"""Look at all the work at once: what waits, what runs, how fast, and what is oldest.

Before: nothing. After: one `Overview`, all of the same moment. May happen twice: it only reads, and
so often that each look must be cheap: it reads the ends of indexes, and never more than some
thousand rows, however many there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.operations.overview import counted, pace, resting, waiting, working
from filaviva.operations.overview.counted import Counted
from filaviva.operations.overview.figures import (
    NONE,
    Chosen,
    Count,
    Letters,
    Overview,
    Queue,
    Worker,
)
from filaviva.operations.overview.waiting import Waiting
from filaviva.operations.overview.working import Working

# A worker beats every five seconds.
SILENT: Final = 30.0
# Sorts and bitmaps read all there is before the first row: here the order is always that of an
# index, whatever the statistics of a table say that was empty a minute ago.
_PLAINLY: Final = (
    "SET TRANSACTION READ ONLY",
    "SET LOCAL statement_timeout = 3000",
    "SET LOCAL enable_seqscan = off",
    "SET LOCAL enable_bitmapscan = off",
    "SET LOCAL enable_sort = off",
)
_NOW: Final = "SELECT extract(epoch FROM now())::float8"


async def look(connection: AsyncConnection, chosen: Chosen) -> Overview:
    """Look once, in the caller's transaction, which must be new."""
    for setting in _PLAINLY:
        await connection.exec_driver_sql(setting)
    ((at,),) = await fetch(connection, _NOW)
    known = await working.contracts(connection)
    workers = [each for each in await working.workers(connection) if _serves(each, chosen)]
    works = await working.look(connection, chosen, known.limits)
    letters = await resting.letters(connection, chosen)
    names = {*await waiting.queues(connection), *works.counts}
    names |= {queue for worker in workers for queue in worker.queues}
    if chosen.types:
        names &= {*works.counts, *(known.queues.get(kind, "") for kind in chosen.types)}
    shown = sorted(filter(chosen.queue, names))
    waits = await waiting.look(connection, shown, chosen)
    count = await counted.last(connection)
    if count is not None:
        letters = _all_letters(letters, count, chosen)
        for name, each in waits.items():
            _all_jobs(name, each, count, chosen)
    dead = _letters(letters, known.queues)
    return Overview(
        at=at,
        queues=[_queue(name, waits[name], works, workers, dead) for name in shown],
        running=works.longest,
        expired=works.expired,
        workers=workers,
        rates=await pace.look(connection, at, workers, known.queues, chosen),
        letters=letters,
        outbox=await resting.outbox(connection),
        services=await resting.services(connection),
        types=known.queues,
    )


def _serves(worker: Worker, chosen: Chosen) -> bool:
    return not chosen.queues or any(map(chosen.queue, worker.queues))


def _all_jobs(name: str, waits: Waiting, count: Counted, chosen: Chosen) -> None:
    """Say how many wait where the look did not read to the end."""
    if waits.waiting.more:
        waits.waiting = count.of_queue(name, ("queued",), chosen)
    if waits.paused.more:
        waits.paused = count.of_queue(name, ("paused",), chosen)


def _all_letters(letters: Letters, count: Counted, chosen: Chosen) -> Letters:
    return replace(letters, by_type=count.of_types(chosen)) if letters.open.more else letters


def _letters(letters: Letters, queues: Mapping[str, str]) -> dict[str, Count]:
    """Count letters by the queue on which their type is handled now."""
    found: dict[str, Count] = {}
    for kind, count in letters.by_type.items():
        queue = queues.get(kind or "", "")
        found[queue] = found.get(queue, NONE) + count
    return found


def _queue(
    name: str,
    waits: Waiting,
    works: Working,
    workers: Sequence[Worker],
    letters: Mapping[str, Count],
) -> Queue:
    heard = [w for w in workers if name in w.queues and w.seen_seconds < SILENT]
    ready = [w for w in heard if w.draining_seconds is None]
    return Queue(
        name=name,
        waiting=waits.waiting,
        oldest=waits.oldest,
        overdue=waits.overdue,
        paused=waits.paused,
        next_due=waits.next_due,
        parked=waits.parked,
        running=works.counts.get(name, NONE),
        workers=len(ready),
        draining=len(heard) - len(ready),
        slots=sum(w.slots // max(1, len(w.queues)) for w in ready),
        letters=letters.get(name, NONE),
    )
