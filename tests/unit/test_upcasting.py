"""Old data is made new, step by step, before a handler reads it."""

import json
import sys
from decimal import Decimal
from typing import Any

import pytest

from filaviva import App, ConfigurationError, Context, Contract, InvalidInput
from filaviva.testing import run_handler
from filaviva.upcasting import Upcaster, upcast


class First(Contract, type="invoice.extract", version=1):
    """One line of text."""

    address: str


class Third(Contract, type="invoice.extract", version=3):
    """Split, with a country."""

    street: str
    city: str
    country: str
    total: Decimal = Decimal(0)


class Issued(Contract, type="invoice.issued", version=2):
    """An event."""

    number: str


def split(data: dict[str, Any]) -> dict[str, Any]:
    street, city = data.pop("address").split(", ")
    return {**data, "street": street, "city": city}


def locate(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "country": "PT"}


async def read(job: Third, _: Context) -> str:
    return f"{job.street}|{job.city}|{job.country}"


async def ignore(_job: object, _: Context) -> None:
    """Do nothing."""


@pytest.fixture
def app() -> App:
    app = App("billing")
    app.handler(Third, queue="llm")(read)
    app.upcaster(First, to=2)(split)
    app.upcaster("invoice.extract", 2, to=3)(locate)
    return app


async def test_a_job_of_the_first_version_runs_through_the_handler_of_the_third(app: App) -> None:
    ran = await run_handler(app, First(address="Rua Augusta 1, Lisboa"))

    assert ran.value == "Rua Augusta 1|Lisboa|PT"


def test_an_app_reads_what_its_upcasters_lead_to_a_handler(app: App) -> None:
    assert app.reads() == {"invoice.extract": (1, 2, 3)}
    assert [(step.version, step.to, step.name) for step in app.upcasters] == [
        (1, 2, "split"),
        (2, 3, "locate"),
    ]
    assert app.find("invoice.extract", 4) is None
    assert app.old_contracts == {("invoice.extract", 1): First}


def test_a_handler_of_its_own_comes_before_upcasting(app: App) -> None:
    app.handler(First)(ignore)

    found = app.find("invoice.extract", 1)

    assert found is not None
    assert (found.version, found.upcasters) == (1, ())


def test_every_handler_of_an_event_has_its_old_versions_upcast() -> None:
    app = App("billing")
    for name in ("thank", "archive"):
        app.on_event(Issued, name=name)(ignore)
    app.upcaster("invoice.issued", 1, to=2)(locate)

    assert app.reads() == {"invoice.issued:archive": (1, 2), "invoice.issued:thank": (1, 2)}


def test_numbers_that_no_step_touches_stay_what_they_were() -> None:
    step = Upcaster.of("a.b", 1, 2, lambda data: {**data, "new": None})

    text = upcast('{"total":12345678901234567890.1234567890}', [step])

    assert text == '{"total":12345678901234567890.1234567890,"new":null}'


def nested(levels: int) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for _ in range(levels):
        data = {"inside": data}
    return data


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda data: data["missing"], "raised KeyError: 'missing'"),
        (lambda data: data.clear(), "returned NoneType, expected a dict"),
        (lambda _: {"when": object()}, "returned what is no JSON"),
        (lambda _: nested(5000), "returned what is no JSON"),
        (lambda _: sys.exit(3), "raised SystemExit: 3"),
    ],
)
async def test_what_a_step_cannot_do_is_said_with_its_name(function: Any, said: str) -> None:
    app = App("billing")
    app.handler(Third)(read)
    app.upcaster("invoice.extract", 2, to=3)(function)
    handler = app.find("invoice.extract", 2)
    assert handler is not None

    with pytest.raises(InvalidInput, match="the upcaster <lambda>") as failed:
        handler.parse(json.dumps({"street": "x"}))

    assert said in str(failed.value)


def test_a_step_that_leads_nowhere_is_found_when_the_app_is_loaded() -> None:
    app = App("billing")
    app.handler(Third)(read)
    app.upcaster("invoice.extract", 1, to=2)(split)

    with pytest.raises(ConfigurationError, match="v1 to v2, which nothing reads"):
        app.check()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("invoice.extract", 1, 3), "expected to=2"),
        (("Invoice", 1, 2), "expected lower-case words"),
        (("invoice.extract", 0, 1), "expected a whole number from 1"),
        (("invoice.extract", None, 2), "found no version"),
        ((First, 2, 3), "found version 2, expected 1"),
        ((dict, 1, 2), "expected a contract's type or its class"),
    ],
)
def test_a_wrong_registration_says_what_is_expected(arguments: Any, said: str) -> None:
    contract, version, to = arguments

    with pytest.raises(ConfigurationError, match=said):
        App("billing").upcaster(contract, version, to=to)(locate)


@pytest.mark.parametrize("function", [read, lambda _, __: {}, "locate"])
def test_only_a_plain_function_of_the_data_upcasts(function: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"expected a (?:plain )?function"):
        App("billing").upcaster("invoice.extract", 1, to=2)(function)


def test_two_steps_from_one_version_are_refused(app: App) -> None:
    with pytest.raises(ConfigurationError, match="found the upcasters split and locate"):
        app.upcaster("invoice.extract", 1, to=2)(locate)
