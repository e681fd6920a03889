"""`filaviva drill` refuses what it cannot do before anything is cut, and shows how it goes."""

import io
import json
from pathlib import Path

import pytest

from filaviva.cli.drill_screen import DrillScreen
from filaviva.dev.ports import LOOPBACK, free_port
from filaviva.drilling.facts import Fact
from filaviva.drilling.journey import Look
from filaviva.drilling.panels import questions
from filaviva.drilling.prometheus import Prometheus, _seconds
from filaviva.drilling.provider import Calls, NotServed, Provider
from filaviva.errors import Unreachable
from fixtures.command_line import CommandLine

NOWHERE = {
    "FILAVIVA_POSTGRES__URL": "postgresql://filaviva@127.0.0.1:9/filaviva",
    "FILAVIVA_DRILL__PROVIDER_URL": "http://drill:9200",
    "FILAVIVA_DRILL__API_URL": "http://127.0.0.1:9",
}


@pytest.fixture(autouse=True)
def _no_stack_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "without", "code", "says"),
    [
        ((), ("FILAVIVA_POSTGRES__URL",), 2, "FILAVIVA_POSTGRES__URL: found nothing"),
        ((), ("FILAVIVA_DRILL__API_URL",), 2, "--api: found nothing, expected where the producer"),
        ((), ("FILAVIVA_DRILL__PROVIDER_URL",), 2, "expected a host and a port"),
        (("--listen", "nine"), (), 2, "--listen: found 'nine', expected a host and a port"),
        (("--listen", "a:b"), (), 2, "--listen: found 'a:b'"),
        (("--seconds", "1"), (), 2, "greater than or equal to 4"),
        (("--seconds", "30", "--prometheus", "http://p"), (), 2, "found 30, expected at least 120"),
        (("--alertmanager", "http://a"), (), 2, "--alertmanager: found 'http://a' alone, expected"),
        ((), (), 5, "the database at postgresql://filaviva@127.0.0.1:9/filaviva does not answer"),
    ],
)
def test_what_cannot_be_done_is_refused(
    words: tuple[str, ...], without: tuple[str, ...], code: int, says: str
) -> None:
    cli = CommandLine(**{name: value for name, value in NOWHERE.items() if name not in without})

    done = cli("drill", "--yes", *words)

    assert (done.code, says in " ".join(done.err.split())) == (code, True), done.err


def test_it_asks_before_it_cuts() -> None:
    done = CommandLine(**NOWHERE)("drill", stdin="n\n")

    assert done.code == 1
    assert "Cut the drill's provider for 120 s on postgresql://filaviva@127.0.0.1:9" in done.out


@pytest.mark.parametrize(("here", "asks"), [(True, False), (False, True)])
def test_make_drill_asks_before_it_goes_to_a_stack_of_the_environment(
    here: bool,  # noqa: FBT001 - a case
    asks: bool,  # noqa: FBT001 - a case
    tmp_path: Path,
) -> None:
    if here:
        facts = {"postgres": NOWHERE["FILAVIVA_POSTGRES__URL"], "metrics": {"worker": []}}
        (tmp_path / ".filaviva").mkdir()
        (tmp_path / ".filaviva/dev.json").write_text(json.dumps(facts))

    done = CommandLine(**NOWHERE)("drill", "--start", stdin="n\n")

    assert ("Cut the drill's provider" in done.out) == asks
    assert done.code == (1 if asks else 5)


def look(phase: str, seconds: float, *, fires: bool = False) -> Look:
    return Look(phase, seconds, 120, {"queued": 20, "failed": 5}, fires)


def test_a_log_gets_a_line_for_each_phase_and_for_the_alert() -> None:
    out = io.StringIO()
    screen = DrillScreen(out, live=False)

    for seconds in (1, 2, 3):
        screen.show(look("the provider is cut", seconds, fires=seconds == 3))
    screen.show(look("what waits goes on", 0))

    assert [line[6:] for line in out.getvalue().splitlines()] == [
        "the provider is cut (1 of at most 120 s): 5 failed, 20 queued",
        "FilavivaProviderFailing fires",
        "FilavivaProviderFailing is over",
        "what waits goes on (0 of at most 120 s): 5 failed, 20 queued",
    ]


def test_a_terminal_sees_one_line_that_is_drawn_again() -> None:
    out = io.StringIO()
    screen = DrillScreen(out, live=True)

    for seconds in (1, 60):
        screen.show(look("the provider is cut", seconds))
    screen.say("the provider is back")

    assert out.getvalue().count("\n") == 1
    assert out.getvalue().count("\r\x1b[K") == 3


def test_a_fact_that_does_not_hold_names_the_next_step() -> None:
    out = io.StringIO()

    DrillScreen(out, live=False).facts(
        [
            Fact("good", "1", "1", holds=True, next_step="none"),
            Fact("bad", "0", "1", holds=False, next_step="go on"),
        ]
    )

    assert out.getvalue() == (
        "ok  good\n    found 1; expected 1\nNO  bad\n    found 0; expected 1\n    next: go on\n"
    )


def test_the_provider_knows_a_key_again_and_its_place_is_its_own() -> None:
    port = free_port()
    with Provider(LOOPBACK, port) as one:
        assert [one.take("a"), one.take("b"), one.take("a")] == [1, 2, 1]
        assert one.calls == Calls(effects=2, repeats=1)
        with pytest.raises(NotServed, match=f"found {LOOPBACK}:{port} not free to listen on"):
            Provider(LOOPBACK, port).open()


def test_every_question_to_the_dashboards_is_filled_in() -> None:
    asked = list(questions(0.5))

    assert len(asked) >= 8
    assert not [each.expr for each in asked if "$" in each.expr]
    assert any("[2000ms]" in each.expr for each in asked)


async def test_a_password_in_a_url_is_told_to_nobody() -> None:
    prometheus = Prometheus("http://ana:secret@127.0.0.1:9")

    with pytest.raises(Unreachable) as away:
        await prometheus.fires()

    assert str(away.value).startswith("Prometheus at http://ana@127.0.0.1:9 does not answer")
    await prometheus.close()


def test_durations_of_prometheus_are_read() -> None:
    assert [_seconds(text) for text in ("15s", "500ms", "1m30s", "2h")] == [15, 0.5, 90, 7200]
