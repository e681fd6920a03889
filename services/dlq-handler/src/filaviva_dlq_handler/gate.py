"""Each message once: the inbox of the dlq-handler, which also tells reused ids from repetitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva_dlq_handler.arrival import Arrival

CONSUMER = "dlq-handler"

_ENTER = """
INSERT INTO filaviva.inbox AS inbox (consumer, message_id, body_hash)
SELECT $1, key, hash FROM unnest($2::text[], $3::bytea[]) AS x(key, hash) ORDER BY key
ON CONFLICT (consumer, message_id) DO UPDATE SET duplicates = inbox.duplicates + 1
RETURNING message_id, body_hash, duplicates
"""


@dataclass(frozen=True, slots=True)
class Entered:
    """Who came in: new ones, those whose id was used for something else before, and repeaters."""

    first: Sequence[Arrival]
    reused: Sequence[Arrival]
    duplicates: int


async def enter(connection: AsyncConnection, arrivals: Sequence[Arrival]) -> Entered:
    """Let each message in once; one without an id always, since nothing tells it apart."""
    nameless = [arrival for arrival in arrivals if arrival.key is None]
    named: dict[str, Arrival] = {}
    clashing: list[Arrival] = []
    for arrival in arrivals:
        if arrival.key is None:
            continue
        same = named.setdefault(arrival.key, arrival)
        if same.body_hash != arrival.body_hash:
            clashing.append(arrival)
    known = await _known(connection, {key: one.body_hash for key, one in named.items()})
    first = [one for key, one in named.items() if known[key] is None]
    clashing += [one for key, one in named.items() if known[key] not in (None, one.body_hash)]
    reused = await _reused(connection, clashing)
    passed = [*nameless, *first]
    return Entered(passed, reused, len(arrivals) - len(passed) - len(reused))


async def _reused(connection: AsyncConnection, clashing: Sequence[Arrival]) -> list[Arrival]:
    # An id that was used for another message is no reason to lose this one: its bytes name it.
    named = {f"{one.key}|{one.body_hash.hex()}": one for one in clashing}
    known = await _known(connection, {key: one.body_hash for key, one in named.items()})
    return [one for key, one in named.items() if known[key] is None]


async def _known(
    connection: AsyncConnection, hashes: Mapping[str, bytes]
) -> dict[str, bytes | None]:
    """Record the keys; give the hash under which each was known before, None for a new one."""
    if not hashes:
        return {}
    keys = sorted(hashes)
    arguments = (CONSUMER, keys, [hashes[key] for key in keys])
    found = await connection.exec_driver_sql(_ENTER, arguments)
    return {row.message_id: row.body_hash if row.duplicates else None for row in found}
