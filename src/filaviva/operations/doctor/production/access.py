"""Who may do what: API keys, the users of our processes, what passes in the clear, and secrets."""

import ipaddress
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from filaviva.few import few
from filaviva.operations import keys
from filaviva.operations.doctor.finding import Finding, attention, ok, unknown, wrong
from filaviva.operations.doctor.production.sight import Process, Sight
from filaviva.operations.keys import Key

_SHOWN: Final = 3
_SILENT: Final = timedelta(days=90)
_NEW: Final = timedelta(days=7)
# More than an application that submits, looks and cancels needs.
_MOST_SCOPES: Final = 3


async def examine(sight: Sight) -> AsyncIterator[Finding]:
    """Look at keys, users, connections and secrets."""
    for finding in _in_clear(sight, sight.known()):
        yield finding
    live = sight.live()
    yield _superuser(live)
    for finding in _secrets(live):
        yield finding
    yield _retention(sight.live("retry-scheduler"))
    for finding in key_findings(await keys.list_keys(sight.reachable()), datetime.now(UTC)):
        yield finding


def _in_clear(sight: Sight, live: Sequence[Process]) -> Iterator[Finding]:
    """Tell what leaves the machine without TLS; what stays on it needs none."""
    yield _tls(
        "TLS to the broker",
        sight.addresses.amqp,
        [each for each in live if not each.settings.get("brokerTls")],
        "amqps://, port 5671",
        tls=urlsplit(sight.addresses.amqp).scheme == "amqps",
    )
    yield _tls(
        "TLS to PostgreSQL",
        sight.database_url,
        [each for each in live if each.measured.get("databaseTls") is False],
        "?sslmode=verify-full",
        tls=any(mode in sight.database_url for mode in ("sslmode=require", "sslmode=verify")),
    )
    management = sight.addresses.management
    if management is not None:
        secure = urlsplit(management).scheme == "https"
        yield _tls("TLS to the management API", management, [], "https://", tls=secure)


def _tls(check: str, url: str, clear: Sequence[Process], expected: str, *, tls: bool) -> Finding:
    host = urlsplit(url).hostname or "localhost"
    if _stays_here(host):
        return ok(check, f"{host} is this machine")
    if tls and not clear:
        return ok(check, "on")
    who = f"{len(clear)} processes and this command" if clear and not tls else ""
    who = who or (f"{len(clear)} processes" if clear else "this command")
    return attention(
        check,
        f"{who} talk to {host} in the clear, passwords too",
        "use TLS, unless this network is yours alone",
        expected=expected,
    )


def _stays_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _superuser(live: Sequence[Process]) -> Finding:
    check = "PostgreSQL's users"
    above = sorted(
        {str(each.measured["databaseUser"]) for each in live if each.measured.get("superuser")}
    )
    if not live:
        return unknown(check, "nothing runs whose user could be looked at", "start the services")
    if above:
        return attention(
            check,
            f"processes work as {', '.join(above)}, who may do everything on that server",
            "make a user that owns this database alone: docs/howto/run-on-existing-servers.md",
            expected="no superuser",
        )
    users = sorted({str(each.measured.get("databaseUser")) for each in live})
    return ok(check, f"{', '.join(users)}: no superuser")


def _secrets(live: Sequence[Process]) -> Iterator[Finding]:
    serving = [each for each in live if each.service in ("producer", "worker")]
    yield _same("callbacks' secret", serving, "callbacks", "FILAVIVA_CALLBACKS__SECRET")
    anywhere = [each for each in serving if each.settings.get("callbacksAnywhere")]
    if anywhere:
        yield attention(
            "callbacks' addresses",
            f"{len(anywhere)} processes allow http:// or private addresses: {anywhere[0].id}",
            "unset FILAVIVA_CALLBACKS__ALLOW_HTTP and FILAVIVA_CALLBACKS__ALLOW_PRIVATE, unless "
            "your receivers are inside",
            expected="https:// and public addresses only",
        )
    producers = [each for each in live if each.service == "producer"]
    yield _same("status pages' secret", producers, "links", "FILAVIVA_LINKS__SECRET")


def _same(check: str, live: Sequence[Process], setting: str, variable: str) -> Finding:
    have = [each for each in live if each.settings.get(setting)]
    if not have:
        return ok(check, "none is set: the feature is off")
    if len(have) == len(live):
        return ok(check, f"set in all {len(live)} processes that need it")
    without = next(each for each in live if not each.settings.get(setting))
    return wrong(
        check,
        f"set in {len(have)} of {len(live)} processes, not in {without.service} {without.id}",
        f"set the same {variable} for all of them, or for none",
        expected="all or none",
    )


def _retention(schedulers: Sequence[Process]) -> Finding:
    if not schedulers:
        return unknown("retention", "no retry-scheduler runs", "run `filaviva run retry-scheduler`")
    if all(each.settings.get("retention") for each in schedulers):
        return ok("retention", "somebody has decided on it")
    return attention(
        "retention",
        "as everybody has it before choosing: jobs with all their data stay for 90 days",
        "decide on FILAVIVA_RETENTION__JOBS_DAYS and the others: docs/howto/keep-or-erase-data.md",
        expected="periods that somebody has decided on",
    )


def key_findings(found: Sequence[Key], now: datetime) -> Iterator[Finding]:
    """Judge the keys that are honoured."""
    honoured = [
        key
        for key in found
        if key.revoked_at is None and (key.expires_at is None or key.expires_at > now)
    ]
    if not honoured:
        next_step = "`filaviva keys create --name shop --scope jobs:write --scope jobs:read`"
        yield attention("API keys", "there is none: nobody can submit over HTTP", next_step)
        return
    yield ok("API keys", f"{len(honoured)} are honoured")
    yield _keys(
        "keys that may do much",
        [k for k in honoured if "admin" in k.scopes or len(k.scopes) > _MOST_SCOPES],
        "give each application a key with the scopes it uses, and revoke these",
        lambda k: f"{k.name} ({', '.join(k.scopes)})",
    )
    yield _keys(
        "keys without an end",
        [k for k in honoured if k.expires_at is None],
        "make new ones with `filaviva keys create --name NAME --expires-in 90d`, and revoke these",
        lambda k: k.name,
    )
    yield _keys(
        "keys that nobody uses",
        [k for k in honoured if _unused(k, now)],
        "revoke them: `filaviva keys revoke ID`",
        lambda k: f"{k.name} ({k.id})",
    )


def _unused(key: Key, now: datetime) -> bool:
    if key.last_used_at is None:
        return now - key.created_at > _NEW
    return now - key.last_used_at > _SILENT


def _keys(check: str, found: Sequence[Key], next_step: str, shown: Callable[[Key], str]) -> Finding:
    if not found:
        return ok(check, "none")
    told = f"{len(found)}: {few(found, _SHOWN, shown)}"
    return attention(check, told, next_step, expected="none")
