"""What the observers say of the cut: the alert, what Alertmanager told, what the panels showed."""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from filaviva.drilling import panels
from filaviva.drilling.alertmanager import at_stand_in
from filaviva.drilling.evidence import Alert, Cut, Evidence, Seen, Told
from filaviva.drilling.observing import Observing
from filaviva.errors import Unreachable

# The rules look back two minutes, and Prometheus looks at them every 15 s.
_OVER_SECONDS: Final = 300.0
_TOLD_SECONDS: Final = 15.0
# `group_interval` of alertmanager.yml, and what comes on top.
_THEIRS_TOLD_SECONDS: Final = 420.0
_FIGURES_SECONDS: Final = 15.0
_EVERY_SECONDS: Final = 0.5

Wait = Callable[[Callable[[], Awaitable[bool]], str, float], Awaitable[bool]]


class Watching:
    """Ask the observers before, during and after the cut."""

    def __init__(self, observing: Observing, *, share: float) -> None:
        self._observing = observing
        self._share = share
        self._sent = (0, 0)
        self._since = 0.0
        self._looked = (0.0, False)

    async def begin(self) -> None:
        """Note what Alertmanager has told until now."""
        self._since = time.time()
        if self._observing.alertmanagers is not None:
            self._sent = await self._observing.alertmanagers.sent()

    async def fires(self) -> bool:
        """Tell whether the alert fires, asking at most twice a second."""
        prometheus, (at, fires) = self._observing.prometheus, self._looked
        if prometheus is not None and time.monotonic() - at >= _EVERY_SECONDS:
            with suppress(Unreachable):  # only shown; what counts is asked for afterwards
                fires = await prometheus.fires()
            self._looked = (time.monotonic(), fires)
        return fires

    async def noticed(self, since: float) -> bool:
        """Tell whether everything that is to show the cut has shown it by now."""
        observing = self._observing
        if observing.prometheus is None:
            return True
        if not await self.fires():
            return False
        seen = await panels.look(
            observing.prometheus, interval=observing.interval, since=since, until=time.time()
        )
        return all(each.most for each in seen)

    async def add(self, evidence: Evidence, until: float, wait: Wait) -> Evidence:
        """Wait for what must follow the cut, and add it; `until`: when nothing waited any more."""
        observing, cut = self._observing, evidence.cut
        if observing.prometheus is None:
            why, step = observing.why or "", observing.next_step
            return replace(
                evidence,
                alert=Alert(why=why, next_step=step),
                told=Told(why=why, next_step=step),
                seen_why=why,
            )
        alert = await self._alert(cut, wait)
        told = await self._told(alert, wait)
        return replace(
            evidence, alert=alert, told=told, seen=await self._seen(cut.since, until, wait)
        )

    async def _alert(self, cut: Cut, wait: Wait) -> Alert:
        prometheus = self._observing.prometheus
        if prometheus is None:
            return Alert()
        if await prometheus.fired(cut.since, time.time()) is None:
            return Alert()

        async def over() -> bool:
            return not await prometheus.fires()

        limit = _OVER_SECONDS * self._share + _FIGURES_SECONDS
        is_over = await wait(over, "the alert ends", limit)
        began, ended = await prometheus.fired(cut.since, time.time()) or (None, None)
        return Alert(began, ended if is_over else None)

    async def _told(self, alert: Alert, wait: Wait) -> Told:
        observing = self._observing
        if observing.inbox is None and observing.alertmanagers is None:
            why = "Prometheus tells no Alertmanager"
            return Told(why=why, next_step="add `alerting` to prometheus.yml, or --alertmanager")

        async def both() -> bool:
            told = await self._counted()
            return told.firing >= 1 and told.resolved >= 1

        limit = _TOLD_SECONDS if observing.inbox is not None else _THEIRS_TOLD_SECONDS
        if alert.fired is not None:
            await wait(both, "Alertmanager tells it", limit)
        return await self._counted()

    async def _counted(self) -> Told:
        observing = self._observing
        if observing.inbox is not None:
            return at_stand_in(observing.inbox)
        if observing.alertmanagers is None:
            return Told()
        sent, failed = await observing.alertmanagers.sent()
        return await self._ours(sent - self._sent[0], failed - self._sent[1])

    async def _ours(self, sent: int, failed: int) -> Told:
        """Take off what was to tell of other alerts: Alertmanager counts messages of all."""
        prometheus, others = self._observing.prometheus, 0
        if prometheus is not None:
            others = await prometheus.others(self._since, time.time())
        ours = max(sent - others, 0)
        where = f" by Alertmanager's count, {sent} of all alerts"
        # What it says is not counted: the first one fires, what follows ends it.
        return Told(min(ours, 1), max(ours - 1, 0), failed, where)

    async def _seen(self, since: float, until: float, wait: Wait) -> Sequence[Seen]:
        prometheus, interval = self._observing.prometheus, self._observing.interval
        if prometheus is None:
            return ()
        seen: Sequence[Seen] = ()

        async def calm() -> bool:
            nonlocal seen
            seen = await panels.look(prometheus, interval=interval, since=since, until=until)
            return not any(each.after for each in seen)

        limit = 8 * interval + _FIGURES_SECONDS
        await wait(calm, "the dashboards are calm again", limit)
        return seen
