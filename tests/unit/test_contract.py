"""A contract names itself, never changes, and is camelCase on the wire."""

import types
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from time import monotonic
from typing import Annotated, Any, ForwardRef, Literal
from uuid import uuid4

import pytest
from pydantic import (
    AliasChoices,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    FutureDatetime,
    NaiveDatetime,
    Secret,
    SecretStr,
    StringConstraints,
    ValidationError,
    computed_field,
    create_model,
)
from typing_extensions import TypeAliasType

from filaviva.schemas import SchemaCheck
from filaviva_contracts import Contract, File, Part, WakeUp, parse_wire_type, wire_type


class Line(BaseModel):
    text: str


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")


class Extracted(Contract, type="document.extract", version=2):
    document_url: AnyUrl
    type: str = "pdf"
    version: int = 7
    lines: tuple[Line, ...] = ()
    loose: Loose | None = None
    due_at: datetime | None = None


def made(**keywords: Any) -> type:
    return types.new_class("Made", (Contract,), keywords)


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({}, "type: found nothing, expected lower-case words joined by dots"),
        ({"type": "order.paid"}, "version: found nothing, expected a whole number from 1"),
        ({"type": "Order.Paid", "version": 1}, "type: found 'Order.Paid'"),
        ({"type": "order.paid.v2", "version": 2}, "type: found 'order.paid.v2'"),
        ({"type": "order..paid", "version": 1}, "type: found 'order..paid'"),
        ({"type": "o" * 151, "version": 1}, "type: found 'ooo"),
        ({"type": "order.paid", "version": 0}, "version: found 0"),
        ({"type": "order.paid", "version": True}, "version: found True"),
        ({"type": "order.paid", "version": "1"}, "version: found '1'"),
        (
            {"type": "order.paid", "version": 1, "verison": 2},
            "found verison, expected type, version",
        ),
    ],
)
def test_wrong_class_keywords_are_refused_when_the_class_is_made(
    keywords: dict[str, Any], says: str
) -> None:
    with pytest.raises(TypeError) as refused:
        made(**keywords)

    assert says in str(refused.value)
    assert "contract Made" in str(refused.value)


def test_fields_may_be_called_type_and_version() -> None:
    message = Extracted(document_url=AnyUrl("https://a.example/x"), type="png", version=3)

    assert (message.type, message.version) == ("png", 3)
    assert (message.contract_type, message.contract_version) == ("document.extract", 2)


def test_two_fields_with_one_name_on_the_wire_are_refused() -> None:
    with pytest.raises(TypeError, match="two fields are called dueAt on the wire"):

        class _Twins(Contract, type="twins", version=1):
            due_at: str
            dueAt: str  # noqa: N815 - the clash


def test_a_message_never_changes() -> None:
    message = Extracted(document_url=AnyUrl("https://a.example/x"))

    with pytest.raises(ValidationError):
        message.version = 3  # type: ignore[misc]


def test_fields_of_a_newer_producer_are_ignored() -> None:
    message = Extracted.model_validate_json('{"documentUrl":"https://a.example/","later":1}')

    assert str(message.document_url) == "https://a.example/"


def test_the_wire_is_camel_case() -> None:
    message = WakeUp(job_id=uuid4(), epoch=1, type="document.extract", version=2, queue="llm")

    assert f'"jobId":"{message.job_id}"' in message.model_dump_json()


def test_a_number_that_json_does_not_know_is_refused() -> None:
    class Priced(Contract, type="priced", version=1):
        price: float

    with pytest.raises(ValidationError):
        Priced(price=float("nan"))


def test_the_schema_is_closed_except_where_a_model_is_open() -> None:
    schema = Extracted.json_schema()

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Line"]["additionalProperties"] is False
    assert schema["$defs"]["Loose"]["additionalProperties"] is True


def test_the_schema_names_fields_as_the_wire_does_and_demands_formats() -> None:
    schema = Extracted.json_schema()

    assert schema["required"] == ["documentUrl"]
    assert schema["properties"]["documentUrl"]["format"] == "uri"
    assert schema["properties"]["dueAt"]["anyOf"][0]["format"] == "date-time"


def test_the_wire_type_carries_the_version() -> None:
    assert wire_type("document.extract", 2) == "document.extract.v2"
    assert parse_wire_type("document.extract.v2") == ("document.extract", 2)
    assert parse_wire_type("document.extract") is None
    assert parse_wire_type("document.extract.v0") is None


def test_times_are_read_with_their_zone() -> None:
    message = Extracted.model_validate_json(
        '{"documentUrl":"https://a.example/","dueAt":"2026-12-01T10:00:00Z"}'
    )

    assert message.due_at == datetime(2026, 12, 1, 10, tzinfo=UTC)


class Card(BaseModel):
    kind: Literal["card"]


class Pix(BaseModel):
    kind: Literal["pix"]


Content = TypeAliasType("Content", list[bytes])


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ((bytes, ...), "it: found bytes, expected a File: content is referenced"),
        ((dict[str, bytes] | None, None), "it[]: found bytes"),
        ((list[Strict], ...), 'it[]: found extra="forbid" on Strict, expected "ignore"'),
        ((Card | Pix, ...), "it: found Card or Pix and nothing that tells them apart, expected"),
        ((list[Card | Pix], ...), "it[]: found Card or Pix and nothing that tells them apart"),
        ((int, Field(validation_alias="that")), "read as 'that' and written as 'it', expected one"),
        ((int, Field(exclude=True)), "it: found a required field that is never written"),
        ((SecretStr, ...), "it: found SecretStr, expected str: it would be sent as asterisks"),
        ((list[Secret[int]], ...), "it[]: found Secret, expected str: it would be sent as"),
        ((NaiveDatetime, ...), "it: found NaiveDatetime, expected datetime or AwareDatetime"),
        ((FutureDatetime | None, None), "it: found FutureDatetime, expected datetime without"),
        ((Content, ...), "it[]: found bytes, expected a File"),
    ],
)
def test_what_cannot_be_evolved_is_refused_when_the_class_is_made(field: Any, says: str) -> None:
    with pytest.raises(TypeError) as refused:
        create_model(
            "Made", __base__=Contract, __cls_kwargs__={"type": "made", "version": 1}, it=field
        )

    assert says in str(refused.value)
    assert str(refused.value).startswith("contract Made: ")


def test_a_computed_field_is_refused_for_it_is_sent_and_not_in_the_schema() -> None:
    with pytest.raises(TypeError, match="total: found a computed field, expected a field"):

        class _Computed(Contract, type="computed", version=1):
            amount: int

            @computed_field  # type: ignore[prop-decorator]
            @property
            def total(self) -> int:
                return self.amount


def test_what_is_named_before_it_exists_is_refused_when_it_is_published() -> None:
    class Late(Contract, type="late", version=1):
        parts: "list[Blob]"

    class Blob(BaseModel):
        content: bytes

    Late.model_rebuild(_types_namespace={"Blob": Blob})

    with pytest.raises(TypeError, match="found bytes, expected a File"):
        Late.json_schema()


def test_unions_enums_decimals_dates_and_files_may_evolve() -> None:
    class Paid(Contract, type="paid", version=1):
        amount: Annotated[Decimal, Field(max_digits=9, decimal_places=2)]
        by: Annotated[Card | Pix, Field(discriminator="kind")]
        on: date
        receipt: File | None = None

    paid = Paid.model_validate_json(
        '{"amount":"9.90","by":{"kind":"pix"},"on":"2026-12-01",'
        '"receipt":{"url":"https://a.example/r.pdf","mediaType":"application/pdf","size":7}}'
    )

    assert paid == Paid.model_validate_json(paid.model_dump_json())
    assert paid.receipt is not None
    assert paid.receipt.media_type == "application/pdf"
    amount = Paid.json_schema()["properties"]["amount"]
    assert amount["anyOf"][1]["x-decimalPlaces"] == 2


def test_the_keys_of_a_dict_are_closed_as_well() -> None:
    class Named(Contract, type="named", version=1):
        by_name: dict[Annotated[str, StringConstraints(pattern="^a")], int]

    check = SchemaCheck(Named.json_schema())

    assert check.flaws({"byName": {"ab": 1}}) == ()
    assert check.flaws({"byName": {"b": 1}}) != ()


class Noted(Contract, type="note.taken", version=1):
    text: str = ""
    written_at: datetime | None = None


def test_whoever_makes_a_message_may_not_mistype_a_field() -> None:
    with pytest.raises(ValidationError, match=r"txet[\s\S]*Extra inputs are not permitted"):
        Noted(txet="lost without a word")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["written_at", "writtenAt"])
def test_a_field_may_be_given_by_either_of_its_names(name: str) -> None:
    assert Noted(**{name: datetime(2026, 11, 30, tzinfo=UTC)}).written_at is not None


def test_whoever_reads_a_message_ignores_what_a_newer_publisher_has_added() -> None:
    newer = {"text": "read", "addedLater": 1}

    assert Noted.model_validate(newer) == Noted(text="read")
    assert Noted.model_validate_json('{"text":"read","addedLater":1}') == Noted(text="read")


class Choosy(Part):
    text: str = Field("", validation_alias=AliasChoices("text", "body"))


def test_where_a_field_has_more_names_than_one_nothing_is_said_of_them() -> None:
    assert Choosy(body="read").text == "read"  # type: ignore[call-arg]


def test_models_that_all_refer_to_each_other_are_looked_at_once() -> None:
    names = [f"Any{number}" for number in range(12)]
    fields: Any = {name.lower(): (ForwardRef(f"{name} | None"), None) for name in names}
    made = {name: create_model(name, **fields) for name in names}
    for model in made.values():
        model.model_rebuild(_types_namespace=made)
    begun = monotonic()

    create_model(
        "Made",
        __base__=Contract,
        __cls_kwargs__={"type": "made", "version": 1},
        it=(made["Any0"], ...),
    )

    assert monotonic() - begun < 5  # it took hours


def test_a_set_as_default_is_written_in_one_order() -> None:
    class Tagged(Contract, type="tagged", version=1):
        tags: set[str] = Field(default={"c", "a", "b"})
        made: set[str] = Field(default_factory=lambda: {"c", "a", "b"})

    properties = Tagged.json_schema()["properties"]

    assert properties["tags"]["default"] == properties["made"]["default"] == ["a", "b", "c"]


def test_a_member_of_a_union_has_to_say_which_one_it_is() -> None:
    class Dog(BaseModel):
        kind: Literal["dog"] = "dog"

    class Owned(Contract, type="owned", version=1):
        it: Annotated[Card | Dog, Field(discriminator="kind")]

    check = SchemaCheck(Owned.json_schema())

    assert check.flaws({"it": {"kind": "dog"}}) == ()
    assert {flaw.pointer for flaw in check.flaws({"it": {}})} == {"/it/kind"}


@pytest.mark.parametrize(
    "field",
    [
        (Callable[[int], str] | None, None),
        (str, Field("x", alias="$ref")),
        (dict[str, Any], Field({"$ref": "x"})),
    ],
)
def test_what_json_schema_has_no_words_for_is_told_with_the_contracts_name(field: Any) -> None:
    class Inside(Part):
        pass

    inside = create_model("Inside", __base__=Inside, it=field)
    keywords = {"type": "made", "version": 1}

    with pytest.raises(TypeError, match="contract Made: found what JSON Schema has no words for"):
        create_model(
            "Made", __base__=Contract, __cls_kwargs__=keywords, inside=(inside, inside())
        ).json_schema()


def test_a_text_that_is_no_number_does_not_pass_for_a_decimal() -> None:
    class Priced(Contract, type="priced", version=1):
        price: Decimal

    check = SchemaCheck(Priced.json_schema())

    for number in ("1", "-1.50", ".5", "5.", "1E+5", str(Decimal(10) ** 30), str(Decimal("1E-9"))):
        assert check.flaws({"price": number}) == (), number
        Priced.model_validate({"price": number})
    for text in ("", "abc", "NaN", "Infinity", "1,5", "1 000", "+", ".", "\u0661", "1e"):
        assert check.flaws({"price": text}), text
