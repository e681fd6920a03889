"""A value is checked against a schema with exact numbers, real formats and useful places."""

from decimal import Decimal
from time import monotonic
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AnyUrl, AwareDatetime, BaseModel, Field

from filaviva.errors import ConfigurationError
from filaviva.schemas import SchemaCheck
from filaviva_contracts import Contract


class Line(BaseModel):
    amount: float = Field(multiple_of=0.01)


class Order(Contract, type="order.placed", version=1):
    document_url: AnyUrl
    order_id: UUID | None = None
    placed_at: AwareDatetime | None = None
    count: int = Field(default=1, le=2**70)
    lines: tuple[Line, ...] = ()


CHECK = SchemaCheck(Order.json_schema())
LEAST: dict[str, Any] = {"documentUrl": "https://a.example/x"}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"orderId": None},
        {"orderId": "018f0000-0000-7000-8000-000000000000"},
        {"placedAt": "2026-12-01T10:00:00Z"},
        {"count": 2**70},
        {"count": Decimal("2.0")},
        {"lines": [{"amount": Decimal("0.07")}]},
        {"lines": [{"amount": Decimal("12345678901234567890.12")}]},
    ],
)
def test_data_that_fits_has_no_flaws(more: dict[str, Any]) -> None:
    assert CHECK.flaws(LEAST | more) == ()


@pytest.mark.parametrize(
    ("more", "pointer", "says"),
    [
        ({"documentUrl": "no address"}, "/documentUrl", '"uri"'),
        ({"document_url": "x"}, "/document_url", "no such member"),
        ({"a/b~c": 1}, "/a~1b~0c", "no such member"),
        ({"orderId": "7"}, "/orderId", '"uuid"'),
        ({"placedAt": "2026-12-01"}, "/placedAt", '"date-time"'),
        ({"count": 2**70 + 1}, "/count", "greater than the maximum"),
        ({"count": Decimal("1.5")}, "/count", "integer"),
        ({"lines": [{"amount": 1}, {}]}, "/lines/1/amount", "missing"),
        ({"lines": [{"amount": 1, "x": 1}]}, "/lines/0/x", "no such member"),
        (
            {"lines": [{"amount": Decimal("12345678901234567890.123")}]},
            "/lines/0/amount",
            "multiple of 0.01",
        ),
    ],
)
def test_a_flaw_points_at_the_member_that_is_wrong(
    more: dict[str, Any], pointer: str, says: str
) -> None:
    (flaw,) = CHECK.flaws(LEAST | more)

    assert flaw.pointer == pointer
    assert says in flaw.detail


def test_a_missing_member_is_pointed_at() -> None:
    (flaw,) = CHECK.flaws({})

    assert (flaw.pointer, flaw.detail) == ("/documentUrl", "it is missing")


def test_every_flaw_is_told_but_not_without_end() -> None:
    assert len(CHECK.flaws({str(number): 1 for number in range(1000)})) == 100


def test_the_value_itself_is_not_quoted() -> None:
    (flaw,) = CHECK.flaws(LEAST | {"orderId": "a secret"})

    assert "a secret" not in flaw.detail


def test_a_time_of_day_needs_no_zone() -> None:
    check = SchemaCheck({"type": "string", "format": "time"})

    assert check.flaws("12:30:00") == ()
    assert check.flaws("25:30:00") != ()


@pytest.mark.parametrize(
    "schema", [{"type": "no such type"}, {"$ref": "http://127.0.0.1:9/x"}, {"pattern": "("}]
)
def test_a_schema_that_cannot_be_used_is_refused_and_nothing_is_fetched(
    schema: dict[str, Any],
) -> None:
    with pytest.raises(ConfigurationError, match="the schema cannot be used"):
        SchemaCheck(schema)


class Number(BaseModel):
    kind: Literal["number"] = "number"
    value: int


class Sum(BaseModel):
    kind: Literal["sum"] = "sum"
    left: "Term"
    right: "Term"


class Product(BaseModel):
    kind: Literal["product"] = "product"
    left: "Term"
    right: "Term"


Term = Annotated[Number | Sum | Product, Field(discriminator="kind")]


class Computed(Contract, type="computed", version=1):
    it: Term


@pytest.mark.parametrize(
    ("term", "pointer"),
    [
        ({"kind": "number", "value": "1"}, "/it/value"),
        ({"kind": "sum", "left": {"kind": "number", "value": 1}}, "/it/right"),
        ({"kind": "difference"}, "/it/kind"),
        ({}, "/it/kind"),
        ("a text", "/it"),
    ],
)
def test_what_is_wrong_in_a_union_is_told_of_the_member_that_is_meant(
    term: Any, pointer: str
) -> None:
    flaws = SchemaCheck(Computed.json_schema()).flaws({"it": term})

    assert {flaw.pointer for flaw in flaws} == {pointer}


def test_what_is_wrong_deep_in_a_union_of_itself_is_told_at_once() -> None:
    term: Any = {"kind": "number", "value": "wrong"}
    for level in range(25):
        right = {"kind": "number", "value": level}
        term = {"kind": "sum" if level % 2 else "product", "left": term, "right": right}
    begun = monotonic()

    (flaw,) = SchemaCheck(Computed.json_schema()).flaws({"it": term})

    assert flaw.pointer == "/it" + "/left" * 25 + "/value"
    assert monotonic() - begun < 5  # it took longer than anybody waits
