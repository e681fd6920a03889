"""Filaviva: the living queue."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from filaviva.app import App
    from filaviva.client import Client, JobCanceled, JobFailed, Refusal, SyncClient
    from filaviva.context import Context, SyncContext, Usage
    from filaviva.errors import (
        CancelRequested,
        ConfigurationError,
        FilavivaError,
        InvalidInput,
        InvalidOutput,
        LeaseLost,
        NotPublished,
        Refused,
        Retryable,
        Terminal,
        Unreachable,
    )
    from filaviva.event_publisher import Publisher
    from filaviva.policy import Policy
    from filaviva.service_outbox import Outbox
    from filaviva_contracts import Contract, File, Part

__all__ = [
    "App",
    "CancelRequested",
    "Client",
    "ConfigurationError",
    "Context",
    "Contract",
    "FilavivaError",
    "File",
    "InvalidInput",
    "InvalidOutput",
    "JobCanceled",
    "JobFailed",
    "LeaseLost",
    "NotPublished",
    "Outbox",
    "Part",
    "Policy",
    "Publisher",
    "Refusal",
    "Refused",
    "Retryable",
    "SyncClient",
    "SyncContext",
    "Terminal",
    "Unreachable",
    "Usage",
]

# Imported when first used: whoever wants only a part of the library, as the command line does,
# must not wait for all of it.
_PLACES: Final = {
    "App": "filaviva.app",
    "Client": "filaviva.client",
    "Context": "filaviva.context",
    "Contract": "filaviva_contracts",
    "File": "filaviva_contracts",
    "JobCanceled": "filaviva.client",
    "JobFailed": "filaviva.client",
    "Outbox": "filaviva.service_outbox",
    "Part": "filaviva_contracts",
    "Policy": "filaviva.policy",
    "Publisher": "filaviva.event_publisher",
    "Refusal": "filaviva.client",
    "SyncClient": "filaviva.client",
    "SyncContext": "filaviva.context",
    "Usage": "filaviva.context",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_PLACES.get(name, "filaviva.errors")), name)
    globals()[name] = found
    return found
