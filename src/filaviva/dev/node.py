"""What a private RabbitMQ node is told: ports, environment, configuration, definitions."""

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from filaviva.dev.ports import LOOPBACK, free_port

USER = "filaviva"
_NODE = "filaviva@localhost"  # its own epmd keeps it apart from every other node of this name
_LOOPBACK_ONLY = "-kernel inet_dist_use_interface {127,0,0,1}"


@dataclass(frozen=True, slots=True)
class Ports:
    """The node's ports, all on loopback."""

    amqp: int
    management: int
    prometheus: int
    distribution: int
    epmd: int

    @classmethod
    def choose(cls) -> Self:
        """Choose free ones."""
        return cls(*(free_port() for _ in range(5)))


def environment(ports: Ports, home: Path) -> dict[str, str]:
    """The variables for the node and for rabbitmqctl."""
    return {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "ERL_EPMD_PORT": str(ports.epmd),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CTL_ERL_ARGS": _LOOPBACK_ONLY,
        "RABBITMQ_DIST_PORT": str(ports.distribution),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(home / "generated"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_NODENAME": _NODE,
        "RABBITMQ_PID_FILE": str(home / "node.pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _LOOPBACK_ONLY,
        # Makes the start script become the node instead of waiting beside it.
        "RUNNING_UNDER_SYSTEMD": "true",
    }


def configuration(ports: Ports, definitions: Path) -> str:
    """The node's rabbitmq.conf."""
    settings = {
        "listeners.tcp.1": f"{LOOPBACK}:{ports.amqp}",
        "management.tcp.ip": LOOPBACK,
        "management.tcp.port": ports.management,
        "prometheus.tcp.ip": LOOPBACK,
        "prometheus.tcp.port": ports.prometheus,
        "load_definitions": definitions,
        "disk_free_limit.absolute": "256MB",
        "raft.wal_max_size_bytes": 64 * 1024 * 1024,
        "log.console": "true",
        "log.console.level": "warning",
        "log.file": "false",
    }
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


def advanced(consumer_timeout_ms: int | None) -> str:
    """The node's advanced.config: a consumer timeout, looked at often enough to be kept."""
    if consumer_timeout_ms is None:
        return "[].\n"
    tick = max(1000, min(consumer_timeout_ms // 4, 60_000))
    settings = f"{{consumer_timeout, {consumer_timeout_ms}}}, {{channel_tick_interval, {tick}}}"
    return f"[{{rabbit, [{settings}]}}].\n"


def definitions(password: str, exported: Path | None) -> str:
    """What the node loads at boot: what was exported, and always our own way in."""
    kept = _read(exported)
    ours: dict[str, list[dict[str, Any]]] = {
        "vhosts": [{"name": "/"}],
        "users": [
            {
                "name": USER,
                "password_hash": _hash(password),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": ["administrator"],
            }
        ],
        "permissions": [
            {"user": USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        ],
    }
    return json.dumps(kept | {key: _merged(kept.get(key, []), ours[key]) for key in ours})


def _read(exported: Path | None) -> dict[str, Any]:
    if exported is None or not exported.exists():
        return {}
    found = json.loads(exported.read_text())
    if not isinstance(found, dict):
        raise TypeError(f"{exported} holds a {type(found).__name__}, not definitions")
    return found


def _merged(kept: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[dict[str, Any]]:
    identity = ("name", "user", "vhost")
    own = {tuple(entry.get(key) for key in identity) for entry in ours}
    others = [entry for entry in kept if tuple(entry.get(key) for key in identity) not in own]
    return [*others, *ours]


def _hash(password: str) -> str:
    salt = secrets.token_bytes(4)
    digest = hashlib.sha256(salt + password.encode()).digest()
    return base64.b64encode(salt + digest).decode()
