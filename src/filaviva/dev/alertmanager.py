"""An Alertmanager of our own for a while: the given routes, a webhook of ours, no waiting."""

import shutil
from pathlib import Path
from typing import Final

import yaml

from filaviva.atomic import write_text
from filaviva.dev.observer import Observer
from filaviva.dev.packages import require

PROGRAM: Final = "prometheus-alertmanager"
_HASTE: Final = {"group_wait": "0s", "group_interval": "1s"}


def embedded_alertmanager(state: Path, configuration: str, *, webhook: str) -> Observer:
    """Write its files; it knows no others of its kind."""
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
    return Observer(
        "alertmanager",
        PROGRAM,
        f"--config.file={home / 'alertmanager.yml'}",
        f"--storage.path={home / 'data'}",
        "--cluster.listen-address=",
        state=state,
    )
