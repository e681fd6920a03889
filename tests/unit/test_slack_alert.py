"""What an alert says, and that Slack takes it whatever is in it."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from filaviva_dlq_handler.alert import LONGEST, Alert, Failure, Sample, digest_alert, failure_alert

SAMPLE = Sample(
    letter_id="L1",
    job_id="J1",
    tenant="acme",
    version=2,
    attempts=3,
    worker="w1",
    correlation_id="c1",
)
FAILURE = Failure(
    group_id="G1",
    fingerprint="0123456789abcdef",
    type="invoice.extract",
    reason="attempts_exhausted",
    error_class="upstream",
    error_code="ServerError",
    message="no answer from <url>",
    frames=("app.py:run", "app.py:call"),
    episode=1,
    state="open",
    count=12,
    cost_usd=Decimal("0.250000"),
    seconds=61.5,
    first_seen_at=datetime(2026, 11, 30, 3, 0, tzinfo=UTC),
    last_seen_at=datetime(2026, 11, 30, 3, 5, tzinfo=UTC),
    samples=(SAMPLE,),
)


def told(failure: Failure = FAILURE, console_url: str | None = None) -> Alert:
    return failure_alert(failure, environment="production", console_url=console_url)


def test_it_says_what_why_how_much_and_what_to_do() -> None:
    words = told().plain

    assert words.startswith("New failure: invoice.extract - ServerError (production)")
    for expected in (
        "attempts_exhausted: all attempts are used up",
        "no answer from &lt;url&gt;",
        "*Letters*\n12",
        "*Error class*\nupstream",
        "*Spent*\n0.25 USD",
        "*Tenant*\nacme",
        "*Version*\n2",
        "*Worker*\nw1",
        "*Time spent*\n61.5 s",
        "group G1",
        "fingerprint 0123456789abcdef",
        "jobs J1",
        "correlation c1",
        "`filaviva dlq show L1`",
        "`filaviva dlq replay --group G1",
        "app.py:call",
    ):
        assert expected in words, expected


def test_the_fallback_text_is_one_line_with_the_cause() -> None:
    text = told().text

    assert "\n" not in text
    assert text.startswith("New failure: invoice.extract - ServerError (production): no answer")


def test_nothing_foreign_can_mention_everybody() -> None:
    hostile = "<!channel> ``` & <@U1>"
    failure = replace(
        FAILURE,
        message=hostile,
        frames=(hostile,),
        samples=(replace(SAMPLE, tenant=hostile, worker=hostile, correlation_id=hostile),),
    )
    alert = told(failure)

    assert "<!channel>" not in alert.plain + alert.text
    assert "<@U1>" not in alert.plain + alert.text
    assert alert.plain.count("```") == 4  # our own fences


def test_it_never_grows_beyond_what_slack_takes() -> None:
    huge = "&" * 50_000
    failure = replace(
        FAILURE,
        type=huge,
        error_code=huge,
        error_class=huge,
        message=huge,
        frames=(huge,) * 9,
        samples=(replace(SAMPLE, tenant=huge, worker=huge, correlation_id=huge),) * 3,
    )

    alert = told(failure)
    digest = digest_alert([failure] * 500, environment="production")

    for one in (alert, digest):
        assert len(one.text) + len(one.plain) <= LONGEST + 100
        header = one.blocks[0]["text"]["text"]
        assert len(header) <= 150
        for block in one.blocks:
            assert len(block.get("text", {}).get("text", "")) <= 3000
            assert all(len(field["text"]) <= 2000 for field in block.get("fields", ()))
            assert len(block.get("fields", ())) <= 10
    assert "filaviva dlq show" in alert.plain


def test_a_later_episode_and_a_parked_version_say_so() -> None:
    again = told(replace(FAILURE, episode=3)).plain
    parked = told(replace(FAILURE, reason="unsupported_version")).plain

    assert again.startswith("Failing again (episode 3)")
    assert parked.startswith("Waiting for a deploy")
    assert "deploy a worker that reads this version" in parked


def test_a_console_is_linked_where_there_is_one() -> None:
    assert (
        "<https://console/failures/G1|Open the group>" in told(console_url="https://console/").plain
    )
    assert "Open the group" not in told().plain


def test_many_groups_are_one_message_with_the_largest_by_name() -> None:
    failures = [replace(FAILURE, type=f"type{n}", count=n, samples=()) for n in range(30)]

    alert = digest_alert(failures, environment="production")

    assert alert.text.startswith("30 new failures (production)")
    assert "type29" in alert.plain
    assert "type3*" not in alert.plain
    assert "and 25 more groups" in alert.plain
    assert "filaviva dlq groups" in alert.plain
