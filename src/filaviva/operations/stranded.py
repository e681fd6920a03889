"""Queued jobs that no handler reads where they wait: of a contract that has moved, or is gone."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from filaviva.operations.readers import READERS

_STRANDED: Final = f"""
WITH able AS MATERIALIZED ({READERS}),
waiting AS MATERIALIZED (
    SELECT queue, type, version, count(*) AS jobs FROM filaviva.jobs AS jobs
    WHERE state = 'queued' AND parked_reason IS NULL AND NOT EXISTS (
        SELECT FROM filaviva.batches AS batches WHERE batches.job_id = jobs.id)
    GROUP BY queue, type, version)
SELECT waiting.queue, contracts.queue AS goal, sum(waiting.jobs)::bigint AS jobs
FROM waiting LEFT JOIN filaviva.contracts AS contracts
    ON contracts.type = waiting.type AND contracts.version = waiting.version
    AND contracts.deprecated_at IS NULL
WHERE contracts.queue IS DISTINCT FROM waiting.queue AND NOT EXISTS (
    SELECT FROM able WHERE able.queue = waiting.queue AND able.type = waiting.type
    AND waiting.version BETWEEN able.min AND able.max)
GROUP BY waiting.queue, contracts.queue ORDER BY waiting.queue, contracts.queue
"""


@dataclass(frozen=True, slots=True)
class Stranded:
    """So many jobs wait on a queue on which nobody reads them; `goal` is where somebody would."""

    queue: str
    goal: str | None
    jobs: int

    @property
    def found(self) -> str:
        """Say what is the matter."""
        return f"{self.jobs} queued job(s) on queue {self.queue!r}, where no handler reads them"

    @property
    def next_step(self) -> str:
        """Say what helps."""
        if self.goal is not None:
            return (
                f"nothing: their handler has moved to queue {self.goal!r}, and the retry-scheduler "
                "moves them there within two minutes; see that it runs"
            )
        return (
            "deploy an app with a handler for them and run `filaviva setup`, or see what they are: "
            "`filaviva jobs list --status queued`"
        )


async def stranded(connection: AsyncConnection) -> list[Stranded]:
    """Find them, by queue; it looks at every queued job."""
    found = await connection.exec_driver_sql(_STRANDED)
    return [Stranded(row.queue, row.goal, row.jobs) for row in found]
