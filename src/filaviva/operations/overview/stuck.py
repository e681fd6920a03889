"""What is stuck, and where: judged from an overview alone, the worst first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from filaviva.broker.depths import Depth
from filaviva.broker.topology import Topology
from filaviva.operations.overview import SILENT
from filaviva.operations.overview.figures import Overview, Queue, Running

LATE: Final = 60.0
# A worker stops what is beyond its limit; that it still runs after so long is no accident.
_OVER: Final = 60.0
# Jobs that are named one by one: a worker that hangs has many.
_NAMED: Final = 3
_TOPOLOGY: Final = Topology()
_CONSUMERS: Final = {
    _TOPOLOGY.retry_requests: "retry-scheduler",
    _TOPOLOGY.dead_letters: "dlq-handler",
}
# Parked by what frees them by itself: their batch, their turn, their limit.
_PATIENT: Final = frozenset({"items", "concurrency", "limit"})

Depths: TypeAlias = Mapping[str, Depth]


@dataclass(frozen=True, slots=True)
class Stuck:
    """Something that does not go on, and what helps; `look`: it may need a person."""

    level: Literal["stuck", "look"]
    where: str
    what: str
    next_step: str


def find(seen: Overview, depths: Depths | None = None) -> list[Stuck]:
    """Find what is stuck; `depths` are the broker's (None: it was not asked)."""
    parts: tuple[Callable[[Overview, Depths], Iterator[Stuck]], ...] = (
        _services, _queues, _workers, _running, _messages, _letters,
    )  # fmt: skip
    found = [each for part in parts for each in part(seen, depths or {})]
    return sorted(found, key=lambda each: each.level != "stuck")


def ago(seconds: float) -> str:
    """Say an age in the two largest units, as an operator says it."""
    whole = max(0, int(seconds))
    for unit, size, rest, smaller in (("d", 86400, 3600, "h"), ("h", 3600, 60, "m")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // rest:02}{smaller}"
    return f"{whole // 60}m{whole % 60:02}s" if whole >= LATE else f"{whole}s"


def _services(seen: Overview, depths: Depths) -> Iterator[Stuck]:
    for queue, service in _CONSUMERS.items():
        heard = seen.services is None or service in seen.services
        depth = depths.get(queue)
        if depth is not None and not depth.consumers:
            what = f"nobody consumes {queue}, {depth.ready} message(s) are on it"
        elif not heard:
            what = "no process is heard of"
        else:
            continue
        yield Stuck("stuck", service, what, f"run `filaviva run {service}`")
    if seen.outbox.turns_without_keeper:
        what = "jobs wait for their turn, and nobody gives it"
        yield Stuck("stuck", "turns", what, "run `filaviva run retry-scheduler`")


def _queues(seen: Overview, depths: Depths) -> Iterator[Stuck]:
    for queue in seen.queues:
        yield from _queue(queue, depths.get(_TOPOLOGY.work(queue.name)))
        for reason, count in queue.parked.items():
            if reason not in _PATIENT:
                what = f"{count} job(s) are parked: {reason}"
                step = "deploy workers that can read them: they are released by themselves"
                yield Stuck("look", f"queue {queue.name}", what, step)


def _queue(queue: Queue, depth: Depth | None) -> Iterator[Stuck]:
    where, oldest = f"queue {queue.name}", queue.oldest
    if oldest is None:
        return
    waits = f"{queue.waiting} wait, the oldest for {ago(oldest.seconds)}"
    if not queue.workers:
        run = f"run `FILAVIVA_WORKER__QUEUES={queue.name} filaviva run worker` with its app"
        yield Stuck("stuck", where, f"{waits}, and no worker serves it", run)
    elif oldest.seconds < LATE:
        return
    elif queue.running.number >= queue.slots:
        busy = f"{waits}: all {queue.slots} slots are busy"
        yield Stuck("look", where, busy, "add workers, or see what runs so long (below)")
    elif depth is not None and not depth.consumers:
        deaf = f"{waits}, and its workers do not consume it"
        yield Stuck("stuck", where, deaf, "run `filaviva doctor`; restart the workers")
    else:
        free = f"{waits}, though {queue.slots - queue.running.number} slots are free"
        step = f"see why: `filaviva jobs get {oldest.job_id}`; run `filaviva doctor`"
        yield Stuck("stuck", where, free, step)


def _workers(seen: Overview, _depths: Depths) -> Iterator[Stuck]:
    for worker in seen.workers:
        if worker.seen_seconds >= SILENT and worker.busy:
            what = f"silent for {ago(worker.seen_seconds)}, with {worker.busy} job(s)"
            step = "its jobs are taken over once their leases have run out; look at its host"
            yield Stuck("look", f"worker {worker.id}", what, step)
    if seen.expired:
        what = f"{seen.expired} lease(s) have run out, and nobody frees them"
        yield Stuck("stuck", "leases", what, "run `filaviva run retry-scheduler`")


def _running(seen: Overview, _depths: Depths) -> Iterator[Stuck]:
    found = list(_jobs(seen.running))
    yield from found[:_NAMED]
    if len(found) > _NAMED:
        what = f"{len(found) - _NAMED} more do not end either"
        yield Stuck("stuck", "jobs", what, "see them: `filaviva top --json`")


def _jobs(running: Sequence[Running]) -> Iterator[Stuck]:
    for job in running:
        if job.canceling is not None and job.canceling > LATE:
            what = f"asked to stop for {ago(job.canceling)}, and runs{_in_step(job)}"
        elif job.limit is not None and job.seconds > job.limit + _OVER:
            what = f"runs for {ago(job.seconds)}{_in_step(job)}, its limit is {ago(job.limit)}"
        else:
            continue
        yield Stuck("stuck", f"job {job.job_id}", what, f"look at worker {job.worker}")


def _in_step(job: Running) -> str:
    return "" if job.step is None else f" in step {job.step!r}"


def _messages(seen: Overview, _depths: Depths) -> Iterator[Stuck]:
    box = seen.outbox
    if box.oldest_seconds is not None and box.oldest_seconds > LATE:
        what = f"{box.pending} message(s) lie, the oldest for {ago(box.oldest_seconds)}"
        step = "see that the broker is up and a service runs: any service's relay takes them there"
        yield Stuck("stuck", "outbox", what, step)
    if box.parked:
        what = f"{box.parked} message(s) that the broker refuses: {box.error or 'see the row'}"
        yield Stuck("stuck", "outbox", what, "run `filaviva topology verify`")


def _letters(seen: Overview, _depths: Depths) -> Iterator[Stuck]:
    for cause in seen.letters.causes:
        said = " ".join(filter(None, (cause.code, cause.message)))
        what = f"{cause.letters} dead letter(s), {cause.type or 'unknown'}: {said}"
        step = f"`filaviva dlq list --group {cause.group_id}`"
        yield Stuck("look", "dead letters", what, step)
