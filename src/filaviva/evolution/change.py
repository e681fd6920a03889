"""A change of a contract and what it breaks, in the words of schema registries."""

from dataclasses import dataclass, replace
from enum import StrEnum


class Mode(StrEnum):
    """What has to stay possible. TRANSITIVE: with everything that was released, not the last alone.

    BACKWARD: who reads as the code does now reads what was sent before (a replay, a queue).
    FORWARD: who reads as the release did reads what is sent now (a worker not yet replaced).
    """

    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    NONE = "NONE"

    @property
    def backward(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))

    @property
    def transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change: where (a path for people, a JSON pointer into the schema), what, what it breaks.

    `backward` and `forward` are the reasons why that is not possible any more; None: it is.
    """

    kind: str
    path: str
    pointer: str
    what: str
    backward: str | None = None
    forward: str | None = None

    def broken(self, mode: Mode) -> tuple[str, ...]:
        """Give the reasons that count in this mode."""
        reasons = (
            self.backward if mode.backward else None,
            self.forward if mode.forward else None,
        )
        return tuple(each for each in reasons if each is not None)

    def of_results(self) -> "Change":
        """Say the same of results."""
        return replace(self, backward=_of_results(self.backward), forward=_of_results(self.forward))


def _of_results(reason: str | None) -> str | None:
    if reason is not None and reason.startswith("messages of"):
        return f"results{reason.removeprefix('messages')}"
    return reason
