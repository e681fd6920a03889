"""The next version of a contract begins as something that runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.command_line import CommandLine

SHOP = '''"""A shop."""

from filaviva import App, Contract, Context

app = App("shop")


class Pay(Contract, type="order.pay", version=1):
    """Pay an order."""

    order_id: str


@app.handler(Pay, queue="billing")
async def pay(job: Pay, ctx: Context) -> str:
    return job.order_id
'''
PROJECT = '[tool.filaviva.contracts]\napp = "shop_of_two:app"\n'


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop_of_two.py").write_text(SHOP)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli() -> CommandLine:
    return CommandLine()


def test_a_next_version_is_begun_and_runs_before_it_is_changed(
    shop: Path, cli: CommandLine
) -> None:
    draft = cli("contracts", "new-version", "order.pay")
    for words in (("export",), ("release",), ("new-version", "order.pay"), ("export",)):
        done = cli("contracts", *words)
        assert done.code == 0, done.err

    checked = cli("contracts", "check")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=shop,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(shop), "PYTHONDONTWRITEBYTECODE": "1"},
    )

    code = (shop / "shop_of_two.py").read_text()
    assert draft.code == 4
    assert "order.pay v1 is a draft, which may change in place" in draft.err
    assert 'class PayV2(Contract, type="order.pay", version=2):' in code
    assert "async def pay(job: PayV2, ctx: Context) -> str:" in code
    assert "@app.upcaster(Pay, to=2)" in code
    assert (shop / "contracts/golden/order.pay/2.json").exists()
    assert checked.code == 0, checked.out
    assert "draft    order.pay v2" in checked.out
    assert "1 passed" in tested.stdout, tested.stdout


EVENTS = '''"""What others publish."""

from typing import Annotated

from filaviva import Contract
from pydantic import Field


class Issued(
    Contract,
    type="invoice.issued",
    version=3,
):
    """An invoice is issued."""

    number: Annotated[int, Field(ge=1)]
    pages: list["Issued"] = []
'''
READERS = '''"""Who listens."""

from __future__ import annotations

import events_of_two
from filaviva import App, Context
from events_of_two import (
    Issued,
)

app = App("two")


@app.on_event(events_of_two.Issued)
async def mail(job: events_of_two.Issued, ctx: Context) -> None: ...


@app.on_event(Issued, queue="books")
async def book(job: Issued, ctx: Context) -> None: ...
'''


def test_every_handler_of_an_event_reads_its_next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    (tmp_path / "events_of_two.py").write_text(EVENTS)
    (tmp_path / "readers_of_two.py").write_text(READERS)
    (tmp_path / "pyproject.toml").write_text(PROJECT.replace("shop", "readers"))
    monkeypatch.chdir(tmp_path)

    for words in (("export",), ("release",), ("new-version", "invoice.issued"), ("export",)):
        done = cli("contracts", *words)
        assert done.code == 0, done.err

    code = (tmp_path / "readers_of_two.py").read_text()
    assert "@app.on_event(events_of_two.IssuedV4)" in code
    assert '@app.on_event(IssuedV4, queue="books")' in code
    assert code.count("@app.upcaster(Issued, to=4)") == 1
    events = (tmp_path / "events_of_two.py").read_text()
    assert "class IssuedV4(" in events
    assert 'pages: list["IssuedV4"] = []' in events
    assert cli("contracts", "check").code == 0
    assert cli("contracts", "new-version", "invoice.issued").code == 4  # v4 is a draft


def test_what_would_be_written_is_told_first(shop: Path, cli: CommandLine) -> None:
    for words in (("export",), ("release",)):
        cli("contracts", *words)

    told = cli("contracts", "new-version", "order.pay", "--dry-run")

    assert "would write" in told.out
    assert (shop / "shop_of_two.py").read_text() == SHOP


def test_a_handler_of_one_line_and_the_ends_of_lines_are_kept(shop: Path, cli: CommandLine) -> None:
    code = SHOP.replace("-> str:\n    return", "-> str: return").replace("\n", "\r\n")
    (shop / "shop_of_two.py").write_bytes(code.encode())
    for words in (("export",), ("release",), ("new-version", "order.pay"), ("export",)):
        done = cli("contracts", *words)
        assert done.code == 0, done.err

    assert cli("contracts", "check").code == 0
    written = (shop / "shop_of_two.py").read_bytes()
    assert b"async def pay(job: PayV2, ctx: Context) -> str: return job.order_id\r\n" in written
    assert written.count(b"\n") == written.count(b"\r\n")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (f"{SHOP}\n\nclass PayV2: ...\n".encode(), "already, expected the name to be free"),
        (b"# coding: latin-1\n# \xe9\n" + SHOP.encode(), "is not UTF-8 (byte 20)"),
    ],
)
def test_code_that_cannot_be_gone_on_with_is_left_as_it_is(
    shop: Path, cli: CommandLine, code: bytes, says: str
) -> None:
    (shop / "shop_of_two.py").write_bytes(code)
    for words in (("export",), ("release",)):
        assert cli("contracts", *words).code == 0

    refused = cli("contracts", "new-version", "order.pay")

    assert refused.code != 0
    assert says in refused.err
    assert (shop / "shop_of_two.py").read_bytes() == code
    assert not (shop / "contracts/golden/order.pay/2.json").exists()


@pytest.mark.usefixtures("shop")
def test_an_unknown_type_is_told_what_there_is(cli: CommandLine) -> None:
    told = cli("contracts", "new-version", "order.payed")

    assert told.code == 3
    assert "found no contract 'order.payed' in the code; there is: order.pay" in told.err


def test_a_project_without_an_app_is_told_where_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    monkeypatch.chdir(tmp_path)

    told = cli("contracts", "check")

    assert told.code == 2
    assert "[tool.filaviva.contracts] app = …" in told.err


def test_a_breaking_change_is_told_with_field_reason_pointer_and_next_step(
    shop: Path, cli: CommandLine
) -> None:
    for words in (("export",), ("release",)):
        cli("contracts", *words)
    (shop / "shop_of_two.py").write_text(SHOP.replace("order_id: str", "order_id: int"))

    told = cli("contracts", "check")
    as_json = cli("contracts", "check", "--json").json

    assert told.code == 4
    assert "refused  order.pay v1: orderId has another type" in told.out
    assert "at /properties/orderId, since schemas/order.pay/1.json" in told.out
    assert "BACKWARD: messages of before may have string, it takes integer now" in told.out
    assert "make version 2: filaviva contracts new-version order.pay" in told.out
    assert as_json["changes"][0]["pointer"] == "/properties/orderId"
    assert as_json["passes"] is False
