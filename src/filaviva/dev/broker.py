"""A private RabbitMQ node, as our own child on loopback ports."""

import os
import secrets
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Literal

from filaviva.atomic import write_text
from filaviva.dev import broker43, node
from filaviva.dev.child import Child
from filaviva.dev.distribution import Distribution, system_package
from filaviva.dev.http import answers_ok
from filaviva.dev.ports import LOOPBACK, accepts
from filaviva.dev.readiness import NotReady, wait_until

Version = Literal["system", "4.3"]
_PATIENCE = timedelta(seconds=60)


class EmbeddedBroker:
    """A RabbitMQ node with its data, its cookie and its epmd in the state folder."""

    def __init__(
        self,
        state: Path,
        *,
        version: Version = "system",
        definitions: Path | None = None,
        consumer_timeout_ms: int | None = None,
    ) -> None:
        self._state = state.absolute()
        # A node cannot read the data of another version: each has a folder of its own.
        self._home = self._state / ("broker" if version == "system" else f"broker-{version}")
        self._home.mkdir(parents=True, exist_ok=True)
        self._distribution = _distribution(version)
        self._definitions = definitions
        self._consumer_timeout_ms = consumer_timeout_ms
        self._ports = node.Ports.choose()
        self._password = self._kept("password")
        self.epmd = self._child("epmd", "-address", LOOPBACK, "-port", str(self._ports.epmd))
        self.child = self._child("rabbitmq-server", name="broker")

    @property
    def url(self) -> str:
        """The AMQP URL of the default virtual host."""
        return f"amqp://{node.USER}:{self._password}@{LOOPBACK}:{self._ports.amqp}/"

    @property
    def management_url(self) -> str:
        """The management API with its user and password."""
        return f"http://{node.USER}:{self._password}@{LOOPBACK}:{self._ports.management}"

    @property
    def prometheus_url(self) -> str:
        """Where the node's metrics are."""
        return f"http://{LOOPBACK}:{self._ports.prometheus}/metrics"

    @property
    def pid(self) -> int:
        """The pid of the Erlang machine itself."""
        return self.child.pid

    def start(self) -> None:
        """Return when the node takes connections."""
        self.launch()
        self.wait_ready(_PATIENCE)

    def launch(self) -> None:
        """Start the process without waiting for it."""
        self._configure()
        self.epmd.start()
        wait_until(
            lambda: accepts(self._ports.epmd), patience=_PATIENCE, what=f"epmd ({self.epmd.log})"
        )
        self.child.start()

    def wait_ready(self, patience: timedelta) -> None:
        """Wait until the node takes connections and knows our user."""
        wait_until(
            self.ready,
            patience=patience,
            what=f"RabbitMQ ({self.child.log})",
            still_possible=lambda: self.child.alive,
        )

    def ready(self) -> bool:
        """Tell whether the node takes connections and knows our user."""
        login = f"{node.USER}:{self._password}"
        return accepts(self._ports.amqp) and answers_ok(
            self._ports.management, "/api/whoami", login=login
        )

    def stop(self) -> None:
        """Stop the node cleanly, then its epmd."""
        self.child.stop()
        self.epmd.stop()

    def kill(self) -> None:
        """End the node with SIGKILL; its epmd stays for the next start."""
        self.child.kill()

    def wipe(self) -> None:
        """Lose all of the broker's data and start again, as after a lost disk."""
        self.kill()
        shutil.rmtree(self._home / "mnesia", ignore_errors=True)
        self.start()

    def ctl(self, *words: str) -> str:
        """Run rabbitmqctl on the node; return what it prints."""
        command = self._distribution.command(self._home, "rabbitmqctl", "--quiet", *words)
        done = subprocess.run(
            command, env=self._env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise NotReady(f"rabbitmqctl {words[0]} failed: {done.stderr.strip()[-500:]}")
        return done.stdout

    def _configure(self) -> None:
        """Write the node's files anew: the definitions may have been exported since."""
        inside = self._distribution.inside(self._home)
        files = {
            "rabbitmq.conf": node.configuration(self._ports, inside / "definitions.json"),
            "advanced.config": node.advanced(self._consumer_timeout_ms),
            "enabled_plugins": "[rabbitmq_management,rabbitmq_prometheus].\n",
            "definitions.json": node.definitions(self._password, self._definitions),
        }
        for name, text in files.items():
            write_text(self._home / name, text)

    def _child(self, program: str, *words: str, name: str | None = None) -> Child:
        command = self._distribution.command(self._home, program, *words)
        return Child(name or program, command, state=self._state, env=self._env)

    @property
    def _env(self) -> dict[str, str]:
        own = node.environment(self._ports, self._distribution.inside(self._home))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RABBITMQ_", "ERL_"))}
        self._kept(".erlang.cookie", mode=0o400)
        return {**kept, **own}

    def _kept(self, name: str, *, mode: int = 0o600) -> str:
        """A secret made once for this state."""
        path = self._home / name
        if not path.exists():
            write_text(path, secrets.token_hex(16))
            path.chmod(mode)
        return path.read_text()


def _distribution(version: Version) -> Distribution:
    return broker43.debian_root() if version == broker43.VERSION else system_package()
