"""Which dead letters a command means."""

from dataclasses import dataclass
from typing import Any

import typer

from filaviva.cli.ids import identifier, optional
from filaviva.operations.dead_letters import Filter


@dataclass(frozen=True, slots=True)
class Scope:
    """Ids, a group, or a filter: one of the three."""

    ids: tuple[str, ...] = ()
    group: str | None = None
    type: str | None = None
    error_class: str | None = None
    reason: str | None = None

    def letters(self) -> Filter:
        """Give the filter; everything at once has to be said, not left out."""
        filtered = any((self.type, self.error_class, self.reason))
        if sum((bool(self.ids), self.group is not None, filtered)) != 1:
            raise typer.BadParameter(
                "expected dead letters once: their ids, --group, or a filter "
                "(--type, --error-class, --dead-reason)"
            )
        return Filter(
            ids=tuple(sorted({identifier(each) for each in self.ids})) or None,
            group=optional(self.group),
            type=self.type,
            error_class=self.error_class,
            reason=self.reason,
        )

    def shown(self) -> dict[str, Any]:
        """Give it as the replay remembers it."""
        if self.ids:
            return {"ids": list(self.ids)}
        if self.group is not None:
            return {"group": self.group}
        names = {"type": self.type, "errorClass": self.error_class, "reason": self.reason}
        return {"filter": {name: value for name, value in names.items() if value is not None}}
