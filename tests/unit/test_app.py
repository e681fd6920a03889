"""An app finds wiring errors when it is made, and says what was found and expected."""

import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import filaviva
from filaviva import App, ConfigurationError, Context, Contract, Policy, SyncContext
from filaviva.app import load_app
from filaviva.evolution.catalog import catalog


class Paid(Contract, type="order.paid", version=1):
    order: int


class PaidLater(Contract, type="order.paid", version=2):
    order: int


class Receipt(BaseModel):
    number: int


async def charge(_job: Paid, _context: Context) -> Receipt:
    return Receipt(number=1)


def charge_slowly(_job: Paid, _context: SyncContext) -> None:
    pass


class Charging:
    async def __call__(self, job: Paid, context: Context) -> Receipt:
        return await charge(job, context)


async def _stream(_job: Paid, _context: Context) -> AsyncIterator[int]:
    yield 1


async def of_another(_job: PaidLater, _context: Context) -> None:
    pass


async def alone(_job: Paid) -> None:
    pass


def unwritable(_job: Paid, _context: SyncContext) -> Callable[[], None]:
    raise NotImplementedError


def test_handlers_are_found_by_type_and_version() -> None:
    app = App("shop")
    app.handler(PaidLater, queue="slow")(of_another)
    app.handler(Paid, queue="fast", policy=Policy(max_attempts=2))(charge)

    assert {kind: list(versions) for kind, versions in app.handlers.items()} == {
        "order.paid": [2, 1]
    }
    assert app.queues == ("fast", "slow")
    assert app.find("order.paid", 1).policy.max_attempts == 2  # type: ignore[union-attr]
    assert app.find("order.paid", 3) is None


def test_a_registered_function_stays_callable() -> None:
    assert App("shop").handler(Paid)(charge) is charge


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (charge, True),
        (charge_slowly, False),
        (Charging(), True),
        (functools.partial(charge), True),
        (functools.partial(charge_slowly), False),
    ],
)
def test_async_and_sync_handlers_are_told_apart(
    function: Callable[..., Any],
    is_async: bool,  # noqa: FBT001
) -> None:
    app = App("shop")

    app.handler(Paid)(function)

    assert app.handlers["order.paid"][1].is_async is is_async


@pytest.mark.parametrize(
    ("keywords", "function", "says"),
    [
        ({"queue": "Fast"}, charge, "found queue 'Fast', expected a lower-case letter"),
        ({"queue": "q" * 41}, charge, "expected a lower-case letter"),
        ({"policy": {"max_attempts": 1}}, charge, "expected a Policy"),
        ({}, _stream, "found a generator, expected a function that returns"),
        ({}, alone, "expected a function of (job, context)"),
        ({}, of_another, "found a function of PaidLater, expected one of Paid"),
        ({}, "charge", "found 'charge', expected a function"),
        ({}, unwritable, "expected a type with a JSON form"),
    ],
)
def test_a_handler_that_does_not_fit_is_refused(
    keywords: dict[str, Any], function: Any, says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        App("shop").handler(Paid, **keywords)(function)

    assert says in str(refused.value)


@pytest.mark.parametrize("contract", [Contract, dict, Receipt, "order.paid"])
def test_only_a_contract_can_have_a_handler(contract: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected a"):
        App("shop").handler(contract)(charge)


def test_two_handlers_of_one_version_are_refused() -> None:
    app = App("shop")
    app.handler(Paid)(charge)

    with pytest.raises(ConfigurationError, match="charge and charge_slowly for order"):
        app.handler(Paid)(charge_slowly)


def test_our_own_types_are_not_free() -> None:
    class Ours(Contract, type="filaviva.mine", version=1):
        pass

    with pytest.raises(ConfigurationError, match="not free"):
        App("shop").handler(Ours)(lambda _job, _context: None)


@pytest.mark.parametrize("name", ["", "Shop", "shop app", None])
def test_an_app_has_a_name_that_fits_everywhere(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="found the name"):
        App(name)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("shop", "expected package.module:attribute"),
        ("no_such_package.app:app", "there is no module 'no_such_package'"),
        ("email.no_such_module:app", "there is no module 'email.no_such_module'"),
        ("json:app", "json has no 'app'; expected the name of an App (it has: none)"),
        ("json:dumps", "json:dumps is found to be a function, expected an App"),
    ],
)
def test_a_path_that_leads_to_no_app_says_what_is_there(path: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_app(path)

    assert says in str(refused.value)


def test_an_app_is_found_in_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_small_shop.py").write_text("from filaviva import App\napp = App('small')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])

    assert load_app("a_small_shop:app").name == "small"


def test_what_an_app_itself_cannot_import_is_not_blamed_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_broken_shop.py").write_text("import no_such_thing\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
        load_app("a_broken_shop:app")


def test_importing_the_sdk_loads_no_server_and_no_driver() -> None:
    heavy = "fastapi sqlalchemy aio_pika asyncpg uvicorn jsonschema_rs pydantic_settings typer"
    program = f"import filaviva, sys; print([m for m in '{heavy}'.split() if m in sys.modules])"

    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert shown.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert all(hasattr(filaviva, name) for name in filaviva.__all__)
    assert list(filaviva.__all__) == sorted(filaviva.__all__)


def test_a_declared_event_belongs_to_what_the_app_defines() -> None:
    class Shipped(Contract, type="order.shipped", version=3):
        number: int

    app = App("shop")
    app.publishes(Shipped)

    assert app.published == {("order.shipped", 3): Shipped}
    found = catalog(app)
    assert found.defined.keys() == found.readers.keys() == {("order.shipped", 3)}
