"""What the forms of the status page do: the operations of the API, for whoever has the link."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from filaviva.operations.jobs import Reach
from filaviva.operations.links import Right
from filaviva.operations.retry import Part, Wish
from filaviva_producer.canceling import Canceling
from filaviva_producer.retrying import Retrying

# Does it, and gives the note to be shown then; `index`: for this item of a batch alone.
Action: TypeAlias = Callable[[UUID, Reach, int | None], Awaitable[str]]

_AUTHOR: Final = "status page"


def actions(canceling: Canceling, retrying: Retrying) -> Mapping[Right, Action]:
    """Give what the forms do."""

    async def cancel(job_id: UUID, reach: Reach, _index: int | None) -> str:
        done = await canceling.stop(job_id, reach, author=_AUTHOR)
        return "canceled" if done.state(job_id) == "canceled" else "cancel_requested"

    async def retry(job_id: UUID, reach: Reach, index: int | None) -> str:
        retrying.pressure.check()
        parts = None if index is None else [Part(index)]
        await retrying.again(job_id, reach, Wish(author=_AUTHOR, parts=parts))
        return "retried"

    return {"cancel": cancel, "retry": retry}
