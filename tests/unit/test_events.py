"""What names an event, what it means, and whose it is."""

from typing import Any

import pytest

from filaviva import events
from filaviva.events import Event, Publishers
from filaviva_contracts import Envelope, Undecodable


def event(data: str = '{"number": 17}', **attributes: Any) -> Event:
    given = {"id": "e-1", "source": "/billing", "type": "invoice.issued.v1", **attributes}
    return events.read(Envelope(data=data, **given))


def test_a_copy_that_is_written_differently_means_the_same() -> None:
    headers = {
        "cloudEvents:specversion": "1.0",
        "cloudEvents:id": "e-1",
        "cloudEvents:source": "/billing",
        "cloudEvents:type": "invoice.issued.v1",
    }
    binary = events.read(Envelope.decode(b'{ "number" : 17.0 }', "application/json", headers))

    assert (binary.key, binary.body_hash) == (event().key, event().body_hash)


@pytest.mark.parametrize(
    "other", [{"data": '{"number": 18}'}, {"type": "invoice.issued.v2"}, {"data": "null"}]
)
def test_other_data_or_another_type_means_something_else(other: dict[str, Any]) -> None:
    assert event(**other).body_hash != event().body_hash


def test_each_handler_has_an_inbox_of_its_own_in_each_tenant() -> None:
    ours, theirs = event(), event(extensions={"tenant": "acme"})

    assert ours.consumer("llm", "book") == "event:llm:book"
    assert theirs.consumer("llm", "book") == "event:llm:book:acme"
    assert (ours.key, ours.publication) == ("/billing|e-1", "event:http")


def test_names_of_any_length_fit_into_an_index_and_an_amqp_property() -> None:
    long = event(id="é" * 1000)

    assert len(long.key) == 64
    assert len(events.message_id(long)) == 64
    assert len(long.correlation_id) == 64
    assert event(id="é" * 999 + "e").key != long.key


@pytest.mark.parametrize("tenant", ["", "a b", "x" * 101, 7, "\0"])
def test_a_tenant_that_no_key_could_have_is_undecodable(tenant: Any) -> None:
    with pytest.raises(Undecodable, match="tenant: found"):
        event(extensions={"tenant": tenant})


def test_a_type_without_a_version_is_undecodable() -> None:
    with pytest.raises(Undecodable, match=r"expected one that ends in \.vN"):
        event(type="invoice.issued")


def test_a_header_that_cannot_be_stored_is_undecodable() -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "a\0b", "ce-source": "/s", "ce-type": "t.v1"}

    with pytest.raises(Undecodable, match="id: it contains a NUL character"):
        Envelope.decode(b"{}", "application/json", headers)


def test_a_trace_is_kept_only_if_it_is_one() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    assert event(traceparent=trace).traceparent == trace
    assert event(traceparent="nonsense").traceparent is None


@pytest.mark.parametrize(
    ("user", "tenant", "may"),
    [
        (None, "acme", False),
        ("shop", "acme", False),
        ("billing", "globex", False),
        ("billing", "acme", True),
        ("filaviva", "globex", True),
        (None, "default", True),
    ],
)
def test_publishers_name_their_tenants_we_any_and_everybody_the_default_one(
    user: str | None, tenant: str, *, may: bool
) -> None:
    publishers = Publishers.trusting("filaviva", {"billing": ["acme"]})

    assert publishers.may_name(user, tenant) == may
