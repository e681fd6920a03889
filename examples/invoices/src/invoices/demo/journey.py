"""The journey itself: submit, fail on purpose, kill, recover, correct, replay."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from filaviva.dev.slack import Inbox

from invoices.demo.api import Api, Away, Json, Provider
from invoices.demo.evidence import Evidence, Killing, Notes, Trail
from invoices.demo.plan import AT_ONCE, CALM, CORRECTED, MISREAD, STORMY, TEN, WRONG
from invoices.demo.screen import Screen
from invoices.demo.stack import DemoFailed
from invoices.demo.truth import Running, Truth
from invoices.demo.watching import Watch

T = TypeVar("T")
PATIENCE = 90.0


@dataclass(frozen=True, slots=True)
class Journey:
    """One run over a started stack."""

    api: Api
    provider: Provider
    truth: Truth
    slack: Inbox
    screen: Screen
    watch: Watch

    async def play(self) -> Evidence:
        """Go all the way; return what is to be judged."""
        await self._plan_faults()
        killing = await self._kill_a_worker()
        duplicate = await self._submit_another()
        await self._watch("succeeded or dead", self._ended)
        letters = await self._show_letters()
        before = await self._batch()
        await self._replay(letters)
        await self._watch("succeeded", self._succeeded)
        again = await self.api.replay_status(letters[WRONG.document]["id"])
        return await self._collect(Notes(killing, before, duplicate, again))

    async def _plan_faults(self) -> None:
        self.screen.chapter("The provider (a sandbox) will fail on purpose")
        for case in TEN:
            await self.provider.plan(case.document, case.faults)
        for case in (*STORMY, MISREAD):
            self.screen.say(f"{case.document}: {', then '.join(case.faults)}")

    async def _kill_a_worker(self) -> Killing:
        """Kill a worker whose jobs have been read and paid for, but not yet stored."""
        self.screen.chapter(
            f"Ten documents as one batch, {AT_ONCE} at once, and a worker killed between paying and"
            " storing"
        )
        await self._until("both workers to report", self._both_workers)
        ids = await self._submit_batch()
        await self._until("four model calls at once", lambda: self._all_held(set(ids)))
        async with self.truth.holding_the_table():
            await self.provider.release()
            doomed = await self._until("a worker to be about to store", lambda: self._doomed(ids))
            os.kill(doomed[0].pid, signal.SIGKILL)
        names = {job_id: name for name, job_id in ids.items()}
        killing = Killing(doomed[0].pid, tuple(names[each.job_id] for each in doomed))
        self.screen.say(
            f"SIGKILL to worker {killing.pid}, about to store {', '.join(killing.documents)}"
        )
        return killing

    async def _both_workers(self) -> bool:
        return await self.truth.workers() == 2  # noqa: PLR2004 - as many as the stack has

    async def _all_held(self, documents: set[str]) -> bool:
        return await self.provider.held() == documents

    async def _doomed(self, ids: dict[str, str]) -> list[Running] | None:
        """Return the jobs of a worker that has nothing left to do but to store them."""
        running = await self.truth.running()
        if {each.job_id for each in running} != set(ids.values()):
            return None
        mine = {each.pid: [one for one in running if one.pid == each.pid] for each in running}
        return next((jobs for jobs in mine.values() if all(one.checked for one in jobs)), None)

    async def _submit_batch(self) -> dict[str, str]:
        """Submit the ten; return the ids of those that go first, by their names."""
        answer = await self._submit_ten()
        self.screen.say(f"accepted: batch {answer['jobId']} of {len(TEN)}")
        jobs = await self._jobs()
        return {case.document: jobs[case.document]["jobId"] for case in CALM}

    async def _submit_ten(self) -> Json:
        urls = [self.provider.address(case.document) for case in TEN]
        return await self.api.submit_batch(
            urls, key="demo-ten", documents="ten", concurrency=AT_ONCE
        )

    async def _submit_another(self) -> Json:
        self.screen.chapter("The others follow, and one document that is no invoice")
        address = self.provider.address(WRONG.document)
        await self.api.submit(address, key=f"demo-{WRONG.document}", document=WRONG.document)
        self.screen.say(f"accepted: {WRONG.document}, as a job of its own")
        self.screen.say("the batch: submitted a second time with the same key")
        return await self._submit_ten()

    async def _jobs(self) -> dict[str, Json]:
        """Return every document's job by the document's name."""
        found = await self.api.jobs()
        items = {TEN[one["itemIndex"]].document: one for one in found if one["parentId"]}
        return items | {one["labels"]["document"]: one for one in found if _is_alone(one)}

    async def _batch(self) -> Json:
        several = await self.api.jobs(**{"label.documents": "ten"})
        return next(one for one in several if one["parentId"] is None)

    async def _watch(self, what: str, enough: Callable[[dict[str, Json]], bool]) -> None:
        async def look() -> bool:
            jobs, batch = await self._jobs(), await self._batch()
            self.watch.show(jobs)
            count.show(batch["progress"])
            return enough(jobs)

        with self.screen.counting(len(TEN)) as count:
            await self._until(f"every job to be {what}", look)

    @staticmethod
    def _ended(jobs: dict[str, Json]) -> bool:
        return all(job["status"] in ("succeeded", "failed", "canceled") for job in jobs.values())

    @staticmethod
    def _succeeded(jobs: dict[str, Json]) -> bool:
        return all(job["status"] == "succeeded" for job in jobs.values())

    async def _show_letters(self) -> dict[str, Json]:
        self.screen.chapter("Two dead letters, and one alert for each cause")
        letters = await self._until("both dead letters", self._both_letters)
        for name, letter in letters.items():
            self.screen.say(f"{name}: {letter['reason']}: {letter['error']['message']}")
        await self._until("both alerts", self._both_alerts)
        for alert in self.slack.headlines():
            self.screen.say(f"alert (to a local stand-in for Slack): {alert}")
        return letters

    async def _both_letters(self) -> dict[str, Json] | None:
        jobs = {job["jobId"]: name for name, job in (await self._jobs()).items()}
        letters = {jobs[letter["jobId"]]: letter for letter in await self.api.dead_letters()}
        return letters if set(letters) == {MISREAD.document, WRONG.document} else None

    async def _both_alerts(self) -> bool:
        return len(self.slack.messages) >= 2  # noqa: PLR2004 - one for each cause

    async def _replay(self, letters: dict[str, Json]) -> None:
        self.screen.chapter("Sent back: one as it is, one corrected")
        await self.api.replay(letters[MISREAD.document]["id"], reason="the model may do better")
        self.screen.say(f"{MISREAD.document}: replayed as it is")
        address = self.provider.address(CORRECTED)
        patch = [{"op": "replace", "path": "/documentUrl", "value": address}]
        await self.api.replay(letters[WRONG.document]["id"], reason="wrong file", patch=patch)
        self.screen.say(f"{WRONG.document}: /documentUrl corrected to {CORRECTED}, replayed")

    async def _collect(self, notes: Notes) -> Evidence:
        await self._until("both dead letters to be resolved", self._resolved)
        jobs = await self._jobs()
        return Evidence(
            notes=notes,
            batch=await self._batch(),
            trails={name: await self._trail(job["jobId"]) for name, job in jobs.items()},
            calls=tuple(await self.provider.calls()),
            letters=tuple(await self.api.dead_letters()),
            stored=await self.truth.stored(),
            alerts=tuple(self.slack.texts()),
        )

    async def _resolved(self) -> bool:
        return all(letter["status"] == "resolved" for letter in await self.api.dead_letters())

    async def _trail(self, job_id: str) -> Trail:
        return Trail(
            job=await self.api.job(job_id),
            attempts=tuple(await self.api.attempts(job_id)),
            steps=tuple(await self.api.steps(job_id)),
        )

    async def _until(self, what: str, look: Callable[[], Awaitable[T | None]]) -> T:
        """Look until there is something to see; say what was waited for if it never comes."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not (seen := await _now(look)):  # noqa: ASYNC110 - in other processes
                    await asyncio.sleep(0.1)
        except TimeoutError:
            waited = f"waited {PATIENCE:.0f} s for {what}"
            raise DemoFailed(f"{waited}; {await self._states()}") from None
        return seen

    async def _states(self) -> str:
        jobs = await self._jobs()
        states: dict[str, Any] = {name: job["status"] for name, job in jobs.items()}
        return ", ".join(f"{name} {state}" for name, state in states.items()) or "no jobs"


def _is_alone(job: Json) -> bool:
    return "document" in job["labels"]


async def _now(look: Callable[[], Awaitable[T | None]]) -> T | None:
    try:
        return await look()
    except Away:
        return None
