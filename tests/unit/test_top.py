"""The page of `filaviva top`, without a terminal."""

from dataclasses import replace
from uuid import UUID

import pytest

from filaviva.broker.depths import Depth
from filaviva.cli.top_grid import page
from filaviva.cli.top_view import Seen, header, sections
from filaviva.operations.overview import stuck
from filaviva.operations.overview.figures import (
    Cause,
    Chosen,
    Count,
    Letters,
    Oldest,
    Outbox,
    Overview,
    Queue,
    Rate,
    Running,
    Worker,
)

JOB = UUID("01900000-0000-7000-8000-000000000001")
LETTER = UUID("01900000-0000-7000-8000-000000000002")
GROUP = UUID("01900000-0000-7000-8000-000000000003")

WAITS = Oldest(JOB, "llm", "doc.extract", 192.0, 0)
LLM = Queue(
    "llm",
    waiting=Count(1204, about=True),
    oldest=WAITS,
    paused=Count(310),
    next_due=4.0,
    parked={"limit": Count(7)},
    running=Count(4),
    workers=1,
    slots=4,
    letters=Count(2),
)
RUNS = Running(JOB, "llm", "doc.extract", 2, "host:1:aa", 125.0, "read", 61.0, None, None, 600.0)
WORKER = Worker(
    "host:1:aa", "shop", ["llm"], 4, 4, "0.1.0",
    [{"type": "doc.extract", "min": 1, "max": 2}], 3700.0, 2.0, None, {},
)  # fmt: skip
VIEW = Overview(
    at=1_900_000_000.0,
    queues=[LLM, Queue("mail", workers=1, slots=4)],
    running=[RUNS],
    expired=0,
    workers=[WORKER],
    rates=[Rate("llm", "doc.extract", 12, 11, 10, 1.5, 0.25, 0, 0.25, 0.42)],
    letters=Letters({"doc.extract": Count(2)}, [], LETTER, "doc.extract", 10_900.0),
    outbox=Outbox(Count(3), 0, 77, "filaviva.jobs llm", 2.0),
)
DEPTHS = {"filaviva.work.llm": Depth(100, 1)}
PAGE = f"""\
filaviva top  17:46:40 UTC
STUCK
- queue llm: ~1,204 wait, the oldest for 3m12s: all 4 slots are busy
    next: add workers, or see what runs so long (below)
QUEUE  waiting  oldest  run/slots  dead  failing  paused  next  in/s  out/s  parked  ready
llm     ~1,204   3m12s        4/4     2    14.9%     310    4s  12.0   10.2       7    100
mail         -       -        0/4     -        -       -     -     -      -       -      -
RATES             submitted  started  succeeded  retried  failed  died  USD/min
a second, lately       12.0     11.0       10.0      1.5    0.25  0.25   0.4200
OLDEST         age
waiting      3m12s  {JOB} doc.extract on llm
running      2m05s  {JOB} doc.extract in step 'read' on host:1:aa
dead letter  3h01m  {LETTER} doc.extract
outbox row      2s  77 for filaviva.jobs llm
WORKER     busy  seen  state     longest  step  queues  release  reads
host:1:aa   4/4    2s  up 1h01m    2m05s  read  llm     0.1.0    doc.extract v1-2
RUNNING JOB                             for  step  in it  type         attempt  worker
{JOB}  2m05s  read  1m01s  doc.extract        2  host:1:aa"""


def drawn(seen: Seen, width: int = 130, height: int = 60, *, live: bool = False) -> list[str]:
    head = header(seen, every=2.0, sort="oldest", live=live)
    lines = page(head, sections(seen, "oldest"), width, height)
    assert all(line.cell_len <= width for line in lines)
    assert len(lines) <= height
    return [line.plain.rstrip() for line in lines]


def test_the_page_answers_what_waits_runs_and_is_oldest() -> None:
    seen = Seen(VIEW, stuck.find(VIEW, DEPTHS), depths=DEPTHS)

    assert "\n".join(drawn(seen)) == PAGE


def test_a_narrow_terminal_shows_what_matters_most_and_says_what_it_leaves_out() -> None:
    lines = drawn(Seen(VIEW, (), depths=DEPTHS), width=48)

    (queue,) = [line for line in lines if line.startswith("QUEUE")]
    assert queue == "QUEUE  waiting  oldest  run/slots  dead  +7…"
    (oldest,) = [line for line in lines if line.startswith("running  ")]
    assert oldest.endswith("…")


@pytest.mark.parametrize("height", range(1, 20))
def test_a_short_terminal_is_never_overrun_and_says_what_it_leaves_out(height: int) -> None:
    many = replace(VIEW, queues=[Queue(f"q{n}", workers=1) for n in range(30)])

    lines = drawn(Seen(many, stuck.find(VIEW)), height=height)

    assert "…" in "\n".join(lines) or height == 1


def test_what_is_stuck_is_told_to_its_end_on_a_narrow_terminal() -> None:
    shown = stuck.Stuck(
        "stuck", "scheduler", "nobody consumes the queue", "`filaviva run retry-scheduler`"
    )

    lines = drawn(Seen(VIEW, [shown]), width=36)

    assert lines[2:7] == [
        "! scheduler: nobody consumes the",
        "    queue",
        "    next: `filaviva run",
        "    retry-scheduler`",
        next(line for line in lines if line.startswith("QUEUE")),
    ]


def test_what_is_left_out_is_counted_by_what_is_stuck_not_by_lines() -> None:
    many = [stuck.Stuck("look", f"queue {n}", "waits", "look") for n in range(40)]

    lines = drawn(Seen(VIEW, many), height=24)

    shown = sum(line.startswith("- queue") for line in lines)
    assert 0 < shown < 40
    assert f"  … {40 - shown} more" in lines


def test_what_was_chosen_stands_on_the_page() -> None:
    chosen = Chosen(("mial",), ("doc.extract",))

    lines = drawn(Seen(replace(VIEW, queues=[]), chosen=chosen))

    assert lines[1] == "only queue mial, type doc.extract"
    assert "QUEUE  none" in lines


def test_figures_that_are_old_are_marked_while_a_server_is_away() -> None:
    seen = Seen(VIEW, (), age=75, away="connection refused", depths=DEPTHS, broker_away="no answer")

    lines = drawn(seen)

    assert lines[1:3] == [
        "NO DATABASE; what follows is 1m15s old: connection refused",
        "NO BROKER; its figures are 0s old: no answer",
    ]
    assert drawn(Seen(None, away="no such host"))[1:] == ["NO DATABASE: no such host"]


def test_what_others_wrote_steers_no_terminal() -> None:
    bad = replace(RUNS, step="read\x1b[2J\nall")

    text = "\n".join(drawn(Seen(replace(VIEW, running=[bad]))))

    assert "\x1b" not in text
    assert "read [2J all" in text


def found(**changes: object) -> list[str]:
    """What is found stuck in a view that is otherwise well."""
    well = replace(LLM, oldest=replace(WAITS, seconds=1.0), parked={})
    view = replace(VIEW, queues=[well], outbox=Outbox(), letters=Letters())
    return [f"{s.level} {s.where}: {s.what}" for s in stuck.find(replace(view, **changes))]  # type: ignore[arg-type]


def test_where_all_goes_on_nothing_is_stuck() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"queues": [replace(LLM, workers=0, parked={})]}, "and no worker serves it"),
        ({"queues": [replace(LLM, running=Count(1), parked={})]}, "though 3 slots are free"),
        (
            {"queues": [replace(LLM, parked={"unsupported_version": Count(3)})]},
            "3 job(s) are parked",
        ),
        ({"workers": [replace(WORKER, seen_seconds=45.0)]}, "silent for 45s, with 4 job(s)"),
        ({"expired": 2}, "2 lease(s) have run out"),
        ({"running": [replace(RUNS, seconds=900.0)]}, "runs for 15m00s in step 'read', its limit"),
        ({"running": [replace(RUNS, canceling=90.0)]}, "asked to stop for 1m30s"),
        ({"outbox": Outbox(Count(9), 0, 1, "x", 120.0)}, "9 message(s) lie, the oldest for 2m00s"),
        ({"outbox": Outbox(NONE := Count(0), 2, error="no queue")}, "refuses: no queue"),
        ({"outbox": Outbox(turns_without_keeper=True)}, "nobody gives it"),
        ({"services": {"worker": 1, "dlq-handler": 1}}, "stuck retry-scheduler: no process"),
        (
            {
                "letters": Letters(
                    {}, [Cause(GROUP, "a.b", "terminal", "Gone", "it broke", Count(5))]
                )
            },
            "5 dead letter(s), a.b: Gone it broke",
        ),
    ],
)
def test_what_is_stuck_is_said_with_its_place(changes: dict[str, object], said: str) -> None:
    assert any(said in line for line in found(**changes)), found(**changes)


def test_a_queue_whose_workers_do_not_consume_is_told_from_one_with_free_slots() -> None:
    view = replace(VIEW, queues=[replace(LLM, running=Count(0))])

    (deaf, *_) = stuck.find(view, {"filaviva.work.llm": Depth(1204, 0)})

    assert "its workers do not consume it" in deaf.what


def test_of_many_jobs_that_hang_a_few_are_named() -> None:
    lines = found(running=[replace(RUNS, seconds=900.0)] * 40)

    assert len(lines) == 4
    assert lines[-1] == "stuck jobs: 37 more do not end either"
