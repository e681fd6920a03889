"""Where nobody has written an example, one is made that fits its schema."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ForwardRef, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, HttpUrl, create_model

from filaviva import Contract
from filaviva.schemas import SchemaCheck
from filaviva.specimen import specimen


class Colour(Enum):
    red = "red"
    blue = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=3, multiple_of=3)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str = Field(min_length=9, max_length=12)


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


class Everything(Contract, type="test.everything", version=1):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    total: Decimal
    when: datetime
    day: date
    at: time
    takes: timedelta
    key: UUID
    link: HttpUrl
    colour: Colour
    pair: tuple[int, str]
    tree: Tree
    prices: dict[str, Decimal]
    note: str | None = None
    share: float = Field(gt=0, lt=1)
    less: int = Field(le=-5)
    code: str = Field(pattern=r"^[A-Z]{3}$")
    several: list[str] = Field(min_length=3)
    named: str = Field(examples=["NF-17"])


def test_it_fits_whatever_a_model_can_say() -> None:
    schema = Everything.json_schema()

    found = specimen(schema)

    assert SchemaCheck(schema).flaws(found) == ()
    assert found.keys() == schema["properties"].keys()


def test_what_the_schema_shows_is_taken() -> None:
    assert specimen(Everything.json_schema())["named"] == "NF-17"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^x{40}y$"},
        {"type": "object", "required": ["a"], "properties": {}},
        {"not": {}},
    ],
)
def test_what_cannot_be_guessed_is_left_out(schema: dict[str, Any]) -> None:
    assert specimen(schema) is None


def test_a_type_that_holds_itself_comes_to_an_end() -> None:
    assert specimen(Everything.json_schema())["tree"]["value"] == 1


def test_an_example_of_models_that_all_refer_to_each_other_stays_small() -> None:
    names = [f"Any{number}" for number in range(10)]
    fields: Any = {name.lower(): (ForwardRef(f"{name} | None"), ...) for name in names}
    made = {name: create_model(name, **fields) for name in names}
    for model in made.values():
        model.model_rebuild(_types_namespace=made)
    schema = made["Any0"].model_json_schema()

    example = specimen(schema)

    assert example is not None
    assert len(str(example)) < 30_000  # it had megabytes
