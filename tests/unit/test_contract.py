"""A contract names itself, never changes, and is camelCase on the wire."""

import types
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, ValidationError

from filaviva_contracts import Contract, WakeUp, parse_wire_type, wire_type


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
