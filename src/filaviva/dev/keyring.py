"""The API key of a state, made once and kept while its database is the same."""

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from filaviva.dev.atomic import write_json


def key(state: Path, postgres_url: str, create: Callable[[str], str]) -> str:
    """Find the key of this state's database, or make one."""
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
