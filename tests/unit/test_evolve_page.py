"""The programs of docs/howto/evolve-a-contract.md do what the page says."""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from filaviva.app import load_app
from filaviva.testing import run_handler

PAGE = Path(__file__).parents[2] / "docs/howto/evolve-a-contract.md"


def program(name: str) -> str:
    """The code after the comment that names it."""
    found = re.search(
        rf"<!-- {name} -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert found is not None, name
    return found[1]


@pytest.fixture
def orders(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleType]:
    """The page's module in this release."""
    (tmp_path / "orders.py").write_text(program(request.param), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    load_app("orders:app")
    yield import_module("orders")
    del sys.modules["orders"]


@pytest.mark.parametrize("orders", ["first"], indirect=True)
async def test_the_first_release_ships_an_order(orders: ModuleType) -> None:
    ran = await run_handler(orders.app, orders.ShipOrder(order=7, address="Rua Augusta 1, Lisboa"))

    assert ran.value == "7 to Rua Augusta 1, Lisboa"


@pytest.mark.parametrize("orders", ["second"], indirect=True)
async def test_the_second_release_passes_the_pages_own_test(orders: ModuleType) -> None:
    scope: dict[str, object] = {}
    exec(program("test"), scope)  # noqa: S102 - the page's program

    await scope["test_an_old_order_is_still_shipped"]()  # type: ignore[operator]
    assert orders.app.reads() == {"order.ship": (1, 2)}
