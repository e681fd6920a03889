"""Remove rows of the other tables whose time is over, a small batch each.

Before: a message is known, a letter closed, a deed recorded for longer than it has to be.
After: the row is gone. May happen twice: the second time there is nothing.
"""

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.settings import REDELIVERY_DAYS

_BLOCKS = """
SELECT pg_relation_size('filaviva.inbox') / current_setting('block_size')::bigint
"""
# Block after block as it lies on the disk: no index on the hot table is paid for this. Who replays
# a letter of an event gives it to all its handlers once more: while one is open, what they had
# before is not forgotten, nor what may have been on its way for as long as a queue keeps it.
_INBOX = """
WITH letters AS MATERIALIZED (
    SELECT coalesce(min(created_at) - 86400 * $4::float8 * interval '1 second', 'infinity') AS since
    FROM filaviva.dead_letters WHERE status IN ('open', 'replaying') AND job_id IS NULL),
old AS MATERIALIZED (
    SELECT consumer, message_id FROM filaviva.inbox
    WHERE ctid >= format('(%s,0)', $1::bigint)::tid AND ctid < format('(%s,0)', $2::bigint)::tid
        AND received_at < now() - 86400 * $3::float8 * interval '1 second'
        AND (consumer NOT LIKE 'event:%' OR received_at < (SELECT since FROM letters))
    ORDER BY consumer, message_id FOR UPDATE SKIP LOCKED)
DELETE FROM filaviva.inbox AS inbox USING old
WHERE inbox.consumer = old.consumer AND inbox.message_id = old.message_id
"""
_LETTERS = """
WITH old AS MATERIALIZED (
    SELECT id FROM filaviva.dead_letters
    WHERE closed_at < now() - 86400 * $1::float8 * interval '1 second'
        AND status IN ('resolved', 'discarded')
    ORDER BY closed_at LIMIT $2 FOR UPDATE SKIP LOCKED),
listed AS (DELETE FROM filaviva.replay_letters WHERE dead_letter_id IN (SELECT id FROM old))
SELECT id FROM old
"""
_CLOSED = "DELETE FROM filaviva.dead_letters WHERE id = ANY($1::uuid[])"
_REPLAYS = """
DELETE FROM filaviva.replays WHERE id IN (
    SELECT id FROM filaviva.replays
    WHERE finished_at < now() - 86400 * $1::float8 * interval '1 second' AND NOT EXISTS (
        SELECT FROM filaviva.replay_letters WHERE replay_letters.replay_id = replays.id)
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
_GROUPS = """
SELECT id FROM filaviva.failure_groups
WHERE last_seen_at < now() - 86400 * $1::float8 * interval '1 second' AND NOT EXISTS (
    SELECT FROM filaviva.dead_letters WHERE dead_letters.group_id = failure_groups.id)
ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
"""
# A statement of its own after the locks: a letter may have come in between.
_EMPTY = """
SELECT id FROM filaviva.failure_groups WHERE id = ANY($1::uuid[]) AND NOT EXISTS (
    SELECT FROM filaviva.dead_letters WHERE dead_letters.group_id = failure_groups.id)
"""
_ALERTS = "DELETE FROM filaviva.notifications WHERE group_id = ANY($1::uuid[])"
_GROUP = "DELETE FROM filaviva.failure_groups WHERE id = ANY($1::uuid[])"
# The ids are in the order of time, near enough; so the oldest are found without an index.
_AUDIT = """
DELETE FROM filaviva.audit_log WHERE id IN (
    SELECT id FROM (SELECT id, at FROM filaviva.audit_log ORDER BY id LIMIT $2) AS oldest
    WHERE at < now() - 86400 * $1::float8 * interval '1 second')
"""
_TOMBSTONES = """
DELETE FROM filaviva.tombstones WHERE job_id IN (
    SELECT job_id FROM filaviva.tombstones
    WHERE gone_at < now() - 86400 * $1::float8 * interval '1 second'
    ORDER BY gone_at LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
# What it held has long come back: without the row, the next submission finds it as it would be. A
# subject is an end user, and not kept for longer than needed.
_KEYS = """
DELETE FROM filaviva.submission_keys WHERE key IN (
    SELECT key FROM filaviva.submission_keys WHERE filled_at < now() - interval '7 days'
    LIMIT $1 FOR UPDATE SKIP LOCKED)
"""
_USES = """
DELETE FROM filaviva.contract_uses AS uses USING (
    SELECT type, version, day, source FROM filaviva.contract_uses
    WHERE day < now() - 86400 * $1::float8 * interval '1 second'
    ORDER BY type, version, day, source LIMIT $2 FOR UPDATE SKIP LOCKED) AS old
WHERE (uses.type, uses.version, uses.day, uses.source)
    = (old.type, old.version, old.day, old.source)
"""
# Who looks at workers looks at the last ten minutes; one that comes back makes its row again.
_WORKERS = """
DELETE FROM filaviva.workers WHERE id IN (
    SELECT id FROM filaviva.workers
    WHERE last_seen_at < now() - greatest(86400 * $1::float8 * interval '1 second', '1 hour')
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
"""
_PROCESSES = _WORKERS.replace("filaviva.workers", "filaviva.processes")
# What an open letter still names is kept: it may be sent back.
_CONTENTS = """
DELETE FROM filaviva.contents AS contents USING (
    SELECT tenant, sha256 FROM filaviva.contents AS unused
    WHERE used_at < now() - 86400 * $1::float8 * interval '1 second' AND NOT EXISTS (
        SELECT FROM filaviva.dead_letters AS letter
        WHERE letter.status IN ('open', 'replaying') AND letter.job_id IS NULL
            AND position(convert_to(encode(unused.sha256, 'hex'), 'UTF8') IN letter.raw) > 0)
    ORDER BY tenant, sha256 LIMIT $2 FOR UPDATE SKIP LOCKED) AS old
WHERE contents.tenant = old.tenant AND contents.sha256 = old.sha256
"""
_SAMPLES = """
DELETE FROM filaviva.contract_samples AS sample USING (
    SELECT type, version, hash FROM filaviva.contract_samples
    WHERE last_seen_at < now() - 86400 * $1::float8 * interval '1 second'
    ORDER BY type, version, hash LIMIT $2 FOR UPDATE SKIP LOCKED) AS old
WHERE (sample.type, sample.version, sample.hash) = (old.type, old.version, old.hash)
"""


async def inbox_blocks(connection: AsyncConnection) -> int:
    """Tell how many blocks the inbox has."""
    ((blocks,),) = await fetch(connection, _BLOCKS)
    return int(blocks)


async def inbox(connection: AsyncConnection, first: int, last: int, days: float) -> int:
    """Forget the messages in these blocks that came so long ago; return how many."""
    arguments = (first, last, days, REDELIVERY_DAYS)
    return (await connection.exec_driver_sql(_INBOX, arguments)).rowcount


async def dead_letters(connection: AsyncConnection, days: float, limit: int) -> int:
    """Remove closed letters, the replays that are left without, and groups without any."""
    letters = [row[0] for row in await fetch(connection, _LETTERS, (days, limit))]
    await connection.exec_driver_sql(_CLOSED, (letters,))
    replays = (await connection.exec_driver_sql(_REPLAYS, (days, limit))).rowcount
    old = [row[0] for row in await fetch(connection, _GROUPS, (days, limit))]
    groups = [row[0] for row in await fetch(connection, _EMPTY, (old,))]
    await connection.exec_driver_sql(_ALERTS, (groups,))
    await connection.exec_driver_sql(_GROUP, (groups,))
    return len(letters) + replays + len(groups)


async def audit_log(connection: AsyncConnection, days: float, limit: int) -> int:
    """Remove entries of the audit log."""
    return (await connection.exec_driver_sql(_AUDIT, (days, limit))).rowcount


async def tombstones(connection: AsyncConnection, days: float, limit: int) -> int:
    """Forget jobs that went so long ago."""
    return (await connection.exec_driver_sql(_TOMBSTONES, (days, limit))).rowcount


async def submission_keys(connection: AsyncConnection, limit: int) -> int:
    """Forget what tenants and subjects have left, where nobody has asked for a week."""
    return (await connection.exec_driver_sql(_KEYS, (limit,))).rowcount


async def workers(connection: AsyncConnection, days: float, limit: int) -> int:
    """Forget workers that have been silent for so long, and for an hour at least."""
    return (await connection.exec_driver_sql(_WORKERS, (days, limit))).rowcount


async def processes(connection: AsyncConnection, days: float, limit: int) -> int:
    """Forget processes that have been silent for so long, and for an hour at least."""
    return (await connection.exec_driver_sql(_PROCESSES, (days, limit))).rowcount


async def contract_uses(connection: AsyncConnection, days: float, limit: int) -> int:
    """Forget who used which version of a contract so long ago."""
    return (await connection.exec_driver_sql(_USES, (days, limit))).rowcount


async def contents(connection: AsyncConnection, days: float, limit: int) -> int:
    """Remove contents that nobody has put or read for so long."""
    return (await connection.exec_driver_sql(_CONTENTS, (days, limit))).rowcount


async def contract_samples(connection: AsyncConnection, days: float, limit: int) -> int:
    """Forget outlines of what was last seen so long ago."""
    return (await connection.exec_driver_sql(_SAMPLES, (days, limit))).rowcount
