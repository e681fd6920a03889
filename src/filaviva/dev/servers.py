"""PostgreSQL and the broker of one run: our own, or those that the environment names."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from filaviva.dev.broker import EmbeddedBroker
from filaviva.dev.child import Child
from filaviva.dev.options import Options
from filaviva.dev.postgres import EmbeddedPostgres


class Server(Protocol):
    """What the supervisor needs to know of an embedded server."""

    @property
    def child(self) -> Child:
        """The process to watch."""

    def launch(self) -> None:
        """Start the process without waiting."""

    def ready(self) -> bool:
        """Tell whether it takes connections."""

    def stop(self) -> None:
        """End it cleanly."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the servers are, and which of them are our own children."""

    postgres: EmbeddedPostgres | None
    broker: EmbeddedBroker | None
    named: dict[str, str]

    @classmethod
    def of(cls, options: Options) -> "Servers":
        """Take what the environment names; embed the rest."""
        prefixes = ("FILAVIVA_POSTGRES__", "FILAVIVA_BROKER__")
        named = {k: v for k, v in os.environ.items() if k.startswith(prefixes)}
        postgres = None if "FILAVIVA_POSTGRES__URL" in named else EmbeddedPostgres(options.state)
        broker = None
        if "FILAVIVA_BROKER__URL" not in named:
            broker = EmbeddedBroker(
                options.state,
                version=options.broker_version,
                definitions=exported(options.state),
            )
        return cls(postgres, broker, named)

    @property
    def own(self) -> list[Server]:
        """The embedded ones, the slower one first."""
        return [server for server in (self.broker, self.postgres) if server is not None]

    @property
    def postgres_url(self) -> str:
        """The owner's URL."""
        return self.postgres.url if self.postgres else self.named["FILAVIVA_POSTGRES__URL"]

    @property
    def broker_url(self) -> str:
        """The AMQP URL."""
        return self.broker.url if self.broker else self.named["FILAVIVA_BROKER__URL"]

    @property
    def management_url(self) -> str | None:
        """The broker's management API, when we know it."""
        if self.broker:
            return self.broker.management_url
        return self.named.get("FILAVIVA_BROKER__MANAGEMENT_URL")

    @property
    def pids(self) -> dict[str, list[int]]:
        """The pids of the embedded ones."""
        return {
            "broker": [self.broker.pid] if self.broker else [],
            "postgres": [self.postgres.pid] if self.postgres else [],
        }

    @property
    def environment(self) -> dict[str, str]:
        """The settings by which services find the servers."""
        found = {
            **self.named,
            "FILAVIVA_POSTGRES__URL": self.postgres_url,
            "FILAVIVA_BROKER__URL": self.broker_url,
        }
        if self.management_url:
            found["FILAVIVA_BROKER__MANAGEMENT_URL"] = self.management_url
        return found


def exported(state: Path) -> Path:
    """The file with all that setup has declared on the broker."""
    return state / "definitions.json"
