"""Every kind of change of a contract version, and what it breaks."""

import json
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from time import monotonic
from typing import Annotated, Any, ForwardRef, Literal
from uuid import UUID, uuid1, uuid4

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, StringConstraints, create_model

from filaviva.errors import ConfigurationError
from filaviva.evolution.change import Change
from filaviva.evolution.comparison import compare
from filaviva_contracts import Contract, File

Fields = dict[str, Any]
OK, NO = "ok", "no"


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class MoreColors(Enum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str


class CardThatSays(BaseModel):
    kind: Literal["card"]
    number: str


class CardWithNote(Card):
    note: str | None = None


class CardWithOwner(Card):
    owner: str


class Pix(BaseModel):
    kind: Literal["pix"] = "pix"
    key: str


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"


class Line(BaseModel):
    text: str
    amount: Decimal


class Position(BaseModel):
    """What used to be called a line."""

    text: str
    amount: Decimal


class LineInCents(BaseModel):
    text: str
    amount: int


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


class NamedTree(BaseModel):
    name: Annotated[str, Field(max_length=10)]
    children: list["NamedTree"] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class OpenWithNote(Open):
    note: str | None = None


def tagged(*members: Any) -> Any:
    union = members[0]
    for member in members[1:]:
        union |= member
    return Annotated[union, Field(discriminator="kind")]


def text(**limits: Any) -> Any:
    return Annotated[str, StringConstraints(**limits)]


def number(of: Any, **limits: Any) -> Any:
    return Annotated[of, Field(**limits)]


def needs(of: Any) -> Fields:
    return {"it": (of, ...)}


def may(of: Any, default: Any = None) -> Fields:
    return {"it": (of, default)}


# what happens, before, after, BACKWARD, FORWARD, where
CHANGES: list[tuple[str, Fields, Fields, str, str, str]] = [
    ("a description", needs(str), needs(Annotated[str, Field(description="x")]), OK, OK, ""),
    ("a title and examples", needs(str), needs(number(str, title="x", examples=["a"])), OK, OK, ""),
    ("deprecated", may(str | None), may(number(str | None, deprecated=True)), OK, OK, ""),
    ("an optional member added", {}, may(str | None), OK, OK, "it"),
    ("an optional member with a default added", {}, may(int, 3), OK, OK, "it"),
    ("a required member added", {}, needs(str), NO, OK, "it"),
    ("a required member removed", needs(str), {}, NO, NO, "it"),
    ("an optional member removed", may(str | None), {}, NO, OK, "it"),
    ("optional becomes required", may(str, "x"), needs(str), NO, OK, "it"),
    ("required becomes optional", needs(str), may(str, "x"), OK, NO, "it"),
    ("null allowed", needs(str), needs(str | None), OK, NO, "it"),
    ("null forbidden", needs(str | None), needs(str), NO, OK, "it"),
    ("a required member renamed", needs(str), {"that": (str, ...)}, NO, NO, "that"),
    ("an optional member renamed", may(int, 3), {"that": (int, 3)}, NO, NO, "that"),
    ("another default", may(int, 3), may(int, 4), NO, NO, "it"),
    ("a default instead of null", may(int | None), may(int | None, 5), NO, NO, "it"),
    (
        "a factory for the same default",
        may(list[str], []),
        may(list[str], Field(default_factory=list)),
        OK,
        OK,
        "",
    ),
    ("string to integer", needs(str), needs(int), NO, NO, "it"),
    ("integer to number", needs(int), needs(float), OK, NO, "it"),
    ("number to integer", needs(float), needs(int), NO, OK, "it"),
    ("boolean to string", needs(bool), needs(str), NO, NO, "it"),
    ("one to many", needs(str), needs(list[str]), NO, NO, "it"),
    ("date-time to string", needs(datetime), needs(str), OK, NO, "it"),
    ("string to date", needs(str), needs(date), NO, OK, "it"),
    ("date-time to date", needs(datetime), needs(date), NO, NO, "it"),
    ("string to uuid", needs(str), needs(UUID), NO, OK, "it"),
    ("address to string", needs(AnyUrl), needs(str), OK, NO, "it"),
    ("a pattern added", needs(str), needs(text(pattern="^a")), NO, OK, "it"),
    ("a pattern removed", needs(text(pattern="^a")), needs(str), OK, NO, "it"),
    ("a pattern changed", needs(text(pattern="^a")), needs(text(pattern="^ab")), NO, NO, "it"),
    ("longer text allowed", needs(text(max_length=5)), needs(text(max_length=9)), OK, NO, "it"),
    ("shorter text only", needs(text(max_length=9)), needs(text(max_length=5)), NO, OK, "it"),
    ("text may be empty", needs(text(min_length=1)), needs(str), OK, NO, "it"),
    ("a wider range", needs(number(int, le=5)), needs(number(int, le=9)), OK, NO, "it"),
    ("a narrower range", needs(number(int, ge=0)), needs(number(int, ge=1)), NO, OK, "it"),
    ("a range moved", needs(number(int, ge=0, le=5)), needs(number(int, ge=2, le=9)), NO, NO, "it"),
    (
        "the same range in other words",
        needs(number(int, ge=1)),
        needs(number(int, gt=0)),
        OK,
        OK,
        "",
    ),
    ("an open end closed", needs(number(float, gt=0)), needs(number(float, ge=0)), OK, NO, "it"),
    (
        "finer steps",
        needs(number(float, multiple_of=0.1)),
        needs(number(float, multiple_of=0.01)),
        OK,
        NO,
        "it",
    ),
    (
        "coarser steps",
        needs(number(float, multiple_of=0.05)),
        needs(number(float, multiple_of=0.1)),
        NO,
        OK,
        "it",
    ),
    (
        "other steps",
        needs(number(float, multiple_of=0.2)),
        needs(number(float, multiple_of=0.3)),
        NO,
        NO,
        "it",
    ),
    (
        "more decimal places",
        needs(number(Decimal, decimal_places=2)),
        needs(number(Decimal, decimal_places=4)),
        OK,
        NO,
        "it",
    ),
    (
        "fewer digits",
        needs(number(Decimal, max_digits=9)),
        needs(number(Decimal, max_digits=5)),
        NO,
        OK,
        "it",
    ),
    ("decimal to float", needs(Decimal), needs(float), NO, OK, "it"),
    ("a value added to an enum", needs(Color), needs(MoreColors), OK, NO, "it"),
    ("a value removed from an enum", needs(MoreColors), needs(Color), NO, OK, "it"),
    ("values replaced", needs(Literal["a", "b"]), needs(Literal["a", "c"]), NO, NO, "it"),
    ("an enum to any text", needs(Color), needs(str), OK, NO, "it"),
    (
        "a member added to a union",
        needs(tagged(Card, Pix)),
        needs(tagged(Card, Pix, Cash)),
        OK,
        NO,
        "it",
    ),
    (
        "a member removed from a union",
        needs(tagged(Card, Pix, Cash)),
        needs(tagged(Card, Pix)),
        NO,
        OK,
        "it",
    ),
    ("members in another order", needs(tagged(Card, Pix)), needs(tagged(Pix, Card)), OK, OK, ""),
    (
        "optional inside a member of a union",
        needs(tagged(Card, Pix)),
        needs(tagged(CardWithNote, Pix)),
        OK,
        OK,
        "it.note",
    ),
    (
        "required inside a member of a union",
        needs(tagged(Card, Pix)),
        needs(tagged(CardWithOwner, Pix)),
        NO,
        OK,
        "it.owner",
    ),
    ("a type added to a union", needs(int | str), needs(int | str | bool), OK, NO, "it"),
    ("a nested type", needs(list[Line]), needs(list[LineInCents]), NO, OK, "it[].amount"),
    ("a limit in a recursive model", needs(Tree), needs(NamedTree), NO, OK, "it.name"),
    ("more items allowed", needs(number(list[int], max_length=5)), needs(list[int]), OK, NO, "it"),
    ("at least one item", needs(list[int]), needs(number(list[int], min_length=1)), NO, OK, "it"),
    ("no item twice", needs(list[int]), needs(set[int]), NO, OK, "it"),
    ("a value of a dict", needs(dict[str, int]), needs(dict[str, str]), NO, NO, "it{}"),
    (
        "the names of a dict",
        needs(dict[str, int]),
        needs(dict[text(pattern="^a"), int]),
        NO,
        OK,
        "it{name}",
    ),
    ("the place of a tuple", needs(tuple[int, str]), needs(tuple[int, int]), NO, NO, "it[1]"),
    ("anything to something", needs(Any), needs(str), NO, OK, "it"),
    ("something to anything", needs(str), needs(Any), OK, NO, "it"),
    ("a member of an open model", needs(Open), needs(OpenWithNote), NO, OK, "it.note"),
    ("a nested class with another name", needs(Line), needs(Position), OK, OK, ""),
    ("a model instead of a dict", needs(dict[str, str]), needs(Pix), NO, OK, "it.kind"),
    ("duplicates allowed", needs(set[int]), needs(list[int]), OK, NO, "it"),
    (
        "a tuple with one place more",
        needs(tuple[int, str]),
        needs(tuple[int, str, int]),
        NO,
        NO,
        "it",
    ),
    ("a tuple to a list", needs(tuple[int, int]), needs(list[int]), OK, NO, "it"),
    ("numbers of an enum to a number", needs(Literal[1, 2]), needs(int), OK, NO, "it"),
    ("true and false to a number", needs(bool), needs(int), NO, NO, "it"),
    ("null to a default", may(int | None), may(int, 0), NO, NO, "it"),
    ("another name on the wire", needs(str), {"it": (str, Field(alias="thing"))}, NO, NO, "thing"),
    ("another name in the code", needs(str), {"thing": (str, Field(alias="it"))}, OK, OK, ""),
    ("an optional model added", {}, may(Line | None), OK, OK, "it"),
    ("a limit on items", needs(list[str]), needs(list[text(max_length=5)]), NO, OK, "it[]"),
    (
        "a limit on values of a dict",
        needs(dict[str, int]),
        needs(dict[str, number(int, ge=0)]),
        NO,
        OK,
        "it{}",
    ),
    (
        "two ends crossed",
        needs(number(int, ge=1, le=5)),
        needs(number(int, ge=3, le=9)),
        NO,
        NO,
        "it",
    ),
    (
        "a union in place of one of its members, which need not say what it is",
        needs(Card),
        needs(tagged(Card, Pix)),
        NO,
        NO,
        "it.kind",
    ),
    (
        "a union in place of one of its members",
        needs(CardThatSays),
        needs(tagged(CardThatSays, Pix)),
        OK,
        NO,
        "it",
    ),
    ("a file by reference added", {}, may(File | None), OK, OK, "it"),
    ("a closed model opened", needs(Card), needs(Open), OK, NO, ""),
    (
        "a pattern that is called like a format",
        needs(str),
        needs(text(pattern="password")),
        NO,
        OK,
        "it",
    ),
    ("another default model", may(Pix, Pix(key="a")), may(Pix, Pix(key="b")), NO, NO, "it"),
    (
        "another list from a factory",
        may(list[int], Field(default_factory=list)),
        may(list[int], Field(default_factory=lambda: [1])),
        NO,
        NO,
        "it",
    ),
    (
        "a factory of something new each time",
        may(UUID, Field(default_factory=uuid4)),
        may(UUID, Field(default_factory=uuid1)),
        OK,
        OK,
        "",
    ),
    (
        "more places of as many digits",
        needs(number(Decimal, max_digits=7, decimal_places=2)),
        needs(number(Decimal, max_digits=7, decimal_places=4)),
        NO,
        NO,
        "it",
    ),
    (
        "a limit of thirty digits",
        needs(number(int, le=10**30)),
        needs(number(int, le=10**30 + 1)),
        OK,
        NO,
        "it",
    ),
    (
        "steps of very unlike sizes",
        needs(number(int, multiple_of=10**30)),
        needs(number(float, multiple_of=0.01)),
        OK,
        NO,
        "it",
    ),
]


def made(fields: Fields) -> dict[str, Any]:
    # A name of its own for each, as `create_model` with class keywords wants them.
    model = create_model(
        "Changing", __base__=Contract, __cls_kwargs__={"type": "changing", "version": 1}, **fields
    )
    return model.json_schema()


def verdict(changes: tuple[Change, ...]) -> tuple[str, str]:
    return (
        NO if any(change.backward for change in changes) else OK,
        NO if any(change.forward for change in changes) else OK,
    )


@pytest.mark.parametrize(
    ("before", "after", "backward", "forward", "path"),
    [case[1:] for case in CHANGES],
    ids=[case[0] for case in CHANGES],
)
def test_every_change_has_its_verdict(
    before: Fields, after: Fields, backward: str, forward: str, path: str
) -> None:
    changes = compare(made(before), made(after))

    assert verdict(changes) == (backward, forward), changes
    if path:
        assert path in {change.path for change in changes}, changes


def test_a_contract_that_contains_itself_is_compared_once_around() -> None:
    class Folder(Contract, type="folder", version=1):
        name: str
        inside: list["Folder"] = Field(default_factory=list)

    before = Folder.json_schema()
    after = json.loads(json.dumps(before).replace('"type": "string"', '"type": "integer"'))

    assert compare(before, before) == ()
    assert [(change.path, change.kind) for change in compare(before, after)] == [("name", "type")]


def test_a_schema_from_another_generator_is_read_too() -> None:
    before = {"type": ["string", "null"], "allOf": [{"maxLength": 5}]}
    after = {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 9}], "x-note": 1}

    assert verdict(compare(before, after)) == (OK, NO)


def test_members_of_a_union_that_overlap_are_laid_beside_themselves() -> None:
    one = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "additionalProperties": False,
    }
    two = {"type": "object", "properties": {}, "additionalProperties": False}

    assert compare({"anyOf": [one, two]}, {"anyOf": [one, two]}) == ()


def test_what_nobody_can_decide_is_refused() -> None:
    before: dict[str, Any] = {"type": "string"}
    after = {"type": "string", "not": {"const": "x"}}

    (change,) = compare(before, after)

    assert change.kind == "keyword"
    assert change.backward == 'messages of before may have no not, it takes not {"const": "x"} now'


def tree(nodes: int, **more: Any) -> Any:
    """Make an expression of so many kinds, each of which may hold all others."""
    names = [f"Node{number}" for number in range(nodes)]
    any_of_them = tagged(*map(ForwardRef, names), Literal_)
    fields: Fields = {"left": (any_of_them, ...), "right": (list[any_of_them], []), **more}
    made = {
        name: create_model(name, kind=(Literal[name], name), **fields)  # type: ignore[valid-type]
        for name in names
    }
    for model in made.values():
        model.model_rebuild(_types_namespace={**made, "Literal_": Literal_})
    return tagged(*made.values(), Literal_)


class Literal_(BaseModel):  # noqa: N801 - one of the kinds
    kind: Literal["literal"] = "literal"
    value: int


def test_models_that_all_refer_to_each_other_are_compared_in_no_time() -> None:
    before = made(needs(tree(8)))
    begun = monotonic()

    assert compare(before, made(needs(tree(8)))) == ()
    assert verdict(compare(before, made(needs(tree(8, note=(str | None, None)))))) == (OK, OK)
    assert verdict(compare(before, made(needs(tree(8, owner=(str, ...)))))) == (NO, OK)
    assert monotonic() - begun < 5  # it took hours


def test_models_that_are_met_on_many_ways_are_compared_once() -> None:
    def diamond(leaf: Any) -> Any:
        model = create_model("Leaf", value=(leaf, ...))
        for level in range(30):
            model = create_model(f"Level{level}", left=(model, ...), right=(model, ...))
        return model

    before = made(needs(diamond(int)))
    begun = monotonic()

    assert compare(before, before) == ()
    assert verdict(compare(before, made(needs(diamond(str))))) == (NO, NO)
    assert monotonic() - begun < 5


def test_hundreds_of_new_names_are_told_in_seconds() -> None:
    before = {f"old{number}": (int, ...) for number in range(400)}
    after = {f"new{number}": (int, ...) for number in range(400)}
    begun = monotonic()

    changes = compare(made(before), made(after))

    assert {change.kind for change in changes} == {"renamed"}
    assert monotonic() - begun < 10


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"$ref": "#"}, "which is its own end"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "which is its own end"),
        ({"$ref": "#a"}, "expected a pointer to what is in the same schema"),
        ({"$ref": "#/$defs/none"}, "expected a pointer to what is in the same schema"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        compare(schema, schema)
