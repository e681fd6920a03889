"""What is sent, what goes wrong on purpose, and what must come of it."""

from dataclasses import dataclass
from decimal import Decimal

# How the stack is set up for the demonstration, in seconds.
LEASE = 8
MODEL_TIMEOUT = 5


@dataclass(frozen=True, slots=True)
class Case:
    """One document: the provider's faults in order, and the outcomes of its attempts.

    Attempts that were lost with the killed worker come on top of `outcomes`.
    """

    document: str
    outcomes: tuple[str, ...]
    faults: tuple[str, ...] = ()


# All well with these: they are about to be stored when their worker is killed. Their answers are
# held back until all four have asked, so that they come to that point at the same moment.
CALM = (
    Case("nfe-29248", ("succeeded",), ("held",)),
    Case("nfe-1", ("succeeded",), ("held",)),
    Case("cte-22222", ("succeeded",), ("held",)),
    Case("cte-os-26", ("succeeded",), ("held",)),
)

STORMY = (
    Case("nfe-1687", ("retry", "succeeded"), ("429:2",)),
    Case("nfe-47428", ("retry", "succeeded"), ("429-date:3",)),
    Case("nfe-47605", ("retry", "succeeded"), ("500",)),
    Case("nfe-47686", ("retry", "succeeded"), ("hang:30",)),
    Case("nfe-26663", ("retry", "retry", "succeeded"), ("503", "429:2")),
)

# Dead at first; replayed as it is.
MISREAD = Case("nfe-27677", ("failed", "succeeded"), ("bad_output",))

# Dead at first; corrected to the spare invoice and replayed.
WRONG = Case("inut-101", ("failed", "succeeded"))
CORRECTED = "nfe-47671"

# One batch, in this order; as many at once as are calm, so that nothing else runs while these do.
TEN = (*CALM, *STORMY, MISREAD)
AT_ONCE = len(CALM)
CASES = (*TEN, WRONG)

# The declared totals of the ten and of the corrected one, read from their XML.
SUM_STORED = Decimal("203879.41")
