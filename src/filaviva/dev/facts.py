"""dev.json: what runs where, for whoever uses the stack."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filaviva.atomic import write_json

# The services that have an API of their own, and its name in dev.json.
WITH_API = {"producer": "api", "dlq-handler": "dlq", "console": "console"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The content of dev.json; what does not run is absent."""

    broker: str
    broker_management: str | None
    postgres: str
    api_key: str
    drill_provider: str | None = None
    pids: dict[str, list[int]]
    http: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, list[str]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Replace the file in one step."""
        write_json(path, {name: value for name, value in self._named().items() if value})

    def _named(self) -> dict[str, Any]:
        return {
            **{name: self.http.get(service) for service, name in WITH_API.items()},
            "metrics": self.metrics,
            "broker": self.broker,
            "brokerManagement": self.broker_management,
            "postgres": self.postgres,
            "apiKey": self.api_key,
            "drillProvider": self.drill_provider,
            "pids": self.pids,
        }
