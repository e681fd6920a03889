"""A service process of the stack, with ports of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from filaviva.dev.child import Child
from filaviva.dev.http import answers_ok
from filaviva.dev.ports import LOOPBACK, free_port


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a service; it keeps its ports when it is started again."""

    service: str
    http_port: int
    metrics_port: int
    child: Child

    @classmethod
    def of(
        cls, service: str, number: int, command: list[str], *, state: Path, env: Mapping[str, str]
    ) -> Self:
        """Give the process its ports and its settings."""
        http_port, metrics_port = free_port(), free_port()
        here = {"FILAVIVA_LINKS__BASE_URL": f"http://{LOOPBACK}:{http_port}"}
        usual = here if service == "producer" else {}  # it has the pages that links open
        own = {
            "FILAVIVA_HTTP__HOST": LOOPBACK,
            "FILAVIVA_HTTP__PORT": str(http_port),
            "FILAVIVA_METRICS__HOST": LOOPBACK,
            "FILAVIVA_METRICS__PORT": str(metrics_port),
        }
        name = service if number == 1 else f"{service}-{number}"
        return cls(
            service,
            http_port,
            metrics_port,
            Child(name, command, state=state, env=usual | {**env, **own}),
        )

    @property
    def http(self) -> str:
        """Where its API is, if it has one."""
        return f"http://{LOOPBACK}:{self.http_port}"

    @property
    def metrics(self) -> str:
        """Where its metrics are."""
        return f"http://{LOOPBACK}:{self.metrics_port}/metrics"

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self.child.start()

    def ready(self) -> bool:
        """Tell whether the service says that it is ready."""
        return self.child.alive and answers_ok(self.metrics_port, "/readyz")
