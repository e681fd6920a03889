"""Dead letters and replays: what waits for a person, and whether sending it back helped."""

from typing import Final

from filaviva.monitoring.panels import (
    ANY,
    Board,
    Panel,
    Query,
    Row,
    Sql,
    age,
    bad_from,
    figure,
    increase,
    rate,
    share,
)

_GROUPS: Final = """\
SELECT type, reason, error_class, error_code, left(message, 120) AS message, state, count,
    cost_usd::float8 AS cost_usd, first_seen_at, last_seen_at
FROM filaviva.failure_groups WHERE state <> 'resolved'
ORDER BY last_seen_at DESC LIMIT 100"""
_REPLAYS: Final = """\
SELECT replay.created_at, replay.author, left(replay.reason, 80) AS reason, replay.state,
    count(letter.dead_letter_id) AS letters,
    count(*) FILTER (WHERE letter.outcome = 'succeeded') AS done,
    count(*) FILTER (WHERE letter.outcome = 'failed') AS failed_again,
    sum(letter.estimated_usd)::float8 AS estimated_usd, sum(letter.cost_usd)::float8 AS cost_usd
FROM filaviva.replays AS replay
LEFT JOIN filaviva.replay_letters AS letter ON letter.replay_id = replay.id
WHERE $__timeFilter(replay.created_at)
GROUP BY replay.id ORDER BY replay.created_at DESC LIMIT 100"""

_OPEN: Final = (
    Panel(
        title="Open",
        text="Dead letters that wait for a person, by reason.",
        unit="short",
        stacked=True,
        ask=[Query(figure("filaviva_dead_letters_open", "reason"), "{{reason}}")],
        steps=ANY,
        see="FilavivaDeadLettersNew",
    ),
    Panel(
        title="Open by type",
        text="`unknown`: a type that no app publishes.",
        unit="short",
        stacked=True,
        ask=[Query(figure("filaviva_dead_letters_open", "type"), "{{type}}")],
        steps=ANY,
        see="FilavivaDeadLettersNew",
    ),
    Panel(
        title="Oldest",
        text="How long the oldest open dead letter of each type waits; snoozed ones are left out.",
        unit="s",
        ask=[Query(age("filaviva_dead_letter_oldest_timestamp_seconds", "type"), "{{type}}")],
        steps=bad_from(4 * 3600, 86_400),
        see="FilavivaDeadLetterOld",
    ),
    Panel(
        title="New",
        text="Dead letters that were filed, by type and reason.",
        unit="short",
        stacked=True,
        width=16,
        ask=[Query(increase("filaviva_dead_letters_total", "type, reason"), "{{type}} {{reason}}")],
        steps=bad_from(1, 50),
        see="FilavivaDeadLettersMany",
    ),
    Panel(
        title="Messages to people",
        text="What was sent to Slack; `digest`: many causes in one message; `failed`: it will be "
        "tried again.",
        unit="short",
        stacked=True,
        ask=[
            Query(
                increase("filaviva_notifications_total", "channel, outcome"),
                "{{channel}} {{outcome}}",
            )
        ],
        see="FilavivaNotificationsFailing",
    ),
    Panel(
        title="Causes",
        text="Failure groups that are not resolved: one line for each cause.",
        unit="short",
        kind="table",
        width=24,
        height=9,
        ask=[Sql(_GROUPS)],
        see="FilavivaDeadLettersNew",
    ),
)

_BACK: Final = (
    Panel(
        title="Replayed letters",
        text="`sent` back, and what they came to.",
        unit="short",
        stacked=True,
        ask=[Query(increase("filaviva_replays_total", "outcome"), "{{outcome}}")],
        see="FilavivaDeadLettersMany",
    ),
    Panel(
        title="Success of replays",
        text="Share of the letters sent back that succeeded.",
        unit="percentunit",
        ask=[
            Query(
                share(
                    rate("filaviva_replays_total", where='outcome="succeeded"'),
                    rate("filaviva_replays_total", where='outcome=~"succeeded|failed|canceled"'),
                ),
                "succeeded",
            )
        ],
        see="FilavivaDeadLettersMany",
    ),
    Panel(
        title="Replays under way",
        text="Replays that have not ended.",
        unit="short",
        ask=[Query(figure("filaviva_replays_running"), "running")],
        see="FilavivaDeadLettersMany",
    ),
    Panel(
        title="Replays",
        text="Who sent what back and why, what came of it, what it cost against the estimate.",
        unit="short",
        kind="table",
        width=24,
        height=8,
        ask=[Sql(_REPLAYS)],
        see="FilavivaDeadLettersMany",
    ),
)

BOARD: Final = Board(
    uid="filaviva-dead-letters",
    title="Dead letters and replays",
    text="What waits for a person, since when, why; whether sending it back helped.",
    since="now-24h",
    rows=(Row("Dead letters", _OPEN), Row("Replays", _BACK)),
)
