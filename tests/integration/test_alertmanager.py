"""A real Alertmanager tells the same Slack, once, what wants somebody, and when it is over."""

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from filaviva.dev.alertmanager import PROGRAM, embedded_alertmanager
from fixtures.slack import SlackStandIn
from fixtures.stacks import until

CONFIGURATION = Path(__file__).parents[2] / "deploy/alertmanager/alertmanager.yml"


@pytest.fixture
def alertmanager(slack: SlackStandIn, tmp_path: Path) -> Iterator[str]:
    """The URL of an Alertmanager with our configuration, which waits for nothing."""
    if shutil.which(PROGRAM) is None:
        if os.environ.get("CI"):
            pytest.fail("prometheus-alertmanager is not installed: run `make servers`")
        pytest.skip("prometheus-alertmanager is not installed: run `make servers` as root")
    server = embedded_alertmanager(tmp_path, CONFIGURATION.read_text(), webhook=slack.url)
    server.launch()
    try:
        until(server.ready, seconds=30, what="Alertmanager")
        yield server.url
    finally:
        server.stop()


def alert(url: str, name: str, severity: str, *, over: bool = False) -> None:
    """Tell of an alert as Prometheus does."""
    moment = datetime.now(UTC) - timedelta(seconds=5)
    body = {
        "labels": {"alertname": name, "severity": severity},
        "annotations": {"summary": f"{name} says so", "runbook_url": f"https://x.test/{name}.md"},
        "startsAt": moment.isoformat(),
        "generatorURL": "https://x.test/graph",
        **({"endsAt": (moment + timedelta(seconds=1)).isoformat()} if over else {}),
    }
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/api/v2/alerts",
        data=json.dumps([body]).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=5).close()  # noqa: S310 - our own server


def receivers(url: str) -> dict[str, list[str]]:
    """Tell who hears of each alert."""
    with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=5) as answer:  # noqa: S310 - our own server
        found = json.load(answer)
    return {one["labels"]["alertname"]: [r["name"] for r in one["receivers"]] for one in found}


def test_an_alert_is_told_once_and_so_is_its_end(alertmanager: str, slack: SlackStandIn) -> None:
    alert(alertmanager, "FilavivaDeadLettersNew", "info")
    alert(alertmanager, "FilavivaBrokerDown", "page")
    alert(alertmanager, "FilavivaOutboxStuck", "page")  # its cause is known

    until(lambda: slack.posts, seconds=20, what="a message")
    text = json.dumps(slack.posts[0])
    assert "FilavivaBrokerDown says so" in text
    assert "https://x.test/FilavivaBrokerDown.md" in text
    assert "rotating_light" in text
    assert receivers(alertmanager)["FilavivaDeadLettersNew"] == ["nobody"]

    alert(alertmanager, "FilavivaBrokerDown", "page", over=True)
    # What its cause held back is told now: it had been looked at, as all others had.
    until(lambda: len(slack.posts) > 2, seconds=20, what="its end, and what is left")
    ended, held_back = sorted(map(json.dumps, slack.posts[1:]), key=lambda one: "Stuck" in one)
    assert "white_check_mark" in ended
    assert "FilavivaOutboxStuck says so" in held_back
