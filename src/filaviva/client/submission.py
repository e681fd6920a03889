"""The body of a submission, from a contract or from plain values."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict

from pydantic import BaseModel

from filaviva.client.transport import loads
from filaviva_contracts import Contract


class Options(TypedDict, total=False):
    """What may be said besides type and data."""

    version: int
    priority: str
    run_at: datetime
    deadline: datetime
    max_attempts: int
    labels: Mapping[str, str]
    subject: str
    fail_fast: bool
    max_failures: int
    accept_partial: bool
    concurrency: int
    callback_url: str


def body(
    job: Contract | type[Contract] | str,
    data: Any,
    items: Sequence[Any] | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Say what is wanted: a contract's message, or a type with data or items."""
    wanted: dict[str, Any] = {}
    match job:
        case Contract():
            wanted |= {"type": job.contract_type, "version": job.contract_version}
            data = job
        case str():
            wanted["type"] = job
        case _:
            wanted |= {"type": job.contract_type, "version": job.contract_version}
    if items is not None:
        wanted["items"] = [plain(each) for each in items]
    else:
        wanted["data"] = plain(data)
    return wanted | {_wire(name): _value(given) for name, given in options.items()}


def plain(value: Any) -> Any:
    """Give a contract's message, or another model, as the values that JSON has."""
    return loads(value.model_dump_json(by_alias=True)) if isinstance(value, BaseModel) else value


def _value(given: Any) -> Any:
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ValueError(f"found {given!r}, expected a time with its zone")
        return given.astimezone(UTC).isoformat()
    return given


def _wire(name: str) -> str:
    if name not in Options.__annotations__:
        known = ", ".join(sorted(Options.__annotations__))
        raise TypeError(f"found option {name!r}, expected some of: {known}")
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
