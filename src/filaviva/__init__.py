"""Filaviva: the living queue."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from filaviva.app import App
    from filaviva.context import Context, SyncContext, Usage
    from filaviva.errors import (
        ConfigurationError,
        FilavivaError,
        InvalidInput,
        InvalidOutput,
        LeaseLost,
        NotPublished,
        Refused,
        Retryable,
        Terminal,
    )
    from filaviva.event_publisher import Publisher
    from filaviva.policy import Policy
    from filaviva.service_outbox import Outbox
    from filaviva_contracts import Contract

__all__ = [
    "App",
    "CancelRequested",
    "ConfigurationError",
    "Context",
    "Contract",
    "FilavivaError",
    "InvalidInput",
    "InvalidOutput",
    "LeaseLost",
    "NotPublished",
    "Outbox",
    "Policy",
    "Publisher",
    "Refused",
    "Retryable",
    "SyncContext",
    "Terminal",
    "Usage",
]

# Imported when first used: whoever wants only a part of the library, as the command line does,
# must not wait for all of it.
_PLACES: Final = {
    "App": "filaviva.app",
    "Context": "filaviva.context",
    "Contract": "filaviva_contracts",
    "Outbox": "filaviva.service_outbox",
    "Policy": "filaviva.policy",
    "Publisher": "filaviva.event_publisher",
    "SyncContext": "filaviva.context",
    "Usage": "filaviva.context",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_PLACES.get(name, "filaviva.errors")), name)
    globals()[name] = found
    return found
