"""What `filaviva top` shows of an overview: sections of a page, the stuck first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rich.text import Text

from filaviva.broker.topology import Topology
from filaviva.cli.output import printable
from filaviva.cli.top_grid import Cell, Column, Section
from filaviva.operations.overview import SILENT
from filaviva.operations.overview.figures import Chosen, Count, Overview, Queue, Running, Worker
from filaviva.operations.overview.stuck import Depths, Stuck, ago

_TOPOLOGY: Final = Topology()
_LATE, _VERY_LATE = 60.0, 300.0
_FAILING, _FAILING_MUCH = 0.05, 0.25
_NOTHING: Final = "-"
_EVERYTHING: Final = Chosen()

SORTS: Final = ("oldest", "waiting", "running", "failing", "dead", "name")

_QUEUES: Final = (
    Column("queue", "left", least=12),
    Column("waiting"),
    Column("oldest"),
    Column("run/slots", rank=1),
    Column("dead", rank=2),
    Column("failing", rank=3),
    Column("paused", rank=4),
    Column("next", rank=6),
    Column("in/s", rank=5),
    Column("out/s", rank=5),
    Column("parked", rank=8),
    Column("ready", rank=9),
)
_RATES: Final = (
    Column("rates", "left"),
    Column("submitted"),
    Column("started", rank=3),
    Column("succeeded", rank=1),
    Column("retried", rank=2),
    Column("failed", rank=1),
    Column("died", rank=1),
    Column("USD/min", rank=1),
)
_OLDEST: Final = (Column("oldest", "left"), Column("age"), Column("", "left", least=20))
_WORKERS: Final = (
    Column("worker", "left", least=18),
    Column("busy"),
    Column("seen", rank=2),
    Column("state", "left", rank=1),
    Column("longest", rank=3),
    Column("step", "left", rank=4, least=8),
    Column("queues", "left", rank=5, least=8),
    Column("release", "left", rank=7),
    Column("reads", "left", rank=9, least=12),
)
_RUNNING: Final = (
    Column("job", "left"),
    Column("for"),
    Column("step", "left", rank=1, least=8),
    Column("in it", rank=2),
    Column("type", "left", rank=3, least=12),
    Column("attempt", rank=5),
    Column("worker", "left", rank=6, least=12),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen last, and what could not be seen now; ages in seconds."""

    overview: Overview | None
    stuck: Sequence[Stuck] = ()
    age: float = 0.0
    away: str | None = None  # what the database said, or the system
    depths: Depths | None = None
    depths_age: float = 0.0
    broker_away: str | None = None
    chosen: Chosen = _EVERYTHING


def header(seen: Seen, *, every: float, sort: str, live: bool) -> list[Text]:
    """Say of when this is, and what could not be asked."""
    at = "" if seen.overview is None else _clock(seen.overview.at)
    line = Text.assemble(("filaviva top", "bold"), "  ", at)
    if live:
        line.append(f"  every {every:.3g}s, by {sort}   q: quit  s: sort", style="dim")
    lines = [line]
    only = [f"queue {name}" for name in seen.chosen.queues]
    only += [f"type {name}" for name in seen.chosen.types]
    if only:
        lines.append(Text(f"only {printable(', '.join(only))}", style="dim"))
    if seen.away is not None:
        old = "" if seen.overview is None else f"; what follows is {ago(seen.age)} old"
        lines.append(Text(f"NO DATABASE{old}: {seen.away}", style="bold white on red"))
    if seen.broker_away is not None:
        old = "" if seen.depths is None else f"; its figures are {ago(seen.depths_age)} old"
        lines.append(Text(f"NO BROKER{old}: {seen.broker_away}", style="bold white on red"))
    return lines


def sections(seen: Seen, sort: str) -> list[Section]:
    """Make the page's parts; nothing while nothing was ever seen."""
    if seen.overview is None:
        return []
    view = seen.overview
    return [
        _stuck(seen),
        Section("QUEUE", _queues(seen, sort), _QUEUES, "none", least=4),
        _rates(view),
        _oldest(view),
        Section("WORKER", _workers(view), _WORKERS, "none is heard of", least=3),
        Section("RUNNING JOB", [_job(each) for each in view.running], _RUNNING, "none", least=2),
    ]


def _stuck(seen: Seen) -> Section:
    rows = []
    for each in seen.stuck:
        bad = each.level == "stuck"
        style = "bold red" if bad else "yellow"
        said = Cell(f"{'!' if bad else '-'} {each.where}: {each.what}", style)
        rows.append([said, Cell(f"    next: {each.next_step}")])
    return Section("STUCK", rows, empty="nothing", least=6)


def _queues(seen: Seen, sort: str) -> list[list[Cell]]:
    view = seen.overview
    ordered = sorted(view.queues, key=lambda each: _place(each, view, sort)) if view else []
    return [_queue(each, seen) for each in ordered]


def _place(queue: Queue, view: Overview, sort: str) -> tuple[float, bool, str]:
    """The greatest first; where they are the same, those where something is, then by name."""
    rate = view.rate(queue.name)
    busy = queue.running.number or queue.paused.number or queue.letters.number or rate.started
    greatest = {
        "oldest": queue.oldest.seconds if queue.oldest else 0.0,
        "waiting": queue.waiting.number,
        "running": queue.running.number,
        "failing": rate.failing or 0.0,
        "dead": queue.letters.number,
    }
    return -greatest.get(sort, 0.0), not busy and sort != "name", queue.name


def _queue(queue: Queue, seen: Seen) -> list[Cell]:
    rate = seen.overview.rate(queue.name) if seen.overview else None
    depth = (seen.depths or {}).get(_TOPOLOGY.work(queue.name))
    parked = sum(count.number for reason, count in queue.parked.items() if reason != "items")
    failing = rate.failing if rate else None
    return [
        Cell(queue.name, "" if queue.workers else "red" if queue.oldest else "dim"),
        _count(queue.waiting),
        Cell(ago(queue.oldest.seconds), _late(queue.oldest.seconds)) if queue.oldest else _NONE,
        Cell(f"{queue.running}/{queue.slots}"),
        _count(queue.letters, "red"),
        _NONE if failing is None else Cell(f"{failing:.1%}", _much(failing)),
        _count(queue.paused),
        _NONE if queue.next_due is None else Cell(ago(queue.next_due)),
        _per_second(rate.submitted if rate else 0.0),
        _per_second(rate.left if rate else 0.0),
        Cell(f"{parked:,}", "yellow") if parked else _NONE,
        _NONE if depth is None else Cell(f"{depth.ready:,}"),
    ]


def _rates(view: Overview) -> Section:
    rate = view.rate()
    cells = [
        Cell("a second, lately"),
        Cell(_number(rate.submitted)),
        Cell(_number(rate.started)),
        Cell(_number(rate.succeeded), "green" if rate.succeeded else ""),
        Cell(_number(rate.retried), "yellow" if rate.retried else ""),
        Cell(_number(rate.failed), "red" if rate.failed else ""),
        Cell(_number(rate.died), "red" if rate.died else ""),
        Cell(f"{rate.usd:f}"),
    ]
    return Section("RATES", [cells], _RATES)


def _oldest(view: Overview) -> Section:
    rows: list[tuple[str, float | None, str]] = []
    waits = max(
        filter(None, (q.oldest for q in view.queues)), key=lambda j: j.seconds, default=None
    )
    if waits is not None:
        rows.append(("waiting", waits.seconds, f"{waits.job_id} {waits.type} on {waits.queue}"))
    if view.running:
        job = view.running[0]
        step = "" if job.step is None else f" in step {job.step!r}"
        rows.append(("running", job.seconds, f"{job.job_id} {job.type}{step} on {job.worker}"))
    over = max(
        filter(None, (q.overdue for q in view.queues)), key=lambda j: j.seconds, default=None
    )
    if over is not None:
        rows.append(("pause overdue", over.seconds, f"{over.job_id} {over.type} on {over.queue}"))
    letters, box = view.letters, view.outbox
    if letters.oldest_seconds is not None:
        kind = letters.oldest_type or "unknown type"
        rows.append(("dead letter", letters.oldest_seconds, f"{letters.oldest_id} {kind}"))
    if box.oldest_seconds is not None:
        rows.append(("outbox row", box.oldest_seconds, f"{box.oldest_id} for {box.oldest_route}"))
    cells = [
        [Cell(what), Cell(ago(age or 0), _late(age or 0)), Cell(which)] for what, age, which in rows
    ]
    return Section("OLDEST", cells, _OLDEST, "nothing waits", least=5)


def _workers(view: Overview) -> list[list[Cell]]:
    longest: dict[str, Running] = {}
    for job in view.running:
        longest.setdefault(job.worker, job)
    order = sorted(view.workers, key=lambda each: (each.seen_seconds < SILENT, -each.busy, each.id))
    return [_worker(each, longest.get(each.id)) for each in order]


def _worker(worker: Worker, job: Running | None) -> list[Cell]:
    state, style = _state(worker)
    reads = ", ".join(f"{r['type']} v{_versions(r)}" for r in worker.reads)
    return [
        Cell(worker.id, style),
        Cell(f"{worker.busy}/{worker.slots}"),
        Cell(ago(worker.seen_seconds), style),
        Cell(state, style),
        _NONE if job is None else Cell(ago(job.seconds)),
        Cell((job.step if job else None) or _NOTHING),
        Cell(",".join(worker.queues)),
        Cell(worker.release or _NOTHING),
        Cell(reads or _NOTHING),
    ]


def _state(worker: Worker) -> tuple[str, str]:
    if worker.seen_seconds >= SILENT:
        return "silent", "red"
    if worker.draining_seconds is not None:
        return f"draining {ago(worker.draining_seconds)}", "yellow"
    return f"up {ago(worker.up_seconds)}", ""


def _versions(read: object) -> str:
    low, high = (read["min"], read["max"]) if isinstance(read, dict) else (0, 0)
    return f"{low}" if low == high else f"{low}-{high}"


def _job(job: Running) -> list[Cell]:
    over = job.limit is not None and job.seconds > job.limit
    style = "red" if over or job.expired else "yellow" if job.canceling is not None else ""
    return [
        Cell(str(job.job_id), style),
        Cell(ago(job.seconds), style),
        Cell(job.step or _NOTHING),
        _NONE if job.step_seconds is None else Cell(ago(job.step_seconds)),
        Cell(job.type),
        Cell(str(job.attempt)),
        Cell(job.worker),
    ]


def _count(count: Count, style: str = "") -> Cell:
    return Cell(str(count), style) if count.number else _NONE


def _per_second(value: float) -> Cell:
    return Cell(_number(value)) if value else _NONE


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"  # noqa: PLR2004 - three digits


def _late(seconds: float) -> str:
    return "red" if seconds > _VERY_LATE else "yellow" if seconds > _LATE else ""


def _much(share: float) -> str:
    return "red" if share > _FAILING_MUCH else "yellow" if share > _FAILING else ""


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC"


_NONE: Final = Cell(_NOTHING, "dim")
