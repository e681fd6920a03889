"""A schema is told as a table, one row for each member, in words."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from filaviva import Contract
from filaviva.asyncapi.schemas import entries
from filaviva_producer.catalogue.fields import Fields


class Line(BaseModel):
    amount: Annotated[str, Field(pattern=r"^\d+$", description="in BRL")]


class Card(BaseModel):
    kind: Literal["card"]
    last: str = Field(min_length=4, max_length=4)


class Cash(BaseModel):
    kind: Literal["cash"]


class Tree(BaseModel):
    children: list["Tree"] = []


class Order(Contract, type="order.placed", version=1):
    number: int = Field(ge=1)
    lines: list[Line] = Field(min_length=1)
    paid: Annotated[Card | Cash, Field(discriminator="kind")]
    note: str | None = None
    colour: Literal["red", "blue"] = "red"
    prices: dict[str, float]
    tree: Tree


def rows() -> dict[str, tuple[str, bool, str]]:
    schemas = dict(entries("order.placed.v1", Order.json_schema()))
    found = Fields(schemas).of("order.placed.v1")
    return {field.path: (field.kind, field.required, field.says) for field in found}


def test_each_member_says_what_it_is() -> None:
    assert rows() == {
        "number": ("integer", True, "at least 1"),
        "lines": ("list of Line", True, "1 items or more"),
        "lines[].amount": ("string", True, r"in BRL; like ^\d+$"),
        "paid": ("Card or Cash", True, ""),
        "paid.kind": ('"cash"', True, ""),
        "paid.last": ("string", True, "4 characters or more; 4 characters at most"),
        "note": ("string or null", False, ""),
        "colour": ('"red" or "blue"', False, 'default "red"'),
        "prices": ("object of number", True, ""),
        "tree": ("Tree", True, ""),
        "tree.children": ("list of Tree", False, "default []"),
    }


def test_a_type_that_holds_itself_without_a_model_is_told_by_its_name() -> None:
    schemas = {
        "message": {"type": "object", "properties": {"it": {"$ref": "#/components/schemas/m.Any"}}},
        "m.Any": {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#/components/schemas/m.Any"}},
                {"type": "string"},
            ]
        },
    }

    (field,) = Fields(schemas).of("message")

    assert field.kind == "list of Any or string"


def test_models_that_all_hold_each_other_are_told_up_to_a_limit() -> None:
    names = [f"m{number}" for number in range(12)]
    members = {name: {"$ref": f"#/components/schemas/{name}"} for name in names}
    schemas = {name: {"type": "object", "properties": members} for name in names}

    fields = Fields(schemas).of("m0")

    assert len(fields) == 501
    assert fields[-1].path == "…"
