"""The words that filters know: a misspelt one must not look like an empty list."""

from typing import Literal, TypeAlias

JobState: TypeAlias = Literal[
    "queued", "running", "cancel_requested", "succeeded", "failed", "canceled"
]
GroupState: TypeAlias = Literal["open", "snoozed", "resolved"]
LetterState: TypeAlias = Literal["open", "replaying", "resolved", "discarded"]
DeadReason: TypeAlias = Literal[
    "terminal",
    "attempts_exhausted",
    "undecodable",
    "unknown_type",
    "unsupported_version",
    "unroutable",
    "oversize",
    "expired",
    "delivery_limit",
    "id_reused",
    "result_too_large",
    "forbidden",
]
