"""Outlines tell types and shapes, never contents; and what a candidate would make of them."""

import json
from time import monotonic
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import Field, StringConstraints, create_model

from filaviva import App, Context, Contract
from filaviva.evolution.catalog import catalog
from filaviva.evolution.outline import filled, outline, vocabulary
from filaviva.evolution.samples import Sample
from filaviva.evolution.trial import Tried, tried

SECRETS = (
    "Ana Souza",
    "ana@acme.example",
    "https://acme.example/ana?token=s3cr3t",
    "529.982.247-25",
    "b7c0a3f2-7f0e-4a3a-9d4e-0f6f2f1f4a11",
    "1987-04-01",
    "+55 11 91234-5678",
    "é",
)


def paid(**fields: Any) -> type[Contract]:
    made = create_model(
        "Paid", __base__=Contract, __cls_kwargs__={"type": "order.paid", "version": 1}, **fields
    )
    assert issubclass(made, Contract)
    return made


def try_on(contract: type[Contract], *sent: Any, by: type[Contract] | None = None) -> list[Tried]:
    """Sample what was sent under one contract and try it on another."""
    app = App("shop")

    async def handle(_job: Any, _ctx: Context) -> None: ...

    app.handler(contract)(handle)
    words = vocabulary((by or contract).json_schema())
    samples = [Sample(type="order.paid", version=1, outline=outline(one, words)) for one in sent]
    return tried(catalog(app), samples)


def test_nothing_that_was_sent_is_in_its_outline() -> None:
    words = vocabulary(paid(name=(str, ...), kind=(Literal["card"], ...)).json_schema())
    sent = {
        "name": SECRETS[0],
        "kind": "card",
        "more": [*SECRETS, 1987, 12.34, True, None],
        "by": {secret: secret for secret in SECRETS},
    }

    drawn = json.dumps(outline(sent, words), ensure_ascii=False)

    assert not [secret for secret in (*SECRETS, "1987", "12.34") if secret in drawn]
    assert "name" in drawn  # the contract's own words are no secret
    assert '"value": "card"' in drawn
    assert "more" not in drawn


@pytest.mark.parametrize(
    ("value", "drawn"),
    [
        (None, "null"),
        (False, "boolean"),
        (-1234.5, {"number": "-9999.9"}),
        ("529.982.247-25", {"mask": "999.999.999-99"}),
        ("Ana Souza", {"text": [8, 15], "of": " Aa"}),
        ("", {"text": [0, 0], "of": ""}),
        (str(UUID(int=7)), {"format": "uuid"}),
        ("2026-11-30T12:00:00Z", {"format": "date-time"}),
        ([1, 2, 30], {"items": [{"number": "9"}, {"number": "99"}], "length": [2, 3]}),
    ],
)
def test_an_outline_says_types_and_shapes(value: Any, drawn: Any) -> None:
    assert outline(value, frozenset()) == drawn


def test_what_is_made_of_an_outline_has_that_outline() -> None:
    words = frozenset({"a", "b"})
    sent = {"a": ["12/2026", -7, 1250, None], "b": {"a": 1.25, "other": True}}

    drawn = outline(sent, words)

    assert outline(filled(drawn, high=True), words) == drawn


def test_a_candidate_that_would_refuse_what_was_sent_is_told_where() -> None:
    before = paid(code=(str, ...), size=(int, ...))
    now = paid(code=(str, ...), size=(Annotated[int, Field(le=10)], ...), extra=(str, ...))

    (found,) = try_on(now, {"code": "x", "size": 125}, by=before)

    assert [flaw.pointer for flaw in found.certain] == ["/extra", "/size"] or [
        flaw.pointer for flaw in found.certain
    ] == ["/size", "/extra"]
    assert found.possible == ()


def test_what_only_some_of_a_shape_would_fit_is_told_as_perhaps() -> None:
    now = paid(size=(Annotated[int, Field(le=150)], ...))

    (found,) = try_on(now, {"size": 125})

    assert found.certain == ()
    assert [flaw.pointer for flaw in found.possible] == ["/size"]


def test_digits_decide_a_pattern_and_letters_do_not() -> None:
    now = paid(code=(Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")], ...))

    digits, letters = try_on(now, {"code": "123"}, {"code": "ABC"})

    assert [flaw.pointer for flaw in digits.certain] == ["/code"]
    assert letters.certain == ()
    assert letters.possible


def test_what_its_contract_never_named_is_nobodys_flaw() -> None:
    assert try_on(paid(code=(str, ...)), {"code": "x", "unknown": 1}) == []


def test_an_unchanged_contract_takes_what_was_sent() -> None:
    contract = paid(
        code=(str, ...),
        at=(UUID, ...),
        kind=(Literal["card", "pix"], "pix"),
        by_name=(dict[str, list[int]], ...),
    )
    sent = {"code": "A1", "at": str(UUID(int=5)), "kind": "card", "byName": {"Ana": [1, 22]}}

    assert try_on(contract, sent) == []


def test_an_old_version_is_tried_through_its_upcaster() -> None:
    app = App("shop")
    second = create_model(
        "Paid", __base__=Contract, __cls_kwargs__={"type": "order.paid", "version": 2}, n=(int, ...)
    )

    async def handle(_job: Any, _ctx: Context) -> None: ...

    app.handler(second)(handle)
    app.upcaster("order.paid", 1, to=2)(lambda data: {"n": data["count"]})
    words = frozenset({"count", "total"})
    samples = [
        Sample(type="order.paid", version=1, outline=outline(sent, words))
        for sent in ({"count": 3}, {"total": 3})
    ]

    (found,) = tried(catalog(app), samples)

    assert found.sample is samples[1]
    assert "UpcastFailed" in str(found.possible) or "count" in str(found.possible)


@pytest.mark.parametrize(
    "value",
    [
        f"a@{'.' * 60_000} ",
        f"a@{'.a' * 30_000}@",
        f"{'a' * 60_000}:// ",
        [f"{'-' * number}9" for number in range(60)] * 200,
    ],
)
def test_the_outline_of_whatever_was_sent_is_drawn_at_once(value: Any) -> None:
    begun = monotonic()

    outline(value, frozenset())

    assert monotonic() - begun < 2  # some took minutes
