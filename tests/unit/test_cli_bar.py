"""The bar of `filaviva jobs watch`."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from filaviva.cli.bar import Bar, filled, line
from filaviva.cli.watching import Printer
from filaviva.operations.jobs import Event, Job

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
BATCH = {"total": 10, "succeeded": 7, "failed": 1, "canceled": 0, "running": 1, "queued": 1}


def job(state: str = "running", progress: dict[str, Any] | None = None, **changes: Any) -> Job:
    known: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    known |= {"id": uuid4(), "state": state, "attempt": 1, "max_attempts": 5, "labels": "{}"}
    known |= {"type": "a.b", "version": 1, "cost_usd": Decimal(0), "created_at": NOW}
    known["progress"] = None if progress is None else json.dumps(progress)
    return Job(**known | changes)


def event(kind: str, **data: Any) -> Event:
    return Event(1, NOW, kind, json.dumps(data))


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("share", "letters"), [(0, 0), (0.5, 15), (1, 30), (2, 30), (-1, 0)])
def test_the_bar_is_as_long_as_the_share(share: float, letters: int) -> None:
    assert filled(share).count("█") == filled(share, plain=True).count("#") == letters
    assert len(filled(share)) == 32


def test_a_batch_is_told_by_its_items() -> None:
    shown = line(job(progress=BATCH), 75)

    assert shown.startswith("[" + "█" * 24)
    assert "7 of 10 completed" in shown
    assert "1 failed" in shown
    assert shown.endswith("1:15")


def test_a_job_by_its_own_message_which_cannot_move_the_cursor() -> None:
    shown = line(job(progress={"done": 1, "total": 4, "message": "read\n\x1b[2Jit"}, attempt=2), 3)

    assert "read  [2Jit  running  attempt 2  0:03" in shown
    assert "\x1b" not in shown


def test_a_job_without_progress_shows_its_state() -> None:
    assert line(job("cancel_requested"), 0) == "cancel requested  0:00"


def test_lines_replace_the_bar_and_leave_out_what_it_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = Terminal()
    say = Printer(json=False, bar=Bar(out))

    say.standing(job(progress=BATCH))
    for each in (event("progress", done=1), event("item", index=1, status="succeeded")):
        say.happened(each)
    say.happened(event("item", index=2, status="failed"))

    assert out.getvalue().startswith("\r\x1b[K[")
    assert out.getvalue().endswith("\r\x1b[K")
    assert capsys.readouterr().out == "09:00:00  item       index=2 status=failed\n"


def test_where_there_is_no_terminal_there_is_no_bar() -> None:
    out = io.StringIO()
    Printer(json=False, bar=Bar(out)).standing(job())

    assert out.getvalue() == ""
