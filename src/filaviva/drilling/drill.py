"""Run a drill: alone on its database, and with nothing left behind however it ends.

Before: a running stack. After: the facts are checked and kept; the provider, the observers and the
key are gone, and no job of the drill waits.
May happen twice: one after the other; a second one at the same time is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.client.asynchronous import Client
from filaviva.client.refusals import Refusal
from filaviva.database import connect, redacted
from filaviva.dev.slack import Inbox
from filaviva.drill.contract import QUEUE, DrillCall
from filaviva.drilling import books, facts
from filaviva.drilling.clearing import clear
from filaviva.drilling.evidence import Evidence
from filaviva.drilling.facts import Fact
from filaviva.drilling.journey import Journey, Screen
from filaviva.drilling.observing import Observing, observing
from filaviva.drilling.plan import FULL_SECONDS, TENANT, Plan
from filaviva.drilling.provider import Provider
from filaviva.drilling.submitting import Submitting
from filaviva.drilling.watching import Watching
from filaviva.errors import ConfigurationError, Rejected
from filaviva.operations import drills, keys

_KEY_HOURS: Final = 2
_NO_SLACK: Final = (
    "no dlq-handler has a FILAVIVA_SLACK__WEBHOOK_URL: that Slack is told once cannot hold"
)


@dataclass(frozen=True, slots=True)
class Report:
    """How a drill ended."""

    id: UUID
    seconds: float
    facts: Sequence[Fact]
    recovered: float | None
    observers: str

    @property
    def passed(self) -> bool:
        """Every fact holds."""
        return bool(self.facts) and all(fact.holds for fact in self.facts)

    def shown(self) -> dict[str, Any]:
        """Give it as it is kept, and as a program reads it."""
        return {
            "id": str(self.id),
            "passed": self.passed,
            "seconds": self.seconds,
            "recoveredSeconds": None if self.recovered is None else round(self.recovered, 3),
            "observers": self.observers,
            "facts": [_fact(fact) for fact in self.facts],
        }


async def drill(plan: Plan, screen: Screen, *, slack: Inbox | None = None) -> Report:
    """Do a drill and keep what it found; `slack` is the stack's own, where that is ours."""
    _check(plan)
    engine = connect(plan.database, name="filaviva-drill", size=6)
    try:
        async with _alone(engine):
            await clear(engine, author=plan.author, reason="left by a drill that was killed")
            known = books.Books(engine)
            await _served(known)
            if slack is None and not await known.tells_slack():
                screen.say(_NO_SLACK)
            return await _kept(engine, plan, screen, slack)
    finally:
        await engine.dispose()


def _check(plan: Plan) -> None:
    if plan.observers.prometheus and plan.seconds < FULL_SECONDS:
        where = redacted(plan.observers.prometheus)
        raise ConfigurationError(
            f"--seconds: found {plan.seconds:g}, expected at least {FULL_SECONDS:g}: the rules of "
            f"the Prometheus at {where} look back two minutes, and a shorter cut proves nothing "
            "about them"
        )


@asynccontextmanager
async def _alone(engine: AsyncEngine) -> AsyncIterator[None]:
    """Hold the lock of drills while the block runs."""
    apart = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with apart.connect() as connection:
        if not await books.alone(connection):
            raise Rejected("conflict", await _who(engine), status=409)
        try:
            yield
        finally:
            await connection.invalidate()  # the lock ends with its session


async def _who(engine: AsyncEngine) -> str:
    running = await books.Books(engine).running()
    who = "" if running is None else f", begun by {running[0]} at {running[1]:%H:%M:%S} UTC"
    return f"another drill runs on this database{who}: wait for its end, or end it with Ctrl-C"


async def _served(known: books.Books) -> None:
    if not await known.published():
        raise ConfigurationError(
            f"found no contract {DrillCall.contract_type} in the registry, expected it to be "
            "published: run `filaviva setup`"
        )
    if not await known.workers():
        raise ConfigurationError(
            f"found no worker that serves the queue {QUEUE}, expected one at least: give workers "
            "FILAVIVA_DRILL__PROVIDER_URL (and the queue, where FILAVIVA_WORKER__QUEUES names some)"
        )


async def _kept(engine: AsyncEngine, plan: Plan, screen: Screen, slack: Inbox | None) -> Report:
    async with engine.begin() as connection:
        id_ = await drills.begin(connection, author=plan.author, cut_seconds=plan.seconds)
    report = Report(id_, plan.seconds, (), None, "")
    why = "the drill failed"
    try:
        report = await _played(engine, plan, screen, slack, id_)
        why = "the drill is over"
    except asyncio.CancelledError:
        why = "the drill was interrupted"
        screen.say("interrupted: ending what was begun ...")
        raise
    finally:
        await clear(engine, author=plan.author, reason=why)
        async with engine.begin() as connection:
            kept = report.shown() if report.facts else {"ended": why}
            await drills.end(connection, id_, passed=report.passed, report=kept)
    return report


async def _played(
    engine: AsyncEngine, plan: Plan, screen: Screen, slack: Inbox | None, id_: UUID
) -> Report:
    key = await keys.create(
        engine,
        name="drill",
        tenant=TENANT,
        scopes=("jobs:write", "jobs:read"),
        types=(DrillCall.contract_type,),
        expires_at=datetime.now(UTC) + timedelta(hours=_KEY_HOURS),
        author=plan.author,
    )
    with Provider(plan.host, plan.port) as provider:
        async with (
            Client(plan.api, key.token, patience=plan.patience) as client,
            observing(plan, slack) as seen,
        ):
            _announce(screen, seen)
            journey = Journey(
                plan,
                engine,
                provider,
                Submitting(client, id_, seconds=plan.seconds),
                Watching(seen, share=plan.share),
                screen,
                slack,
            )
            evidence = await _evidence(journey, plan)
    found = facts.check(evidence)
    return Report(id_, plan.seconds, found, evidence.recovered, seen.note or seen.why or "")


async def _evidence(journey: Journey, plan: Plan) -> Evidence:
    try:
        return await journey.play()
    except Refusal as refused:
        raise ConfigurationError(
            f"the API at {plan.api} refuses the drill's key, which was just made: {refused}; "
            "expected the API of the database that FILAVIVA_POSTGRES__URL names"
        ) from refused


def _announce(screen: Screen, seen: Observing) -> None:
    if seen.why is None:
        screen.say(seen.note)
    else:
        screen.say(f"no alert and no dashboard can be looked at: {seen.why}")
        screen.say(f"next: {seen.next_step}")


def _fact(fact: Fact) -> dict[str, Any]:
    told = asdict(fact)
    step = told.pop("next_step")
    return told if fact.holds else {**told, "nextStep": step}
