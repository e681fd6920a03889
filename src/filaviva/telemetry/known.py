"""The label values that are known beforehand, and which service counts them.

A series that begins at 1 shows no increase: so everything that can be named begins at 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final, Literal, TypeAlias, get_args

from filaviva.words import DeadReason

Service: TypeAlias = Literal["producer", "worker", "retry-scheduler", "dlq-handler", "relay"]
Values: TypeAlias = Sequence[str] | Sequence[tuple[str, ...]]
Known: TypeAlias = tuple[str, *tuple[Values, ...]]  # the metric's attribute, values of its labels

RETRYABLE: Final = ("timeout", "connection", "rate_limited", "upstream", "unexpected")
TERMINAL: Final = ("invalid_input", "invalid_output", "refused", "terminal")
ENDS: Final = ("succeeded", "retry", "failed", "canceled", "released")
ENDED_ATTEMPTS: Final = (
    ("succeeded", ""),
    ("released", ""),
    ("canceled", "canceled"),
    *(("retry", each) for each in RETRYABLE),
    *(("failed", each) for each in (*RETRYABLE, *TERMINAL)),
)
CONFIRMS: Final = ("confirmed", "unroutable", "offending", "not_ready", "unknown")
REBUILT: Final = ("lost", "closed", "canceled", "deaf")
NOT_RUN: Final = ("duplicate", "stale", "early", "limited", "suspect")
RUNGS: Final = ("cooperative", "task", "sigterm", "sigkill", "fenced")
REMOVED: Final = (
    "parts",
    "jobs",
    "inbox",
    "dead_letters",
    "audit_log",
    "tombstones",
    "submission_keys",
    "contract_uses",
    "contract_samples",
    "contents",
    "workers",
    "processes",
)
PRIORITIES: Final = ("high", "normal", "low")
REASONS: Final[tuple[str, ...]] = get_args(DeadReason)
# Of what is not published nobody else chooses the label: whoever sends nonsense invents no metric.
UNKNOWN: Final = "unknown"

_CARRIES: Final[tuple[Known, ...]] = (("publish_confirm", CONFIRMS),)

ALWAYS: Final[Mapping[Service, Sequence[Known]]] = {
    "producer": (
        *_CARRIES,
        ("jobs_submitted", (UNKNOWN,), ("http",), ("rejected",)),
        ("contract_violations", (UNKNOWN,), (UNKNOWN,), ("unknown_contract",)),
        ("http_requests", ("/v1/jobs", "/v1/events"), ("POST",), ("202", "500", "503")),
    ),
    "relay": _CARRIES,
    "worker": (
        *_CARRIES,
        ("consumer_rebuilt", REBUILT),
        ("duplicates", ("worker",), NOT_RUN),
        ("duplicates", ("event",), ("duplicate",)),
        ("wakeups_reissued", ("no_slot",)),
        ("cancel_seconds", RUNGS),
        ("worker_slots", ("busy", "free")),
    ),
    "retry-scheduler": (
        *_CARRIES,
        ("consumer_rebuilt", REBUILT),
        ("duplicates", ("retry-scheduler",), ("repeated", "stale")),
        (
            "wakeups_reissued",
            ("lost", "unsupported_version", "queue_missing", "moved", "dead_letter"),
        ),
        ("cancel_seconds", ("fenced",)),
        ("turns_given", PRIORITIES),
        ("rows_removed", REMOVED),
    ),
    "dlq-handler": (
        *_CARRIES,
        ("consumer_rebuilt", REBUILT),
        ("duplicates", ("dlq-handler",), ("duplicate", "stale")),
        ("wakeups_reissued", ("dead_lettered",)),
        ("dead_letters", (UNKNOWN,), REASONS),
        (
            "contract_violations",
            (UNKNOWN,),
            (UNKNOWN,),
            ("undecodable", "unknown_type", "unsupported_version", "oversize"),
        ),
        ("replays", ("sent", "refused", "succeeded", "failed", "canceled")),
        ("notifications", ("slack",), ("sent", "digest", "dropped", "failed")),
    ),
}

BY_TYPE: Final[Mapping[Service, Sequence[Known]]] = {
    "producer": (
        ("jobs_submitted", ("http",), ("accepted", "duplicate", "rejected")),
        ("jobs_submitted", ("event",), ("accepted", "duplicate")),
        ("jobs_finished", ("canceled",)),
        ("end_to_end", ("canceled",)),
    ),
    "worker": (
        ("job_attempts", ENDED_ATTEMPTS),
        ("attempt_duration", ENDS),
        ("attempt_cost", ENDS),
        ("jobs_submitted", ("event",), ("accepted",)),
        ("jobs_finished", ("succeeded", "canceled")),
        ("end_to_end", ("succeeded", "canceled")),
        ("queue_wait",),
        ("job_cost",),
        ("lease_lost",),
        ("handlers_abandoned", ("canceled", "lost", "shutdown")),
    ),
    "retry-scheduler": (
        ("job_attempts", (("lost", "lost"),)),
        ("attempt_cost", ("lost",)),
        ("jobs_submitted", ("schedule",), ("accepted", "left_out", "skipped", "held")),
        ("jobs_finished", ("failed", "canceled")),
        ("end_to_end", ("failed", "canceled")),
        ("job_cost",),
        ("leases_expired",),
        ("retry_pause",),
    ),
    "dlq-handler": (
        ("dead_letters", REASONS),
        ("jobs_submitted", ("event",), ("accepted",)),
        ("jobs_finished", ("failed", "canceled")),
        ("end_to_end", ("canceled",)),
    ),
}


# Of every version of every type.
BY_VERSION: Final[Mapping[Service, Sequence[Known]]] = {
    "producer": (("contract_violations", ("invalid_data", "data_too_large")),),
    "worker": (("contract_violations", ("invalid_input", "invalid_output", "upcast_failed")),),
    "dlq-handler": (("contract_violations", ("invalid_data", "content_missing")),),
}


def combinations(values: Sequence[Values]) -> Iterator[tuple[str, ...]]:
    """Give every combination; a value that is a tuple stands for several labels."""
    for choice in product(*values):
        yield tuple(_flat(choice))


def _flat(choice: Iterable[str | Sequence[str]]) -> Iterator[str]:
    for value in choice:
        if isinstance(value, str):
            yield value
        else:
            yield from value
