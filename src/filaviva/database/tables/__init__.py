"""The tables as SQLAlchemy sees them; the migrations make them, a test compares the two."""

from filaviva.database.tables.failure import (
    dead_letters,
    failure_groups,
    notification_channels,
    notifications,
    replay_letters,
    replays,
)
from filaviva.database.tables.fairness import (
    limits,
    running_keys,
    submission_keys,
    turn_keeper,
    turns,
    upcoming,
)
from filaviva.database.tables.registry import (
    api_keys,
    contract_samples,
    contract_uses,
    contracts,
    schedules,
)
from filaviva.database.tables.schema import metadata
from filaviva.database.tables.transport import (
    audit_log,
    contents,
    counted,
    drills,
    inbox,
    outbox,
    processes,
    workers,
)
from filaviva.database.tables.work import (
    attempts,
    batches,
    job_events,
    jobs,
    llm_calls,
    retries,
    steps,
    tombstones,
)

__all__ = [
    "api_keys",
    "attempts",
    "audit_log",
    "batches",
    "contents",
    "contract_samples",
    "contract_uses",
    "contracts",
    "counted",
    "dead_letters",
    "drills",
    "failure_groups",
    "inbox",
    "job_events",
    "jobs",
    "limits",
    "llm_calls",
    "metadata",
    "notification_channels",
    "notifications",
    "outbox",
    "processes",
    "replay_letters",
    "replays",
    "retries",
    "running_keys",
    "schedules",
    "steps",
    "submission_keys",
    "tombstones",
    "turn_keeper",
    "turns",
    "upcoming",
    "workers",
]
