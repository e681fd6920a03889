"""The drill itself: provider there, provider cut, provider back, and what must follow.

Before: a running stack, and nobody else who drills on it.
After: the evidence is collected; what is left of the jobs is for `clearing`.
May happen twice: each drill has jobs and keys of its own.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from filaviva.database.transaction import transact
from filaviva.dev.slack import Inbox
from filaviva.drill.contract import POLICY
from filaviva.drilling.books import Books
from filaviva.drilling.evidence import Cut, Evidence, Group, Notice, Submitted, recovered
from filaviva.drilling.plan import Kind, Plan
from filaviva.drilling.provider import Provider
from filaviva.drilling.submitting import Submitting
from filaviva.drilling.watching import Watching
from filaviva.errors import ConfigurationError
from filaviva.operations.cancel import FINAL
from filaviva.operations.dead_letters import Filter
from filaviva.operations.replay import ReplayRequest, start
from filaviva.operations.replay_report import report
from filaviva.registry import Registry

_GLANCE: Final = 0.25
_SETTLING_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """How it stands at a moment of a phase, and for how long the phase may last."""

    phase: str
    seconds: float
    total: float
    states: Mapping[str, int]
    fires: bool = False


class Screen(Protocol):
    """Who is told how it goes."""

    def say(self, text: str) -> None:
        """Show one fact."""

    def show(self, look: Look) -> None:
        """Show how it stands now."""


@dataclass(slots=True)
class Journey:
    """One drill, from its first job to its last fact."""

    plan: Plan
    engine: AsyncEngine
    provider: Provider
    submitting: Submitting
    watching: Watching
    screen: Screen
    slack: Inbox | None = None  # the stack's, if it is ours
    _books: Books = field(init=False)
    _submitted: list[Submitted] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._books = Books(self.engine)

    async def play(self) -> Evidence:
        """Do all of it."""
        await self._before()
        await self.watching.begin()
        cut = await self._cut()
        await self._recover()
        until = time.time()
        groups, notices = await self._dead()
        attempts = await self._books.attempts(self._ids())
        evidence = Evidence(
            seconds=self.plan.seconds,
            cut=cut,
            submitted=tuple(self._submitted),
            states={},
            calls=self.provider.calls,
            attempts=attempts,
            groups=groups,
            notices=notices,
            slack=None,
            replayed=await self._replay(groups),
            recovered=recovered(attempts, self._ids("patient", "late"), cut.ended),
        )
        evidence = await self.watching.add(evidence, until, self._until)
        # Last, since nothing may come a second time meanwhile.
        return replace(
            evidence,
            states=await self._books.states(self._ids()),
            calls=self.provider.calls,
            groups=await self._books.groups(self._ids("impatient")),
            notices=await self._books.notices(groups),
            slack=self._at_stand_in(groups),
            unsettled=await self._books.left(),
        )

    async def _before(self) -> None:
        await self._submit("before", self.plan.jobs.before)
        ended = self._ended(self._ids())
        await self._until(ended, "the provider is there", self.plan.patience)
        states = await self._books.states(self._ids())
        if {*states.values()} != {"succeeded"}:
            raise ConfigurationError(await self._not_reached())
        self.screen.say(f"{len(states)} jobs called the provider and succeeded")

    async def _not_reached(self) -> str:
        attempts = await self._books.attempts(self._ids())
        errors = sorted({each.error_class or "unexpected" for each in attempts if each.outcome})
        return (
            f"workers do not reach the drill's provider at {self.plan.host}:{self.plan.port}: "
            f"found {', '.join(errors) or 'no attempt'}, expected their "
            "FILAVIVA_DRILL__PROVIDER_URL to lead to where the drill listens (--listen)"
        )

    async def _cut(self) -> Cut:
        before, began, since = self.provider.calls.effects, await self._books.now(), time.time()
        self.provider.cut()
        self.screen.say(f"the provider is cut for {self.plan.seconds:g} s")
        await self._submit("patient", self.plan.jobs.patient)
        await self._submit("impatient", self.plan.jobs.impatient)
        await self._pass(since, self.plan.seconds / 2)
        await self._submit("late", self.plan.jobs.late)
        await self._pass(since, self.plan.seconds)
        await self._seen_through(since)
        through = self.provider.calls.effects - before
        ended, until = await self._books.now(), time.time()
        self.provider.open()
        self.screen.say("the provider is back")
        return Cut(began, ended, since, until, through)

    async def _seen_through(self, since: float) -> None:
        """Let a short cut last until all has happened in it that should, on a slow machine too."""

        async def noticed() -> bool:
            return await self.watching.noticed(since)

        gave_up = self._ended(self._ids("impatient"))
        await self._until(gave_up, "the provider is cut: some give up", self.plan.patience)
        if self.plan.share < 1:
            await self._until(noticed, "the provider is cut: it is noticed", self.plan.patience)

    async def _submit(self, kind: Kind, many: int) -> None:
        self._submitted += await self.submitting.submit(kind, many)

    async def _pass(self, since: float, seconds: float) -> None:
        """Let the cut go on until so many seconds from its beginning."""
        while (left := since + seconds - time.time()) > 0:
            await self._look("the provider is cut", time.time() - since, self.plan.seconds)
            await asyncio.sleep(min(left, _GLANCE))

    async def _recover(self) -> None:
        waiting = self._ids("patient", "late")
        limit = POLICY.cap + POLICY.jitter + _SETTLING_SECONDS
        if await self._until(self._ended(waiting), "what waits goes on", limit):
            self.screen.say(f"all {len(waiting)} jobs that waited have ended")

    async def _dead(self) -> tuple[Sequence[Group], Sequence[Notice]]:
        """Wait until those that gave up are filed, and somebody was told of them."""
        impatient = self._ids("impatient")

        async def told() -> bool:
            groups = await self._books.groups(impatient)
            notices = await self._books.notices(groups)
            filed = sum(group.letters for group in groups) == len(impatient)
            return filed and bool(notices) and all(each.state != "waiting" for each in notices)

        await self._until(told, "dead letters are filed and told", self.plan.patience)
        groups = await self._books.groups(impatient)
        letters = sum(group.letters for group in groups)
        self.screen.say(f"{letters} jobs gave up meanwhile: {len(groups)} failure group(s)")
        return groups, await self._books.notices(groups)

    async def _replay(self, groups: Sequence[Group]) -> Mapping[str, int]:
        """Send the groups back, as `filaviva dlq replay` does; give what came of it."""
        registry = Registry(self.engine)
        await registry.refresh()
        done: Counter[str] = Counter()
        for group in groups:
            done.update(await self._followed(await self._begun(group, registry)))
        if groups:
            self.screen.say(f"{done['succeeded']} of {done['total']} replayed jobs succeeded")
        return done

    async def _begun(self, group: Group, registry: Registry) -> UUID:
        request = ReplayRequest(
            letters=Filter(group=group.id),
            author=self.plan.author,
            reason="drill: the provider is back",
            scope={"group": str(group.id)},
        )

        async def work(connection: AsyncConnection) -> UUID:
            return UUID((await start(connection, request, registry=registry))["id"])

        return await transact(self.engine, work)

    async def _followed(self, replay: UUID) -> Mapping[str, int]:
        progress: dict[str, int] = {}

        async def over() -> bool:
            async with self.engine.connect() as connection:
                progress.update((await report(connection, replay))["progress"])
            return not progress["waiting"] and not progress["running"]

        await self._until(over, "the group is sent back", _SETTLING_SECONDS)
        return progress

    def _at_stand_in(self, groups: Sequence[Group]) -> int | None:
        if self.slack is None:
            return None
        texts = self.slack.texts()
        return sum(any(f"group {group.id}" in text for group in groups) for text in texts)

    def _ids(self, *kinds: Kind) -> set[UUID]:
        wanted = [each for each in self._submitted if not kinds or each.kind in kinds]
        return {one for each in wanted for one in each.ids}

    def _ended(self, jobs: Collection[UUID]) -> Callable[[], Awaitable[bool]]:
        async def ended() -> bool:
            states = await self._books.states(jobs)
            return len(states) == len(jobs) and all(each in FINAL for each in states.values())

        return ended

    async def _until(self, fact: Callable[[], Awaitable[bool]], phase: str, seconds: float) -> bool:
        """Wait for a fact, for so many seconds at most; tell whether it came."""
        began = time.monotonic()
        while not await fact():
            passed = time.monotonic() - began
            if passed > seconds:
                return False
            await self._look(phase, passed, seconds)
            await asyncio.sleep(_GLANCE)
        return True

    async def _look(self, phase: str, passed: float, total: float) -> None:
        states = Counter((await self._books.states(self._ids())).values())
        self.screen.show(Look(phase, passed, total, states, await self.watching.fires()))
