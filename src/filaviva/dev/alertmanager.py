"""An Alertmanager of our own for a while: the committed routes, a webhook of ours, no waiting."""

import shutil
from pathlib import Path
from typing import Final

import yaml

from filaviva.dev.atomic import write_text
from filaviva.dev.child import Child
from filaviva.dev.http import answers_ok
from filaviva.dev.packages import require
from filaviva.dev.ports import LOOPBACK, free_port

PROGRAM: Final = "prometheus-alertmanager"
_HASTE: Final = {"group_wait": "0s", "group_interval": "1s"}


class EmbeddedAlertmanager:
    """One server that knows no others."""

    def __init__(self, state: Path, configuration: str, *, webhook: str) -> None:
        require("prometheus-alertmanager", present=PROGRAM)
        home = state / "alertmanager"
        shutil.rmtree(home, ignore_errors=True)
        write_text(home / "webhook", webhook)
        told = yaml.safe_load(configuration)
        for receiver in told["receivers"]:
            for slack in receiver.get("slack_configs", ()):
                slack["api_url_file"] = str(home / "webhook")
        for route in (told["route"], *told["route"]["routes"]):
            route.update(_HASTE)
        write_text(home / "alertmanager.yml", yaml.safe_dump(told, sort_keys=False))
        self.port = free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.child = Child(
            "alertmanager",
            [
                PROGRAM,
                f"--config.file={home / 'alertmanager.yml'}",
                f"--storage.path={home / 'data'}",
                f"--web.listen-address={LOOPBACK}:{self.port}",
                "--cluster.listen-address=",
                "--log.level=warn",
            ],
            state=state,
        )

    def launch(self) -> None:
        """Start it without waiting."""
        self.child.start()

    def ready(self) -> bool:
        """Tell whether it takes alerts."""
        return self.child.alive and answers_ok(self.port, "/-/ready")

    def stop(self) -> None:
        """End it."""
        self.child.kill()
