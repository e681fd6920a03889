"""What the published contracts need of the broker: their queues, and which events go to them."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.app import App
from filaviva.broker.topology import Declarations, Topology
from filaviva_contracts.names import wire_type

_ROUTES: Final = """
SELECT queue, event, version, deprecated_at IS NULL AS live
FROM filaviva.contracts WHERE queue IS NOT NULL ORDER BY queue, event, version
"""


@dataclass(frozen=True, slots=True)
class Routes:
    """Queues, and (routing key, queue) of each event: handled there, or not any more."""

    queues: frozenset[str] = frozenset()
    events: frozenset[tuple[str, str]] = frozenset()
    gone: frozenset[tuple[str, str]] = frozenset()

    def with_app(self, app: App | None) -> "Routes":
        """Add what an app will need once it is published."""
        if app is None:
            return self
        events = self.events | {
            (wire_type(handler.event, version), handler.queue)
            for kind, versions in app.reads().items()
            for version in versions
            if (handler := app.find(kind, version)) is not None and handler.event is not None
        }
        return Routes(self.queues | set(app.queues), events, self.gone - events)

    def after(self, before: "Routes") -> "Routes":
        """Say too what is gone since then: a handler may have moved to another queue."""
        gone = (before.events | before.gone | self.gone) - self.events
        return Routes(self.queues, self.events, gone)

    def declarations(self, topology: Topology | None = None) -> Declarations:
        """Give what has to be on the broker for them."""
        topology = topology or Topology()
        return topology.declarations(
            sorted(self.queues), sorted(self.events), gone=sorted(self.gone)
        )


async def routes(connection: AsyncConnection) -> Routes:
    """Read them from the registry; what is deprecated keeps its queue, but gets no event."""
    rows = list(await connection.exec_driver_sql(_ROUTES))
    pairs = [(wire_type(row.event, row.version), row.queue, row.live) for row in rows if row.event]
    live = frozenset((key, queue) for key, queue, lives in pairs if lives)
    known = frozenset((key, queue) for key, queue, _ in pairs)
    return Routes(frozenset(row.queue for row in rows), live, known - live)
