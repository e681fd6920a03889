"""Submit a job from the command line, through the same checks as over HTTP.

Before: words of a command line. After: the job is committed, and any service's relay takes its
wake-up to the broker. May happen twice: with the same idempotency key it is the same job.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import typer
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva import canonical, turns, uses
from filaviva.callbacks.serving import rules
from filaviva.callbacks.urls import Rules
from filaviva.cli import here
from filaviva.errors import Rejected
from filaviva.limits import TenantLimits
from filaviva.made_up import made_up
from filaviva.operations.keys import Principal
from filaviva.operations.quotas import Quotas
from filaviva.operations.submission import Origin, Submission, admit
from filaviva.operations.submit import Submitted, Submitter
from filaviva.outbox import OutboxRow
from filaviva.registry import Registry
from filaviva.settings import CallbackSettings, FromEnvironment, read

# This process relays nothing: it lets go of its rows at once, or they would wait out their lock.
_LET_GO: Final = """
UPDATE filaviva.outbox SET locked_until = clock_timestamp()
WHERE id = ANY (ARRAY(SELECT id FROM filaviva.outbox WHERE id = ANY($1::bigint[])
    ORDER BY id FOR UPDATE))
"""


@dataclass(frozen=True, slots=True)
class Request:
    """What is submitted, for whom and by whom."""

    body: Mapping[str, Any]
    tenant: str
    author: str
    key: str = field(default_factory=made_up)


async def submit(engine: AsyncEngine, request: Request) -> Submitted:
    """Keep the job within its tenant's limits, in its turn; Rejected says why not."""
    registry = Registry(engine)
    await registry.refresh()
    principal = Principal(request.author, request.tenant, frozenset({"admin"}))
    origin = Origin(principal, request.key, correlation_id=str(uuid4()))
    submission = admit(request.body, origin, registry, callbacks=callback_rules())
    rows: list[OutboxRow] = []
    kept = await (await _submitter(engine, rows)).submit(submission)
    async with engine.begin() as connection:
        await let_go(connection, rows)
        await uses.add(connection, {} if kept.duplicate else _use(submission, request.author))
    return kept


def _use(submission: Submission, author: str) -> dict[uses.Use, int]:
    jobs = 1 if submission.batch is None else len(submission.batch.items)
    return {(submission.type, submission.version, f"cli:{author}"): jobs}


async def _submitter(engine: AsyncEngine, rows: list[OutboxRow]) -> Submitter:
    limits = TenantLimits(engine)
    await limits.step()
    async with engine.connect() as connection:
        now = await turns.moment(connection)
    return Submitter(engine, rows.extend, quotas=Quotas(limits), turns=now)


def callback_rules() -> Rules | None:
    """Give what a callback's URL may be, as the settings say."""
    return rules(read(CallbackEnvironment, here.environment()).callbacks)


class CallbackEnvironment(FromEnvironment):
    """What the commands need that name a callback."""

    callbacks: CallbackSettings = CallbackSettings()


async def let_go(connection: AsyncConnection, rows: Sequence[OutboxRow]) -> None:
    """Leave these messages to whoever relays: at once, not when their lock has run out."""
    if rows:
        await connection.exec_driver_sql(_LET_GO, ([row.id for row in rows],))


def content(text: str, file: Path | None, items: Path | None) -> dict[str, Any]:
    """Read what the job is about: its data, or the items of a batch."""
    if items is None:
        return {"data": payload(text, file)}
    if text or file is not None:
        raise typer.BadParameter("expected --items FILE or the data, found both")
    return {"items": json_of("", items, what="--items")}


def payload(text: str, file: Path | None) -> Any:
    """Read the data, its numbers exact."""
    if bool(text) == (file is not None):
        raise typer.BadParameter("expected the data once: --data JSON or --data-file FILE")
    return json_of(text, file, what="--data")


def json_of(text: str, file: Path | None, *, what: str) -> Any:
    """Read JSON from an option, a file, or (-) stdin."""
    if file is None:
        content = text.encode()
    elif str(file) == "-":
        content = sys.stdin.buffer.read()
    else:
        content = _read(file)
    try:
        return canonical.parse(content)
    except Rejected as broken:
        raise typer.BadParameter(f"{what}: {broken.detail}") from None


def body(job_type: str, what: Mapping[str, Any], **rest: Any) -> dict[str, Any]:
    """Put together what would be POSTed; what was not said is left out."""
    given = {name: value for name, value in rest.items() if value is not None}
    return {"type": job_type, **what, **given}


def labels(words: Sequence[str] | None) -> dict[str, str] | None:
    """Read name=value words."""
    if not words:
        return None
    pairs = [word.partition("=") for word in words]
    wrong = [name for name, sign, _ in pairs if not sign]
    if wrong:
        raise typer.BadParameter(f"found {wrong[0]!r}, expected name=value")
    return {name: value for name, _, value in pairs}


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as unreadable:
        raise typer.BadParameter(f"{file}: {unreadable.strerror}") from None
