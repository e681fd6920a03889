"""A program that watches the stack for a while, on a free loopback port."""

from pathlib import Path

from filaviva.dev.child import Child
from filaviva.dev.http import answers_ok
from filaviva.dev.ports import LOOPBACK, free_port


class Observer:
    """One process of Prometheus's family; what it stores is nobody's afterwards."""

    def __init__(self, name: str, program: str, *words: str, state: Path) -> None:
        self._port = free_port()
        self.url = f"http://{LOOPBACK}:{self._port}"
        listen = f"--web.listen-address={LOOPBACK}:{self._port}"
        self.child = Child(name, [program, *words, listen, "--log.level=warn"], state=state)

    def launch(self) -> None:
        """Start it without waiting."""
        self.child.start()

    def ready(self) -> bool:
        """Tell whether it answers."""
        return self.child.alive and answers_ok(self._port, "/-/ready")

    def stop(self) -> None:
        """End it."""
        self.child.kill()
