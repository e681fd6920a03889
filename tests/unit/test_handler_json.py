"""Between JSON and Python nothing is lost, and what does not fit is told with its place."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import AnyUrl, BaseModel, Field

from filaviva import App, Context, Contract, InvalidInput, InvalidOutput
from filaviva.handler import Handler
from filaviva.shape import Shape


class Invoice(Contract, type="invoice.read", version=1):
    document_url: AnyUrl
    total: Decimal = Decimal(0)
    weight: float = 0
    extra: Any = None


class Read(BaseModel):
    total: Decimal
    rate: float = Field(default=0, le=1)


@dataclass
class Place:
    name: str


@dataclass
class Loosely:
    name: Any


def handler() -> Handler:
    app = App("shop")

    @app.handler(Invoice)
    async def read(_job: Invoice, _context: Context) -> Read:
        raise NotImplementedError

    return app.handlers["invoice.read"][1]


def untyped() -> Shape:
    def anything(_job: Any, _context: Any):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    return Shape.of(anything)


def data(rest: str = "") -> str:
    return f'{{"documentUrl":"https://a.example/x"{rest}}}'


@pytest.mark.parametrize(
    "number", ["12345678901234567890.12", "0.10000000000000000555", "1e300", "1.10", "7"]
)
def test_a_decimal_keeps_its_exact_value(number: str) -> None:
    job = handler().parse(data(f',"total":{number}'))

    assert isinstance(job, Invoice)
    assert job.total == Decimal(number)


def test_beside_an_exact_number_an_ordinary_one_stays_a_float() -> None:
    job = handler().parse(data(',"total":12345678901234567890.12,"weight":0.5,"extra":[0.1]'))

    assert isinstance(job, Invoice)
    assert (job.weight, job.extra) == (0.5, [0.1])
    assert type(job.extra[0]) is float


def test_data_is_read_tolerantly() -> None:
    job = handler().parse(data(',"total":"2.50","later":true'))

    assert isinstance(job, Invoice)
    assert job.total == Decimal("2.50")


def test_data_that_does_not_fit_is_told_with_its_place_and_without_the_value() -> None:
    with pytest.raises(InvalidInput) as refused:
        handler().parse('{"documentUrl":"secret-token","total":"much"}')

    assert [flaw.pointer for flaw in refused.value.flaws] == ["/documentUrl", "/total"]
    assert "secret-token" not in str(refused.value)


def test_a_result_is_written_by_its_annotation() -> None:
    assert handler().encode_result({"total": "1.10"}) == '{"total":"1.10","rate":0.0}'
    assert handler().encode_result(Read(total=Decimal(2))) == '{"total":"2","rate":0.0}'


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"rate": 0.5}, "/total"),
        (None, "does not fit"),
        ("text", "does not fit"),
        (Read.model_construct(total="much"), "no JSON form"),
        (Read.model_construct(total=Decimal(1), rate=2.0), "/rate"),
        (Read.model_construct(total=Decimal(1), rate=float("nan")), "no JSON form"),
    ],
)
def test_a_result_that_its_schema_refuses_is_invalid_output(value: Any, says: str) -> None:
    with pytest.raises(InvalidOutput) as refused:
        handler().encode_result(value)

    assert says in str(refused.value)


class Loose(BaseModel):
    anything: Any = None


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Any, NAN),
        (object, INFINITE),
        (list[Any], [1, None, NAN]),
        (dict[str, Any], {"a": {"b": (NAN,)}}),
        (Loose, Loose(anything=NAN)),
        (Loosely, Loosely({"name": -INFINITE})),
        (Any, [Loose(anything={NAN})]),
    ],
    ids=repr,
)
def test_a_number_without_a_json_form_is_refused_wherever_anything_is_allowed(
    annotation: Any, value: Any
) -> None:
    with pytest.raises(InvalidOutput, match="NaN or an infinity"):
        Shape(annotation, owner="f").encode(value)


@pytest.mark.parametrize("value", [None, [None], {"a": None, "b": 1e308}, Loose()])
def test_nothing_is_not_taken_for_a_number(value: Any) -> None:
    assert "null" in str(Shape(Any, owner="f").encode([value]))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("a\x00b", "NUL"),
        ({"a\x00": 1}, "NUL"),
        ("a\ud800", "surrogate"),
        (float("nan"), "no JSON form"),
        ([float("inf")], "no JSON form"),
        (object(), "no JSON form"),
        ([10**5000], "no JSON form"),
        ("é" * 100, "202 bytes"),
    ],
)
def test_a_result_that_cannot_be_stored_is_invalid_output(value: Any, says: str) -> None:
    with pytest.raises(InvalidOutput) as refused:
        untyped().encode(value, limit=150)

    assert says in str(refused.value)


def test_a_result_that_holds_itself_is_invalid_output() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(InvalidOutput):
        untyped().encode(endless)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("\\u0000", r'"\\u0000"'),
        ({"at": datetime(2026, 12, 1, tzinfo=UTC)}, '{"at":"2026-12-01T00:00:00Z"}'),
        (Decimal("1.10"), '"1.10"'),
        (Place("x"), '{"name":"x"}'),
        (2**70, "1180591620717411303424"),
        ("é", '"é"'),
    ],
)
def test_without_an_annotation_any_json_will_do(value: Any, text: str | None) -> None:
    assert untyped().encode(value) == text


def test_a_written_value_is_read_back_as_what_it_was() -> None:
    def place() -> list[Place]:
        raise NotImplementedError

    shape = Shape.of(place)

    assert shape.decode(shape.encode([Place("x")])) == [Place("x")]
