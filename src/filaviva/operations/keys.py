"""API keys: made once, shown once, kept as a hash, honoured until revoked.

Before: a token in a request. After: whose it is and what it may do, or nothing.
May happen twice: every look-up; a revoked key is refused within two seconds everywhere.
"""

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Row, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.tables import api_keys
from filaviva.errors import Flaw, NotFound, Rejected
from filaviva.operations import audit
from filaviva.tenants import EXPECTED, is_tenant
from filaviva_contracts.names import event_of

SCOPES: Final = ("jobs:write", "jobs:read", "jobs:cancel", "dlq:read", "dlq:replay", "admin")

_TOKEN = re.compile(r"fv_([0-9a-z]{12})_([0-9a-zA-Z_-]{40,64})", re.ASCII)
_ID_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_REMEMBERED = 4096
_LONGEST_NAME = 200


# At most one write a minute and key, whatever the number of requests and processes.
_USED = text(
    "UPDATE filaviva.api_keys SET last_used_at = clock_timestamp() WHERE id = :key_id AND "
    "(last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 minute')"
)


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new key; the token is shown here and never again."""

    id: str
    token: str
    tenant: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is listed: without its secret, which nobody has."""

    id: str
    name: str
    tenant: str
    scopes: tuple[str, ...]
    types: tuple[str, ...] | None
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a key of one tenant with its rights (`types` None: every job type)."""

    key_id: str
    tenant: str
    scopes: frozenset[str]
    types: frozenset[str] | None = None

    def may(self, scope: str) -> bool:
        """Tell whether the key has this scope; `admin` has all."""
        return scope in self.scopes or "admin" in self.scopes

    def may_use(self, job_type: str) -> bool:
        """Tell whether the key may act on jobs of this type; with an event's, of its handlers."""
        wanted = (job_type, event_of(job_type))
        return self.types is None or not self.types.isdisjoint(wanted)


async def create(  # noqa: PLR0913 - what a key is made of
    engine: AsyncEngine,
    *,
    name: str,
    tenant: str,
    scopes: Sequence[str],
    types: Sequence[str] | None = None,
    expires_at: datetime | None = None,
    author: str = "system",
) -> CreatedKey:
    """Make a key and return its token, which is not stored and cannot be shown again."""
    _check(name, tenant, scopes, expires_at)
    key_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(12))
    token = f"fv_{key_id}_{secrets.token_hex(32)}"
    wanted = sorted(set(scopes))
    async with engine.begin() as connection:
        await connection.execute(
            insert(api_keys).values(
                id=key_id,
                tenant=tenant,
                name=name,
                hash=_hash(token),
                scopes=wanted,
                types=None if types is None else sorted(set(types)),
                created_at=func.clock_timestamp(),
                expires_at=expires_at,
            )
        )
        facts = {"name": name, "scopes": wanted, "types": types, "expiresAt": expires_at}
        await audit.record(
            connection,
            author=author,
            action="key.created",
            tenant=tenant,
            target=key_id,
            detail=facts,
        )
    return CreatedKey(key_id, token, tenant, tuple(wanted))


async def list_keys(engine: AsyncEngine, *, tenant: str | None = None) -> list[Key]:
    """List keys, newest first; of one tenant or of all."""
    wanted = select(*(api_keys.c[name] for name in Key.__dataclass_fields__)).order_by(
        api_keys.c.created_at.desc(), api_keys.c.id
    )
    if tenant is not None:
        wanted = wanted.where(api_keys.c.tenant == tenant)
    async with engine.connect() as connection:
        return [_listed(row) for row in await connection.execute(wanted)]


async def revoke(engine: AsyncEngine, key_id: str, *, author: str = "system") -> None:
    """Revoke a key for good; revoking it again changes nothing."""
    async with engine.begin() as connection:
        row = (
            await connection.execute(
                update(api_keys)
                .where(api_keys.c.id == key_id)
                .values(revoked_at=func.coalesce(api_keys.c.revoked_at, func.clock_timestamp()))
                .returning(api_keys.c.tenant)
            )
        ).one_or_none()
        if row is None:
            raise NotFound(f"no key has the id {key_id!r}")
        await audit.record(
            connection, author=author, action="key.revoked", tenant=row.tenant, target=key_id
        )


async def authenticate(connection: AsyncConnection, token: str) -> Principal | None:
    """Tell whose token this is; None if it is nobody's, revoked or expired."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        return None
    known = await _read(connection, found[1])
    return known.principal if known is not None and known.matches(token) else None


@dataclass(frozen=True, slots=True)
class _Known:
    hash: bytes
    principal: Principal

    def matches(self, token: str) -> bool:
        return hmac.compare_digest(self.hash, _hash(token))


class KeyRing:
    """Authenticate from memory for a moment: one look-up per key and second, not per request."""

    def __init__(self, engine: AsyncEngine, *, remember_seconds: float = 1.0) -> None:
        self._engine = engine
        self._remember = remember_seconds
        self._found: dict[str, tuple[float, _Known | None]] = {}
        self._asking: dict[str, asyncio.Task[_Known | None]] = {}

    async def authenticate(self, token: str) -> Principal | None:
        """Tell whose token this is; None if it is nobody's, revoked or expired."""
        parts = _TOKEN.fullmatch(token)
        if parts is None:
            return None
        until, known = self._found.get(parts[1], (0.0, None))
        if until <= time.monotonic():
            known = await self._ask(parts[1])
        return known.principal if known is not None and known.matches(token) else None

    async def _ask(self, key_id: str) -> _Known | None:
        # All who come while the question is open share its answer; the shield keeps one caller's
        # cancellation from the others.
        asking = self._asking.get(key_id)
        if asking is None:
            asking = asyncio.create_task(self._look_up(key_id))
            self._asking[key_id] = asking
            asking.add_done_callback(lambda _: self._asking.pop(key_id, None))
        return await asyncio.shield(asking)

    async def _look_up(self, key_id: str) -> _Known | None:
        # Counted from before the question: what was revoked since is noticed in time.
        until = time.monotonic() + self._remember
        async with self._engine.begin() as connection:
            known = await _read(connection, key_id)
            if known is not None:
                await connection.execute(_USED, {"key_id": key_id})
        if len(self._found) >= _REMEMBERED:
            self._found.clear()
        self._found[key_id] = (until, known)
        return known


async def _read(connection: AsyncConnection, key_id: str) -> _Known | None:
    row = (
        await connection.execute(
            select(api_keys.c.hash, api_keys.c.tenant, api_keys.c.scopes, api_keys.c.types).where(
                api_keys.c.id == key_id,
                api_keys.c.revoked_at.is_(None),
                func.coalesce(api_keys.c.expires_at > func.clock_timestamp(), True),
            )
        )
    ).one_or_none()
    if row is None:
        return None
    types = None if row.types is None else frozenset(row.types)
    return _Known(row.hash, Principal(key_id, row.tenant, frozenset(row.scopes), types))


def _hash(token: str) -> bytes:
    # The secret has 256 bits of randomness: a slow hash would protect nothing more.
    return hashlib.sha256(token.encode()).digest()


def _check(name: str, tenant: str, scopes: Sequence[str], expires_at: datetime | None) -> None:
    flaws = [
        Flaw(f"/scopes/{n}", f"found {scope!r}, expected one of {', '.join(SCOPES)}")
        for n, scope in enumerate(scopes)
        if scope not in SCOPES
    ]
    if not scopes:
        flaws.append(Flaw("/scopes", "found none, expected at least one"))
    if not 1 <= len(name.strip()) <= _LONGEST_NAME:
        flaws.append(Flaw("/name", f"expected 1 to {_LONGEST_NAME} characters"))
    if not is_tenant(tenant):
        flaws.append(Flaw("/tenant", f"expected {EXPECTED}"))
    if expires_at is not None and expires_at.tzinfo is None:
        flaws.append(Flaw("/expiresAt", "expected a time with its offset from UTC"))
    if flaws:
        detail = "; ".join(f"{flaw.pointer[1:]}: {flaw.detail}" for flaw in flaws)
        raise Rejected("invalid_request", detail, status=422, flaws=flaws)


def _listed(row: Row[tuple[object, ...]]) -> Key:
    values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public accessor
    values["scopes"] = tuple(values["scopes"])
    values["types"] = None if values["types"] is None else tuple(values["types"])
    return Key(**values)
