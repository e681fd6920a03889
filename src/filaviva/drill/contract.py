"""The job that a drill submits."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from filaviva.policy import Policy
from filaviva_contracts import Contract

QUEUE: Final = "drill"
# Short enough for a drill of seconds, slow enough for one of twenty minutes; how many attempts a
# job has is said when it is submitted. Its jobs are worth nothing a week later.
POLICY: Final = Policy(max_attempts=100, base=0.5, cap=15, jitter=0.5, timeout=30, retention=7)


class DrillCall(Contract, type="filaviva.drill", version=1):
    """Call the drill's provider once; where that is, only the worker's settings say."""

    drill_id: UUID
    number: Annotated[int, Field(ge=1)]
