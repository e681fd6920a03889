"""Connect to PostgreSQL: libpq URLs in, SQLAlchemy engines out."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from sqlalchemy.ext import asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

# libpq options that asyncpg takes as keyword arguments of another name or place.
_SERVER_SETTINGS = frozenset({"application_name", "search_path", "options"})
# A server that is frozen, or gone without a word, ends no statement: then we do, after its limit.
_PATIENCE = 35.0


def connect(
    url: str,
    *,
    name: str,
    size: int = 10,
    scans: bool = False,
    patience: float = _PATIENCE,
    **options: Any,
) -> AsyncEngine:
    """Make an engine for a libpq style URL; `name` is what `pg_stat_activity` shows.

    READ COMMITTED, no statement outlives 30 s, no lock is awaited longer than 2 s, and a server
    that does not answer for so many seconds (`patience`) is as good as absent. `scans`: whole
    tables may be read where the planner finds that cheapest, as users' own queries may want.
    """
    address, arguments = driver_url(url)
    settings: dict[str, str] = {
        "application_name": name,
        "statement_timeout": "30000",
        "lock_timeout": "2000",
        "idle_in_transaction_session_timeout": "60000",
        # Hot statements run once a batch: compiling them costs more than it saves.
        "jit": "off",
        # A session keeps the plan it made while a table was small, when reading all of it was
        # cheapest; by keys it stays as fast when the table has grown (measured: 100 times).
        "enable_seqscan": "on" if scans else "off",
        **arguments.pop("server_settings", {}),
    }
    # Looked up here and now: an instrumentation may have put its own in its place.
    return asyncio.create_async_engine(
        address,
        pool_size=size,
        max_overflow=0,
        pool_timeout=10,
        pool_pre_ping=False,
        isolation_level="READ COMMITTED",
        connect_args={
            "server_settings": settings,
            "timeout": 10,
            "command_timeout": patience,
            **arguments,
        },
        **options,
    )


def driver_url(url: str) -> tuple[str, dict[str, Any]]:
    """Translate a libpq URL for asyncpg: (SQLAlchemy URL, connect arguments)."""
    parts = urlsplit(url)
    if parts.scheme.split("+")[0] not in {"postgresql", "postgres"}:
        message = f"found {parts.scheme!r} as the database's scheme, expected postgresql://…"
        raise ValueError(message)
    arguments: dict[str, Any] = {}
    settings: dict[str, str] = {}
    rest: list[tuple[str, str]] = []
    for key, value in parse_qsl(parts.query):
        if key == "sslmode":
            arguments["ssl"] = value
        elif key == "connect_timeout":
            arguments["timeout"] = float(value)
        elif key in _SERVER_SETTINGS:
            settings[key] = value
        else:
            rest.append((key, value))
    if settings:
        arguments["server_settings"] = settings
    query = urlencode(rest)
    address = urlunsplit(("postgresql+asyncpg", parts.netloc, parts.path, query, ""))
    return address, arguments


def redacted(url: str) -> str:
    """Give the URL without its password, for a person to read."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = parts.username or ""
    netloc = f"{user}@{host}" if user else host
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


def as_dict(row: Any) -> dict[str, Any]:
    """Turn one result row into a plain dict."""
    mapping: Mapping[str, Any] = row._mapping  # noqa: SLF001 - SQLAlchemy's public accessor
    return dict(mapping)
