"""Filaviva: the living queue."""

from filaviva.app import App
from filaviva.context import Context, SyncContext, Usage
from filaviva.errors import (
    ConfigurationError,
    FilavivaError,
    InvalidInput,
    InvalidOutput,
    LeaseLost,
    Refused,
    Retryable,
    Terminal,
)
from filaviva.policy import Policy
from filaviva_contracts import Contract

__all__ = [
    "App",
    "ConfigurationError",
    "Context",
    "Contract",
    "FilavivaError",
    "InvalidInput",
    "InvalidOutput",
    "LeaseLost",
    "Policy",
    "Refused",
    "Retryable",
    "SyncContext",
    "Terminal",
    "Usage",
]
