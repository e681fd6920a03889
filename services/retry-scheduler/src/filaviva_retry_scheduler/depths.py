"""How much waits on the broker's queues, as far as the reconciler needs to know."""

from collections.abc import Collection, Mapping
from typing import Protocol


class Depths(Protocol):
    """Look at queues."""

    async def ready(self, queues: Collection[str]) -> Mapping[str, int]:
        """Give the number of ready messages of each of these handler queues that exists.

        Raises `Unreachable` when the broker does not answer.
        """
        ...
