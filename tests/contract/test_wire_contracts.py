"""Our own messages stay readable: schemas are as published, examples are frozen."""

import json
from pathlib import Path

import pytest

from filaviva.callbacks.contract import CallBack
from filaviva.drill.contract import DrillCall
from filaviva.schemas import SchemaCheck
from filaviva_contracts import CONTENT_TYPE, Contract, Envelope
from filaviva_contracts.wire import WIRE

CONTRACTS = Path(__file__).parents[2] / "contracts"
OURS = (*WIRE, CallBack, DrillCall)
NAMES = [f"{contract.contract_type} v{contract.contract_version}" for contract in OURS]


def _file(folder: str, contract: type[Contract]) -> Path:
    return CONTRACTS / folder / contract.contract_type / f"{contract.contract_version}.json"


@pytest.mark.parametrize("contract", OURS, ids=NAMES)
def test_the_published_schema_is_that_of_the_code(contract: type[Contract]) -> None:
    published = json.loads(_file("schemas", contract).read_text(encoding="utf-8"))

    assert published == contract.json_schema(), "run: filaviva contracts export --project contracts"


@pytest.mark.parametrize("contract", OURS, ids=NAMES)
def test_a_frozen_example_is_read_and_written_as_it_was(contract: type[Contract]) -> None:
    frozen = _file("golden", contract).read_bytes()

    envelope = Envelope.decode(frozen, CONTENT_TYPE, {})
    message = contract.model_validate_json(envelope.data)

    assert envelope.contract == (contract.contract_type, contract.contract_version)
    assert json.loads(message.model_dump_json()) == json.loads(frozen)["data"]
    assert json.loads(envelope.encode()) == json.loads(frozen)


@pytest.mark.parametrize("contract", OURS, ids=NAMES)
def test_a_frozen_example_fits_the_published_schema(contract: type[Contract]) -> None:
    check = SchemaCheck(json.loads(_file("schemas", contract).read_text(encoding="utf-8")))
    data = json.loads(_file("golden", contract).read_text(encoding="utf-8"))["data"]

    assert check.flaws(data) == ()


def test_every_file_belongs_to_a_contract() -> None:
    known = {_file(folder, contract) for folder in ("schemas", "golden") for contract in OURS}

    assert {*CONTRACTS.glob("schemas/*/*"), *CONTRACTS.glob("golden/*/*")} == known
