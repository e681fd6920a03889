"""A batch as it is asked for: its items, each the data of one job, and when and how it ends.

Before: a request whose fields have passed their own checks. After: JSON texts to be stored as
they are, or `Rejected` naming every wrong item. May happen twice: it has no effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from filaviva import canonical
from filaviva.errors import Flaw, Rejected
from filaviva.registry import Registered

MOST_ITEMS: Final = 10_000
POLICY: Final = ("failFast", "maxFailures", "acceptPartial", "concurrency")
_MOST_FLAWS = 100


@dataclass(frozen=True, slots=True)
class Batch:
    """Items to be, JSON text each; `accept_partial` None: unless too many of them fail."""

    items: tuple[str, ...]
    accept_partial: bool | None = None
    fail_fast: bool = False
    max_failures: int | None = None
    concurrency: int | None = None


def misfits(value: Mapping[str, Any]) -> list[Flaw]:
    """Find fields that do not go together."""
    if "items" not in value:
        missing = [] if "data" in value else [Flaw("/data", "the field data is missing")]
        alone = "it says how a batch ends, expected only together with items"
        return missing + [Flaw(f"/{name}", alone) for name in POLICY if name in value]
    flaws = []
    if "data" in value:
        flaws.append(Flaw("/data", "found data and items, expected one of them"))
    if value.get("failFast") is True and "maxFailures" in value:
        flaws.append(Flaw("/maxFailures", "found beside failFast, expected one of them"))
    return flaws


def read(
    value: Mapping[str, Any], fields: Mapping[str, Any], contract: Registered, *, most_bytes: int
) -> Batch:
    """Check each item against the contract and give the batch."""
    items = value["items"]
    texts = tuple(canonical.dumps(item) for item in items)
    _refuse_large(texts, most_bytes)
    _refuse_unfit(items, contract)
    return Batch(
        texts,
        accept_partial=fields.get("acceptPartial"),
        fail_fast=fields.get("failFast", False),
        max_failures=fields.get("maxFailures"),
        concurrency=fields.get("concurrency"),
    )


def _refuse_large(texts: Sequence[str], most: int) -> None:
    # A character is at least one byte and at most four: few texts have to be encoded.
    flaws = [
        Flaw(f"/items/{index}", f"found {size} bytes of data, expected at most {most}")
        for index, text in enumerate(texts)
        if 4 * len(text) > most and (size := len(text.encode())) > most
    ]
    if flaws:
        detail = f"{flaws[0].pointer}: {flaws[0].detail}; put large content elsewhere"
        raise Rejected("data_too_large", detail, status=413, flaws=flaws[:_MOST_FLAWS])


def _refuse_unfit(items: Sequence[Any], contract: Registered) -> None:
    flaws: list[Flaw] = []
    for index, item in enumerate(items):
        flaws += [
            Flaw(f"/items/{index}{flaw.pointer}", flaw.detail) for flaw in contract.validate(item)
        ]
        if len(flaws) >= _MOST_FLAWS:
            break
    if flaws:
        first = f"{flaws[0].pointer}: {flaws[0].detail}"
        detail = f"an item does not fit {contract.type} v{contract.version}: {first}"
        raise Rejected("invalid_data", detail, status=422, flaws=flaws[:_MOST_FLAWS])
