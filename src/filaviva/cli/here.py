"""The servers that a command means: those of the environment, or of the stack that runs here."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_FACTS: Final = Path(".filaviva/dev.json")
_POSTGRES: Final = "FILAVIVA_POSTGRES__URL"
_BROKER: Final = "FILAVIVA_BROKER__URL"
_SECRETS: Final = {
    "FILAVIVA_LINKS__SECRET_FILE": _FACTS.with_name("links-secret"),
    "FILAVIVA_CALLBACKS__SECRET_FILE": _FACTS.with_name("callbacks-secret"),
}
# As `filaviva dev` gives them to its services.
_NEAR: Final = {
    "FILAVIVA_CALLBACKS__ALLOW_HTTP": "true",
    "FILAVIVA_CALLBACKS__ALLOW_PRIVATE": "true",
}
_NAMES: Final = {
    _POSTGRES: "postgres",
    _BROKER: "broker",
    "FILAVIVA_BROKER__MANAGEMENT_URL": "brokerManagement",
    "FILAVIVA_LINKS__BASE_URL": "api",
    "FILAVIVA_DRILL__API_URL": "api",
    "FILAVIVA_DRILL__PROVIDER_URL": "drillProvider",
}


def environment() -> dict[str, str]:
    """Give the environment; where it names no server, with those of `filaviva dev` in this folder.

    Never half of each: who names a server of their own must not act on another one beside it. Only
    who has named the stack's own database is given its broker too.
    """
    given = dict(os.environ)
    running = _running()
    named = {name: given[name] for name in (_POSTGRES, _BROKER) if given.get(name)}
    from_files = any(given.get(f"{name}_FILE") for name in (_POSTGRES, _BROKER))
    if from_files or any(running.get(name) != url for name, url in named.items()):
        return given
    return {**running, **{name: value for name, value in given.items() if value}}


def metrics(postgres: str) -> Mapping[str, list[str]]:
    """Give where the metrics of the stack in this folder are, if this is its database."""
    try:
        facts = json.loads(_FACTS.read_text(encoding="utf-8"))
        found: Mapping[str, list[str]] = facts["metrics"] if facts["postgres"] == postgres else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    return found


def _running() -> Mapping[str, str]:
    try:
        facts = json.loads(_FACTS.read_text(encoding="utf-8"))
        servers = {name: str(facts[key]) for name, key in _NAMES.items() if facts.get(key)}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    secrets = {name: str(path) for name, path in _SECRETS.items() if path.exists()}
    return {**servers, **secrets, **_NEAR}
