"""Message contracts and the envelope."""

from filaviva_contracts.contract import Contract
from filaviva_contracts.envelope import CONTENT_TYPE, Envelope, Undecodable
from filaviva_contracts.names import parse_wire_type, schema_uri, wire_type
from filaviva_contracts.part import File, Part
from filaviva_contracts.wire import (
    AttemptFailed,
    JobCanceled,
    JobDead,
    JobFailed,
    JobSucceeded,
    WakeUp,
)

__all__ = [
    "CONTENT_TYPE",
    "AttemptFailed",
    "Contract",
    "Envelope",
    "File",
    "JobCanceled",
    "JobDead",
    "JobFailed",
    "JobSucceeded",
    "Part",
    "Undecodable",
    "WakeUp",
    "parse_wire_type",
    "schema_uri",
    "wire_type",
]
