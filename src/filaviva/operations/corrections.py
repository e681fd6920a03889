"""Correct a job's input by JSON Patch: numbers stay exact, the result fits its schema."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jsonpatch
import jsonpointer

from filaviva import canonical
from filaviva.errors import Flaw, Rejected
from filaviva.registry import Registry
from filaviva.schemas import UNKNOWN_MEMBER

MOST_OPERATIONS = 100
LONGEST = 256 * 1024

Validate: TypeAlias = Callable[[str, int, Any], Sequence[Flaw]]
"""Check a value against the schema of a type and version; nothing found means it fits."""


def validator(registry: Registry) -> Validate:
    """Check values as the registry says; an unknown contract is refused (422)."""

    def validate(type: str, version: int, value: Any) -> Sequence[Flaw]:  # noqa: A002 - ours
        registered = registry.find(type, version)
        if registered is None:
            detail = f"{type} v{version} is not published: nothing tells what its data must be"
            raise Rejected("unknown_contract", detail, status=422)
        return registered.validate(value)

    return validate


def readable(patch: Any) -> jsonpatch.JsonPatch:
    """Read a JSON Patch (RFC 6902), or refuse it with a pointer to what is wrong."""
    if not isinstance(patch, list) or not 0 < len(patch) <= MOST_OPERATIONS:
        detail = f"expected a JSON Patch of 1 to {MOST_OPERATIONS} operations"
        raise _unfit(Flaw("/patch", detail))
    for place, operation in enumerate(patch):
        try:
            jsonpatch.JsonPatch([operation])
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, TypeError) as wrong:
            raise _unfit(Flaw(f"/patch/{place}", str(wrong))) from None
    return jsonpatch.JsonPatch(patch)


def corrected(
    payload: str,
    patch: Any,
    *,
    type: str,  # noqa: A002 - the word of the contract
    version: int,
    validate: Validate,
) -> str:
    """Apply the patch and give the new JSON text; refuse (422) what does not fit its schema."""
    value = canonical.parse(payload)
    text = payload
    for place, operation in enumerate(patch):
        text = canonical.dumps(_applied(value, operation, f"/patch/{place}"))
        if len(text) > LONGEST:
            raise _unfit(Flaw(f"/patch/{place}", f"the data grows beyond {LONGEST} bytes"))
        # Read back at once: a patch may bring in what cannot be stored, and `copy` may double
        # size and depth with each operation.
        value = canonical.parse(text)
    # A newer publisher may have added members, which readers ignore: they are nobody's mistake.
    there = set(_unknown(validate(type, version, canonical.parse(payload))))
    flaws = [flaw for flaw in validate(type, version, value) if flaw not in there]
    if flaws:
        first = f"{flaws[0].pointer or '/'}: {flaws[0].detail}"
        detail = f"the corrected data does not fit {type} v{version}: {first}"
        raise Rejected("invalid_data", detail, status=422, flaws=flaws)
    return text


def _unknown(flaws: Sequence[Flaw]) -> list[Flaw]:
    return [flaw for flaw in flaws if flaw.detail == UNKNOWN_MEMBER]


def _applied(value: Any, operation: Any, pointer: str) -> Any:
    try:
        return jsonpatch.JsonPatch([operation]).apply(value)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException):
        pass
    except (TypeError, KeyError, IndexError):
        pass
    # The library's own words quote the data, which the caller may not have been shown.
    path = str(operation.get("path"))[:200]
    what = "the value differs" if operation.get("op") == "test" else "it does not apply"
    raise _unfit(Flaw(pointer, f"{what} at {path!r}"))


def _unfit(flaw: Flaw) -> Rejected:
    detail = f"{flaw.pointer}: {flaw.detail}"
    return Rejected("invalid_patch", detail, status=422, flaws=[flaw])
