"""PostgreSQL as production needs it: what keeps commits, enough connections, vacuum, copies."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.production.sight import Process, Sight

_FULL: Final = 0.8
_LEAST_BUFFERS: Final = 256 * 2**20
# LISTEN, the heartbeat and the like, which no pool counts.
_BESIDE: Final = 4
_MIGRATIONS: Final = 5

_SETTINGS: Final = """
SELECT name, setting, unit FROM pg_settings WHERE name = ANY($1::text[])
"""
_NAMES: Final = (
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "synchronous_standby_names",
    "autovacuum",
    "data_checksums",
    "max_connections",
    "superuser_reserved_connections",
    "shared_buffers",
    "archive_mode",
    "max_wal_senders",
    "server_version",
)
_BACKENDS: Final = """
SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend'
"""
_ARCHIVER: Final = """
SELECT last_archived_time, last_failed_time,
    coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false) AS failing
FROM pg_stat_archiver
"""
_STANDBYS: Final = "SELECT count(*)::int FROM pg_stat_replication"
_VACUUM_OFF: Final = """
SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace('filaviva')
    AND reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off']
"""


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Look at settings, connections and copies."""
    async with sight.connect() as connection:
        rows = await connection.exec_driver_sql(_SETTINGS, (list(_NAMES),))
        settings = {row.name: row.setting for row in rows}
        off = [row[0] for row in await connection.exec_driver_sql(_VACUUM_OFF)]
        for finding in (*_durable(settings), _vacuum(settings, off), _memory(settings)):
            yield finding
        used = (await connection.exec_driver_sql(_BACKENDS)).scalar_one()
        yield connections(settings, sight.known(), used)
        async for finding in _copies(connection, settings):
            yield finding


def _durable(settings: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("fsync", "full_page_writes"):
        if settings[name] == "off":
            found = f"{name} is off: a power cut may ruin the whole database"
            yield wrong("commits", found, f"set {name} = on", expected="on")
            return
    if settings["synchronous_commit"] == "off":
        yield wrong(
            "commits",
            "synchronous_commit is off: a job that was accepted may be gone after a crash",
            "set synchronous_commit = on (or local, with a standby that may lag)",
            expected="on: accepted means kept",
        )
    else:
        yield ok("commits", f"kept (synchronous_commit {settings['synchronous_commit']})")
    if settings.get("data_checksums") == "off":
        told = "off: a page that the disk has ruined is not noticed"
        turn_on = "pg_checksums --enable, while the server is stopped"
        yield attention("checksums", told, turn_on, expected="on")
    else:
        yield ok("checksums", "on")


def _vacuum(settings: Mapping[str, str], tables_without: Sequence[str]) -> Finding:
    if settings["autovacuum"] == "off" or tables_without:
        where = ", ".join(tables_without) or "everywhere"
        return wrong(
            "autovacuum",
            f"off for {where}: queue tables grow without end, and statements slow down",
            "turn it on again",
            expected="on, with the thresholds that our migrations set",
        )
    return ok("autovacuum", "on")


def _memory(settings: Mapping[str, str]) -> Finding:
    size = int(settings["shared_buffers"]) * 8192
    told = f"shared_buffers {size / 2**20:.0f} MiB"
    if size < _LEAST_BUFFERS:
        grow = "set shared_buffers to a quarter of the machine's memory"
        return attention("memory", told, grow, expected="256 MiB or more")
    return ok("memory", told)


def connections(settings: Mapping[str, str], live: Sequence[Process], used: int) -> Finding:
    """Compare what all processes may open with what the server grants."""
    most = int(settings["max_connections"]) - int(settings["superuser_reserved_connections"])
    wanted = sum(map(_most_of, live)) + _MIGRATIONS
    told = f"{used} are open; {len(live)} processes may open {wanted}, the server grants {most}"
    expected = f"all pools within {_FULL:.0%} of what the server grants"
    fewer = "raise max_connections, or lower FILAVIVA_POSTGRES__POOL_SIZE, or put a pooler between"
    if wanted > most or used > most:
        return wrong("connections", told, fewer, expected=expected)
    if wanted > _FULL * most:
        return attention("connections", told, fewer, expected=expected)
    return ok("connections", told)


def _most_of(process: Process) -> int:
    pool = int(process.settings.get("poolSize", 0))
    # A worker has a second pool, for ctx.transaction().
    return pool * (2 if process.service == "worker" else 1) + _BESIDE


async def _copies(
    connection: AsyncConnection, settings: Mapping[str, str]
) -> AsyncIterator[Finding]:
    standbys = (await connection.exec_driver_sql(_STANDBYS)).scalar_one()
    names = settings["synchronous_standby_names"]
    if standbys:
        how = (
            f"synchronous: {names}"
            if names
            else "asynchronous: a failover may lose the last commits"
        )
        yield ok("standby", f"{standbys} follow ({how})")
    else:
        yield attention(
            "standby",
            "nobody follows, as far as this user may see",
            "run a standby, or know how long a restore takes: nothing works meanwhile",
            expected="one at least",
        )
    yield await _archive(connection, settings)
    yield unknown(
        "backups",
        "they cannot be seen from here",
        "restore the newest one into an empty server, and run `filaviva doctor` on it",
        expected="one that was restored, and is younger than what you may lose",
    )


async def _archive(connection: AsyncConnection, settings: Mapping[str, str]) -> Finding:
    check, expected = "archive of the log", "archive_mode on, and nothing fails"
    if settings["archive_mode"] == "off":
        turn_on = "archive the write-ahead log, or let your provider's point-in-time recovery do it"
        return attention(check, "archive_mode is off", turn_on, expected=expected)
    row: Any = (await connection.exec_driver_sql(_ARCHIVER)).one()
    if row.failing:
        told = f"the last try failed at {row.last_failed_time:%Y-%m-%d %H:%M} UTC"
        return wrong(check, told, "see archive_command and the server's log", expected=expected)
    return ok(check, f"last at {row.last_archived_time or 'no time yet'}")
