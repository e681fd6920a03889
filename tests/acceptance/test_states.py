"""Whatever people and accidents do to jobs in whatever order, the state picture holds.

Rules submit, cancel, repeat and replay jobs on running services at random, and kill their workers.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fixtures.journey import Journey

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
T = TypeVar("T")

# 5-correctness 22, and the same for batches.
ALLOWED = {
    ("queued", "running"),
    ("queued", "canceled"),
    ("queued", "failed"),
    ("queued", "queued"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "queued"),
    ("running", "cancel_requested"),
    ("cancel_requested", "canceled"),
    ("cancel_requested", "succeeded"),
    ("failed", "queued"),
    ("canceled", "queued"),
}
BATCHES_TOO = {
    ("queued", "succeeded"),
    ("running", "canceled"),
    ("failed", "running"),
    ("canceled", "running"),
    ("succeeded", "running"),  # its failed items are repeated
}
MOST_CRASHES = 3

KINDS = st.sampled_from(
    [
        {"steps": 1},
        {"steps": 2, "seconds": 0.3},
        {"failures": 1},
        {"failures": 1, "error": "terminal"},
        {"failures": 9, "error": "retryable", "maxAttempts": 2},
        {"seconds": 3},
    ]
)


class World:
    """The services, and every job that any run has submitted."""

    def __init__(self, ground: Journey, loop: asyncio.AbstractEventLoop) -> None:
        self.ground = ground
        self.loop = loop
        self.jobs: list[UUID] = []
        self.crashes = 0

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop of the services' owner."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def post(self, path: str, body: Any, service: str = "producer") -> int:
        """POST and give the status, which is never our fault."""
        answer = self.do(self.ground.call(service, "POST", path, json=body))
        assert answer.status_code < 500, answer.text
        return int(answer.status_code)


class Jobs(RuleBasedStateMachine):
    """What may happen to jobs."""

    world: ClassVar[World]
    submitted = Bundle("submitted")

    @rule(target=submitted, kind=KINDS)
    def submit(self, kind: dict[str, Any]) -> UUID:
        """Submit one."""
        job = self.world.do(self.world.ground.submit(**kind))
        self.world.jobs.append(job)
        return job

    @rule(target=submitted, kinds=st.lists(KINDS, min_size=2, max_size=4))
    def submit_batch(self, kinds: list[dict[str, Any]]) -> UUID:
        """Submit several as one."""
        items = [{k: v for k, v in kind.items() if k != "maxAttempts"} for kind in kinds]
        key = f"batch-{uuid4()}"  # the services outlive this world
        answer = self.world.do(
            self.world.ground.call(
                "producer",
                "POST",
                "/v1/jobs",
                json={"type": "ledger.work", "items": items, "maxAttempts": 2},
                headers={"Idempotency-Key": key},
            )
        )
        assert answer.status_code == 202, answer.text
        batch = UUID(answer.json()["jobId"])
        self.world.jobs.append(batch)
        return batch

    @rule(job=submitted)
    def cancel(self, job: UUID) -> None:
        """Cancel one, however it stands."""
        assert self.world.post(f"/v1/jobs/{job}/cancel", {}) in (202, 409)

    @rule(job=submitted)
    def repeat(self, job: UUID) -> None:
        """Repeat what failed or was canceled of one."""
        assert self.world.post(f"/v1/jobs/{job}/retry", {}) in (202, 409)

    @rule()
    def replay(self) -> None:
        """Send back every dead letter that is open."""
        scope = {"filter": {"type": "ledger.work"}}
        body = {"scope": scope, "reason": "try again"}
        assert self.world.post("/v1/replays", body, "dlq-handler") in (202, 404, 409)

    @rule(seconds=st.sampled_from([0.05, 0.2, 0.5]))
    def time_passes(self, seconds: float) -> None:
        """Let them work."""
        self.world.do(asyncio.sleep(seconds))

    @precondition(lambda self: self.world.crashes < MOST_CRASHES)
    @rule()
    def crash(self) -> None:
        """Kill a worker in the middle of its work; another one comes."""
        self.world.crashes += 1
        self.world.ground.now("worker").kill()
        self.world.ground.start("worker")

    def teardown(self) -> None:
        """Nothing has happened so far that must not happen."""
        self.world.do(only_what_is_allowed(self.world))


async def only_what_is_allowed(world: World) -> None:
    """Read every job's story, and what it has done."""
    stories = await world.ground.fetch(
        "SELECT jobs.id, jobs.parked_reason = 'items' AS batch, jobs.state,"
        " array_agg(event.data->>'status' ORDER BY event.id) AS statuses"
        " FROM filaviva.jobs JOIN filaviva.job_events AS event ON event.job_id = jobs.id"
        " WHERE event.kind = 'state' GROUP BY jobs.id"
    )
    for story in stories:
        steps = list(zip(story["statuses"], story["statuses"][1:], strict=False))
        allowed = ALLOWED | (BATCHES_TOO if story["batch"] else set())
        wrong = [step for step in steps if step not in allowed]
        assert not wrong, (story["id"], story["statuses"])
    doubled = await world.ground.fetch(
        "SELECT job_id, count(*) FROM ledger.effects GROUP BY 1 HAVING count(*) > 1"
    )
    assert doubled == []


async def everything_ends(world: World) -> None:
    """No job is lost; each that succeeded has had its effect, once, and no other has had one."""
    rows = await world.ground.fetch("SELECT id FROM filaviva.jobs WHERE parked_reason IS NULL")
    everyone = {UUID(bytes=row["id"].bytes) for row in rows} | set(world.jobs)
    states = await world.ground.final(*everyone, seconds=120)
    effects = await world.ground.effects(*everyone)
    batches = await world.ground.fetch("SELECT job_id FROM filaviva.batches")
    alone = everyone - {UUID(bytes=row["job_id"].bytes) for row in batches}
    assert {job: int(states[job] == "succeeded") for job in alone} == {
        job: effects[job] for job in alone
    }
    await only_what_is_allowed(world)
    late = [
        await worker.metric("filaviva_steps_after_cancel_total")
        for worker in world.ground.services["worker"]
        if worker.alive
    ]
    assert sum(late) == 0


async def driven(ground: Journey, examples: int, steps: int, *, same: bool) -> World:
    """Let chance drive so many runs of so many steps."""
    world = World(ground, asyncio.get_running_loop())
    machine = type("Driven", (Jobs,), {"world": world})
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=same,
        database=None,
        deadline=None,
        # What was found on running services is not found again in a shorter way.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    await asyncio.to_thread(run_state_machine_as_test, machine, settings=chosen)
    return world


async def test_no_order_of_events_leaves_the_state_picture(standing: Journey) -> None:
    world = await driven(standing, 5, 15, same=True)

    await everything_ends(world)


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_no_order_of_many_events_leaves_the_state_picture(standing: Journey) -> None:
    world = await driven(standing, 30, 40, same=False)

    await everything_ends(world)
