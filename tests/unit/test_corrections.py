"""A correction may repair what is wrong; what a newer publisher has added is not."""

from collections.abc import Sequence
from typing import Any

import pytest

from filaviva import canonical
from filaviva.errors import Flaw, Rejected
from filaviva.operations.corrections import corrected, readable
from filaviva.schemas import SchemaCheck

LINE = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "additionalProperties": False,
}
CHECK = SchemaCheck(
    {
        "type": "object",
        "properties": {
            "url": {"type": "string"},
            "lines": {"type": "array", "items": LINE},
        },
        "required": ["url"],
        "additionalProperties": False,
    }
)
NEWER = '{"url":5,"addedLater":{"exact":0.10},"lines":[{"new":1}]}'


def validate(_type: str, _version: int, value: Any) -> Sequence[Flaw]:
    return CHECK.flaws(value)


def correct(*patch: dict[str, Any]) -> Any:
    text = corrected(NEWER, readable(list(patch)), type="a.b", version=1, validate=validate)
    return canonical.parse(text)


def test_members_of_a_newer_version_stay_through_a_correction() -> None:
    after = correct({"op": "replace", "path": "/url", "value": "b"})

    assert after == canonical.parse(NEWER) | {"url": "b"}


@pytest.mark.parametrize("path", ["/mistyped", "/lines/0/mistyped"])
def test_a_correction_adds_no_member_that_the_contract_does_not_have(path: str) -> None:
    with pytest.raises(Rejected) as refused:
        correct(
            {"op": "replace", "path": "/url", "value": "b"},
            {"op": "add", "path": path, "value": 1},
        )

    assert [flaw.pointer for flaw in refused.value.flaws] == [path]
