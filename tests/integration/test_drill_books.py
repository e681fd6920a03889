"""What the database knows of a stack on which somebody drills."""

import pytest

from filaviva.drilling.books import Books
from fixtures.retrying import Jobs


@pytest.mark.parametrize(
    ("service", "slack", "gone", "told"),
    [
        ("dlq-handler", "true", "last_seen_at = now()", True),
        ("dlq-handler", "false", "last_seen_at = now()", False),
        ("dlq-handler", "true", "stopped_at = now()", False),
        ("dlq-handler", "true", "last_seen_at = now() - interval '2 minutes'", False),
        ("producer", "true", "last_seen_at = now()", False),
    ],
)
async def test_slack_is_told_by_a_dlq_handler_that_lives_and_has_a_webhook(
    jobs: Jobs, *, service: str, slack: str, gone: str, told: bool
) -> None:
    await jobs.all(
        "INSERT INTO filaviva.processes (id, service, host, pid, release, settings, measured)"
        f" VALUES ('one', '{service}', 'h', 1, '1', '{{\"slack\": {slack}}}', '{{}}')"
    )
    await jobs.all(f"UPDATE filaviva.processes SET {gone}")

    assert await Books(jobs.engine).tells_slack() is told
