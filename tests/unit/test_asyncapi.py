"""The AsyncAPI document is valid, whole, and says what the code does."""

import json
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
import yaml
from pydantic import BaseModel, Field

from filaviva import App, Context, Contract
from filaviva.asyncapi import document, of_app
from filaviva.schemas import SchemaCheck

ROOT = Path(__file__).parents[2]
COMMITTED = [ROOT / "contracts/asyncapi.yaml", *sorted(ROOT.glob("examples/*/asyncapi.yaml"))]
app = App("shop")


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]
    pair: tuple[int, str]


class Walk(Contract, type="pet.walk", version=2):
    """Walk a pet."""

    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Adopted(Contract, type="pet.adopted", version=1):
    """A pet has a home."""

    number: int


class Walked(BaseModel):
    steps: int


@app.handler(Walk, queue="pets")
async def walk(job: Walk, ctx: Context) -> Walked:
    """Walk."""
    return Walked(steps=ctx.attempt if job.pet else 0)


@app.on_event(Adopted, queue="mail")
@app.on_event(Adopted, queue="books", name="book")
async def congratulate(event: Adopted, ctx: Context) -> None:
    """Congratulate."""


class Groomed(Contract, type="pet.groomed", version=1):
    """A pet is beautiful."""

    number: int


app.publishes(Groomed, Adopted)
app.deprecate(Walk, sunset=date(2027, 1, 31))


def shop(**options: Any) -> dict[str, Any]:
    return document(of_app(app), title="shop", version="1", **options)


@cache
def rules() -> Any:
    text = (ROOT / "tests/vendor/asyncapi/3.1.0.json").read_text(encoding="utf-8")
    return jsonschema_rs.Draft7Validator(json.loads(text))


def flaws(found: Any) -> list[str]:
    return [f"{error.instance_path}: {error}"[:300] for error in rules().iter_errors(found)]


def looked_up(found: Any, reference: str) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_committed_document_is_valid(path: Path) -> None:
    assert flaws(yaml.safe_load(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("found", [shop(), shop(internal=True), document((), title="", version="")])
def test_a_document_is_valid_and_refers_to_nothing_that_is_not_there(found: Any) -> None:
    assert flaws(found) == []
    for reference in references(found):
        assert looked_up(found, reference) is not None


def test_the_rules_refuse_what_pydantic_would_have_written() -> None:
    found = shop()
    pet = found["components"]["schemas"]["pet.walk.v2"]["properties"]["pet"]
    assert pet["discriminator"] == "kind"

    pet["discriminator"] = {"propertyName": "kind"}

    assert flaws(found) != []


def test_an_event_is_received_from_its_exchange_for_each_queue_with_a_handler() -> None:
    found = shop()

    channel = found["channels"]["events.pet.adopted.v1"]
    assert channel["address"] == "pet.adopted.v1"
    assert channel["bindings"]["amqp"]["exchange"]["name"] == "filaviva.events"
    operation = found["operations"]["receive.pet.adopted.v1"]
    assert operation["x-filaviva-queues"] == ["filaviva.work.books", "filaviva.work.mail"]


def test_an_event_that_nobody_here_handles_is_sent() -> None:
    found = shop()

    assert "send.pet.groomed.v1" in found["operations"]
    assert "send.pet.adopted.v1" not in found["operations"]


def test_a_job_is_submitted_over_http_and_answered_with_its_result() -> None:
    found = shop()

    operation = found["operations"]["submit.pet.walk.v2"]
    assert found["channels"]["jobs"]["address"] == "/v1/jobs"
    (answer,) = operation["reply"]["messages"]
    job = looked_up(found, looked_up(found, answer["$ref"])["$ref"])
    assert {"$ref": "#/components/schemas/pet.walk.v2.result"} in (
        job["payload"]["properties"]["result"]["anyOf"]
    )


def test_a_version_on_its_way_out_says_until_when_it_is_read() -> None:
    walk = shop()["components"]["messages"]["pet.walk.v2.submission"]

    assert (walk["x-deprecated"], walk["x-sunset"]) == (True, "2027-01-31")


def test_what_goes_between_our_services_is_told_only_if_asked() -> None:
    assert "internal.filaviva.wakeup.v1" not in shop()["channels"]
    assert "internal.filaviva.wakeup.v1" in shop(internal=True)["channels"]


def test_every_example_fits_the_schema_of_its_data() -> None:
    found = shop(internal=True)

    checked = 0
    for message in found["components"]["messages"].values():
        for example in message.get("examples", ()):
            data = message["payload"]["properties"]["data"]
            schema = {**data, "components": found["components"]}
            assert SchemaCheck(schema).flaws(example["payload"]["data"]) == ()
            checked += 1
    assert checked == 9


@pytest.mark.parametrize("name", ["job.succeeded", "job.failed", "filaviva.wakeup"])
def test_the_examples_of_our_own_messages_are_those_that_are_frozen(name: str) -> None:
    golden = json.loads((ROOT / f"contracts/golden/{name}/1.json").read_text(encoding="utf-8"))

    (example,) = shop(internal=True)["components"]["messages"][f"{name}.v1"]["examples"]

    assert example["payload"]["data"] == golden["data"]
