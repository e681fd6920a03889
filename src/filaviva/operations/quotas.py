"""Admit submissions within their tenants' and subjects' limits, exactly, whoever else submits.

Before: checked submissions in the caller's transaction. After: tokens are taken for those that may
be stored; the others are named with the reason and when to come again.
May happen twice: a submission that is stored already is admitted for nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.database.fetch import fetch
from filaviva.errors import Rejected
from filaviva.limits import Limit, TenantLimits

Key: TypeAlias = tuple[str, str]

# How soon to come again when it is not known when one of the waiting jobs will begin.
_QUEUED_RETRY_SECONDS = 5.0

# Made first and locked after, both in key order; the lock lasts until the jobs are committed.
_MAKE = """
INSERT INTO filaviva.submission_keys (key, tokens)
SELECT key, burst FROM unnest($1::text[], $2::float8[]) AS x(key, burst) ORDER BY key
ON CONFLICT DO NOTHING
"""
_LOCK = """
SELECT key, tokens, extract(epoch FROM clock_timestamp() - filled_at)::float8, clock_timestamp()
FROM filaviva.submission_keys WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE
"""
_KEEP = """
UPDATE filaviva.submission_keys AS keys SET tokens = x.tokens, filled_at = x.filled_at
FROM unnest($1::text[], $2::float8[], $3::timestamptz[]) AS x(key, tokens, filled_at)
WHERE keys.key = x.key
"""
# Each look ends at the limit. Ranges instead of equality, in the order of the index of waiting
# jobs, so that the planner walks that one, whatever it believes about states. Of a batch only the
# items wait; and what we submit ourselves, such as callbacks to a receiver that is away for days,
# is nobody's submission.
_QUEUED = """
SELECT key, CASE WHEN subject IS NULL THEN (
    SELECT count(*) FROM (
        SELECT FROM filaviva.jobs WHERE state = 'queued'
            AND jobs.tenant >= x.tenant AND jobs.tenant <= x.tenant
            AND parked_reason IS DISTINCT FROM 'items' AND type NOT LIKE 'filaviva.%'
        ORDER BY jobs.tenant, jobs.subject LIMIT x.most) AS waiting)
ELSE (
    SELECT count(*) FROM (
        SELECT FROM filaviva.jobs WHERE state = 'queued'
            AND (jobs.tenant, jobs.subject) >= (x.tenant, x.subject)
            AND (jobs.tenant, jobs.subject) <= (x.tenant, x.subject)
            AND parked_reason IS DISTINCT FROM 'items' AND type NOT LIKE 'filaviva.%'
        ORDER BY jobs.tenant, jobs.subject LIMIT x.most) AS waiting)
END
FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) AS x(key, tenant, subject, most)
"""
_STORED = """
SELECT kept.* FROM unnest($1::text[], $2::text[]) AS wanted(tenant, key)
CROSS JOIN LATERAL (
    SELECT tenant, idempotency_key FROM filaviva.jobs
    WHERE jobs.tenant = wanted.tenant AND jobs.idempotency_key = wanted.key LIMIT 1) AS kept
"""


class Submission(Protocol):
    """What is looked at of a submission."""

    @property
    def tenant(self) -> str: ...
    @property
    def subject(self) -> str | None: ...
    @property
    def idempotency_key(self) -> str: ...
    @property
    def jobs(self) -> int: ...


@dataclass(slots=True)
class Account:
    """What one limited tenant or subject has left while its row is locked."""

    key: str
    tenant: str
    subject: str | None
    limit: Limit
    tokens: float = 0.0
    queued: int = 0
    filled_at: datetime | None = None

    @property
    def whose(self) -> str:
        return f"tenant {self.tenant}" if self.subject is None else f"subject {self.subject}"

    def refusal(self, jobs: int) -> Rejected | None:
        """Say why so many more jobs cannot be taken now."""
        limit = self.limit
        if limit.queued is not None and self.queued + jobs > limit.queued:
            detail = f"{self.whose} may have {limit.queued} jobs waiting: come again when some end"
            return _too_many("too_many_queued", detail, _QUEUED_RETRY_SECONDS)
        if limit.per_minute is None:
            return None
        # More jobs at once than ever fit are taken when all that fit would be, and paid off.
        missing = min(jobs, limit.burst or jobs) - self.tokens
        if missing <= 1e-9:  # noqa: PLR2004 - what adding up fractions loses
            return None
        detail = f"{self.whose} may submit {limit.per_minute:g} jobs a minute"
        return _too_many("rate_limited", detail, missing * 60 / limit.per_minute)

    def take(self, jobs: int) -> None:
        """Count these jobs as taken."""
        self.tokens -= jobs
        self.queued += jobs


def _too_many(code: str, detail: str, seconds: float) -> Rejected:
    return Rejected(code, detail, status=429, retry_after=seconds)


@dataclass(frozen=True, slots=True)
class Quotas:
    """The door of the submissions; without limits nobody stops at it."""

    limits: TenantLimits

    async def refusals(
        self, connection: AsyncConnection, wanted: Sequence[Submission]
    ) -> dict[Key, Rejected]:
        """Take what these submissions need; give those that get nothing, with the reason."""
        if not self.limits.on_submissions:
            return {}
        accounts = {each.key: each for one in wanted for each in self._accounts(one)}
        if not accounts:
            return {}
        await _lock(connection, accounts)
        concerned = [one for one in wanted if self._accounts(one)]
        stored = await _stored(connection, concerned)
        await _count(connection, accounts.values())
        refused: dict[Key, Rejected] = {}
        for one in concerned:
            if _key(one) not in stored:
                mine = [accounts[each.key] for each in self._accounts(one)]
                refusal = _admit(mine, one.jobs)
                if refusal is not None:
                    refused[_key(one)] = refusal
        await _keep(connection, accounts.values())
        return refused

    def _accounts(self, one: Submission) -> list[Account]:
        whole = self.limits.tenant(one.tenant)
        user = self.limits.subject(one.tenant, one.subject)
        accounts = []
        if whole.submissions:
            accounts.append(Account(f"tenant:{one.tenant}", one.tenant, None, whole))
        if user.submissions:
            key = f"subject:{one.tenant}/{one.subject}"
            accounts.append(Account(key, one.tenant, one.subject, user))
        return accounts


def _admit(accounts: Iterable[Account], jobs: int) -> Rejected | None:
    mine = list(accounts)
    refusals = [refusal for each in mine if (refusal := each.refusal(jobs)) is not None]
    if refusals:
        return max(refusals, key=_pause)
    for each in mine:
        each.take(jobs)
    return None


def _pause(refusal: Rejected) -> float:
    return refusal.retry_after or 0.0


def _key(one: Submission) -> Key:
    return one.tenant, one.idempotency_key


async def _lock(connection: AsyncConnection, accounts: Mapping[str, Account]) -> None:
    keys = sorted(accounts)
    bursts = [accounts[key].limit.burst or 0.0 for key in keys]
    found: Sequence[Any] = ()
    while len(found) < len(keys):  # one that nobody used for long may go in between
        await fetch(connection, _MAKE, (keys, bursts))
        found = await fetch(connection, _LOCK, (keys,))
    for key, tokens, seconds, now in found:
        account = accounts[key]
        pace, burst = account.limit.per_minute, account.limit.burst
        if pace is not None and burst is not None:
            account.tokens = min(burst, tokens + max(0.0, seconds) * pace / 60)
        account.filled_at = now


async def _stored(connection: AsyncConnection, wanted: Sequence[Submission]) -> set[Key]:
    # After the lock: who submitted the same a moment ago has committed by now.
    keys = [_key(one) for one in wanted]
    arguments = ([tenant for tenant, _ in keys], [key for _, key in keys])
    return {(row[0], row[1]) for row in await fetch(connection, _STORED, arguments)}


async def _count(connection: AsyncConnection, accounts: Iterable[Account]) -> None:
    counted = {each.key: each for each in accounts if each.limit.queued is not None}
    if not counted:
        return
    columns = (
        list(counted),
        [each.tenant for each in counted.values()],
        [each.subject for each in counted.values()],
        [each.limit.queued for each in counted.values()],
    )
    for key, queued in await fetch(connection, _QUEUED, columns):
        counted[key].queued = queued


async def _keep(connection: AsyncConnection, accounts: Iterable[Account]) -> None:
    paced = [each for each in accounts if each.limit.per_minute is not None]
    if paced:
        columns = (
            [each.key for each in paced],
            [each.tokens for each in paced],
            [each.filled_at for each in paced],
        )
        await fetch(connection, _KEEP, columns)
