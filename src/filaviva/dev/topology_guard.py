"""Keeps what setup declared on the broker: exported once, put back when it is gone."""

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from filaviva.atomic import write_json
from filaviva.dev.http import call


@dataclass(frozen=True, slots=True)
class TopologyGuard:
    """Compares the broker with the exported definitions through its management API."""

    management: str
    file: Path

    def export(self) -> None:
        """Write down everything that is declared now; each boot of the node loads it."""
        write_json(self.file, call(self.management, "GET", "/api/definitions"))

    def step(self) -> bool:
        """Put back what is missing; tell whether something was."""
        wanted = json.loads(self.file.read_text())
        if not self._missing(wanted, "queues") and not self._missing(wanted, "exchanges"):
            return False
        call(self.management, "POST", "/api/definitions", wanted)
        return True

    def _missing(self, wanted: dict[str, list[dict[str, str]]], kind: str) -> bool:
        for vhost in {entry["vhost"] for entry in wanted[kind]}:
            names = {entry["name"] for entry in wanted[kind] if entry["vhost"] == vhost}
            present = call(
                self.management, "GET", f"/api/{kind}/{quote(vhost, safe='')}?columns=name"
            )
            if names - {entry["name"] for entry in present}:
                return True
        return False
