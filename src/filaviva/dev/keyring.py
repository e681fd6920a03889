"""The secrets of a state, made once: its API key, and what signs links and callbacks."""

import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from filaviva.atomic import write_json, write_text


def key(state: Path, postgres_url: str, create: Callable[[str], str]) -> str:
    """Find the key of this state's database, or make one: it is kept while that is the same."""
    path = state / "api-key.json"
    # The embedded server's port changes from run to run; its password does not.
    database = f"{urlsplit(postgres_url).password}{urlsplit(postgres_url).path}"
    if path.exists():
        kept = json.loads(path.read_text())
        if kept["database"] == database:
            return str(kept["token"])
    token = create(postgres_url)
    write_json(path, {"database": database, "token": token})
    return token


def links(state: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Say where the secret of links is; one that the environment names goes first."""
    return _secret(state / "links-secret", "FILAVIVA_LINKS__SECRET", environment)


def callbacks(state: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Say where the secret of callbacks is; here they may go to servers of this machine."""
    found = _secret(state / "callbacks-secret", "FILAVIVA_CALLBACKS__SECRET", environment)
    near = ("FILAVIVA_CALLBACKS__ALLOW_HTTP", "FILAVIVA_CALLBACKS__ALLOW_PRIVATE")
    return found | {name: environment.get(name) or "true" for name in near}


def _secret(path: Path, name: str, environment: Mapping[str, str]) -> dict[str, str]:
    if environment.get(name) or environment.get(f"{name}_FILE"):
        return {}
    if not path.exists():
        write_text(path, secrets.token_urlsafe(32) + "\n")
    return {f"{name}_FILE": str(path.resolve())}
