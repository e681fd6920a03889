"""Can what is on its way be read, and is what is published what was released."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.evolution.folder import Folder, schema_path
from filaviva.evolution.terms import read_terms
from filaviva.few import few
from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.production.sight import Sight
from filaviva.operations.in_flight import InFlight, in_flight, unreadable

_SHOWN: Final = 3
_SOON_DAYS: Final = 30

_SUNSETS: Final = """
SELECT type, version, contracts.sunset - current_date AS days, count(DISTINCT source) AS senders
FROM filaviva.contracts JOIN filaviva.contract_uses USING (type, version)
WHERE sunset BETWEEN current_date AND current_date + $1::int AND deprecated_at IS NULL
    AND day > current_date - 7
GROUP BY 1, 2, 3 ORDER BY 3, 1, 2
"""
_PUBLISHED: Final = """
SELECT DISTINCT ON (coalesce(event, type), version) coalesce(event, type) AS type, version, schema
FROM filaviva.contracts WHERE deprecated_at IS NULL AND type NOT LIKE 'filaviva.%'
ORDER BY coalesce(event, type), version
"""


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Look at what waits, what ends soon, and what is published."""
    async with sight.connect() as connection:
        yield readable(await in_flight(connection))
        yield await _sunsets(connection)
        yield await _published(connection, sight.asked.project)


def readable(found: Sequence[InFlight]) -> Finding:
    check, stranded = "in flight", unreadable(found)
    strange = [each for each in found if each.readable == "unknown"]
    messages = sum(each.messages for each in found)
    if not stranded and not strange:
        return ok(check, f"{messages} messages wait or may be sent back; who runs reads them all")
    if not stranded:
        return attention(
            check,
            f"of types that no app has published: {_told(strange)}",
            "deploy their app and run `filaviva setup`, or see what they are: "
            "`filaviva contracts in-flight` lists all",
            expected="every version that waits, pauses or is dead has its app",
        )
    return wrong(
        check,
        f"nobody who runs reads {_told(stranded)}",
        "deploy workers that read them, or an upcaster: docs/howto/evolve-a-contract.md; "
        "`filaviva contracts in-flight` lists all",
        expected="live workers read every version that waits, pauses or is dead",
    )


def _told(found: Sequence[InFlight]) -> str:
    shown = found[:_SHOWN]
    named = [f"{each.messages} of {each.type} v{each.version} ({each.place})" for each in shown]
    rest = sum(each.messages for each in found[_SHOWN:])
    return ", ".join([*named, f"{rest} of others"] if rest else named)


async def _sunsets(connection: AsyncConnection) -> Finding:
    soon = (await connection.exec_driver_sql(_SUNSETS, (_SOON_DAYS,))).all()
    if not soon:
        return ok("sunsets", f"no version in use ends within {_SOON_DAYS} days")
    told = ", ".join(
        f"{row.type} v{row.version} in {row.days} days ({row.senders} senders)"
        for row in soon[:_SHOWN]
    )
    next_step = "ask who they are: `filaviva contracts uses`; help them move, or give a later day"
    return attention(
        "sunsets", f"still sent: {told}", next_step, expected="nobody sends it by then"
    )


async def _published(connection: AsyncConnection, project: Path | None) -> Finding:
    check = "released contracts"
    expected = "what is published is what was released, to the letter"
    if project is None:
        look = "name the folder of your app: `--project DIR` (with its pyproject.toml, contracts/)"
        return unknown(check, "nobody said where they are", look, expected=expected)
    rows = await connection.exec_driver_sql(_PUBLISHED)
    schemas = {(row.type, row.version): row.schema for row in rows}
    folder = Folder.open(read_terms(project).folder)
    odd = sorted(_odd(folder, schemas))
    if not odd:
        return ok(check, f"{len(schemas)} versions are published as they were released")
    next_step = "`filaviva contracts check`, then `filaviva contracts release` and `filaviva setup`"
    told = few(odd, _SHOWN, between="; ", last="; and")
    found = f"compared with {folder.root}: {told}"
    return wrong(check, found, next_step, expected=expected)


def _odd(folder: Folder, published: Mapping[tuple[str, int], Any]) -> list[str]:
    told = []
    for key, schema in published.items():
        path, name = schema_path(key, "data"), f"{key[0]} v{key[1]}"
        if path not in folder.released:
            told.append(f"{name} is published and was never released")
        elif folder.read(path) != schema:
            told.append(f"{name} is published with another schema than was released")
    here = {key for key in published if schema_path(key, "data") in folder.released}
    for place in folder.places(folder.released):
        current = place.path == schema_path(place.key, "data")
        if current and place.key not in here and folder.retirement(place.key) is None:
            told.append(f"{place.type} v{place.version} was released and is not published")
    return told
