"""A Prometheus of our own for a while, on a free port: the machine's program, our configuration."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from filaviva.dev.atomic import write_text
from filaviva.dev.child import Child
from filaviva.dev.http import answers_ok
from filaviva.dev.packages import require
from filaviva.dev.ports import LOOPBACK, free_port

PROGRAM: Final = "prometheus"


class EmbeddedPrometheus:
    """One server with an empty store."""

    def __init__(
        self, state: Path, configuration: Mapping[str, Any], rules: Mapping[str, str]
    ) -> None:
        require("prometheus", present=PROGRAM)
        home = state / "prometheus"
        shutil.rmtree(home, ignore_errors=True)
        for name, text in rules.items():
            write_text(home / "rules" / name, text)
        told = {**configuration, "rule_files": [*configuration.get("rule_files", ())]}
        if rules:
            told["rule_files"].append(str(home / "rules" / "*.yml"))
        write_text(home / "prometheus.yml", yaml.safe_dump(told, sort_keys=False))
        self.port = free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.child = Child(
            "prometheus",
            [
                PROGRAM,
                f"--config.file={home / 'prometheus.yml'}",
                f"--storage.tsdb.path={home / 'data'}",
                f"--web.listen-address={LOOPBACK}:{self.port}",
                "--log.level=warn",
            ],
            state=state,
        )

    def launch(self) -> None:
        """Start it without waiting."""
        self.child.start()

    def ready(self) -> bool:
        """Tell whether it answers questions."""
        return self.child.alive and answers_ok(self.port, "/-/ready")

    def stop(self) -> None:
        """End it; what it has stored is nobody's."""
        self.child.kill()
