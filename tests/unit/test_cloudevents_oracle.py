"""Our envelope and the CloudEvents SDK say the same of an event, in both modes and both ways."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cloudevents.core.bindings import amqp, http
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from filaviva_contracts import CONTENT_TYPE, Envelope

_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
_MOMENT = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001 - the zone is drawn apart
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3))]),
)
_EXTENSIONS = st.dictionaries(
    st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True).filter(
        lambda name: name not in {"id", "source", "type", "time", "data", "subject", "specversion"}
    ),
    st.one_of(_TEXT, st.booleans(), st.integers(-(2**31), 2**31 - 1)),
    max_size=3,
)
_DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def events(draw: st.DrawFn) -> CloudEvent:
    """Draw an event as another publisher would make it."""
    attributes = {
        "id": draw(_TEXT),
        "source": draw(_TEXT),
        "type": draw(_TEXT),
        "specversion": "1.0",
        "datacontenttype": "application/json",
        "time": draw(_MOMENT),
        **draw(_EXTENSIONS),
    }
    return CloudEvent(attributes, draw(st.dictionaries(_TEXT, _DATA, max_size=4)))


def said(envelope: Envelope) -> dict[str, Any]:
    """What our envelope says, as the SDK's attributes."""
    known = (
        "id",
        "source",
        "type",
        "datacontenttype",
        "correlationid",
        "traceparent",
        "dataschema",
    )
    found = {name: getattr(envelope, name) for name in known if getattr(envelope, name) is not None}
    moment = envelope.time
    return {**found, **envelope.extensions, "specversion": "1.0", "time": moment}


def to_the_millisecond(attributes: dict[str, Any]) -> dict[str, Any]:
    moment = attributes["time"].astimezone(UTC)
    return {**attributes, "time": moment.replace(microsecond=moment.microsecond // 1000 * 1000)}


@given(events())
def test_what_the_sdk_writes_in_structured_mode_is_read_as_it_was_meant(event: CloudEvent) -> None:
    message = amqp.to_structured_event(event)

    read = Envelope.decode(message.application_data, message.properties["content-type"], {})

    assert said(read) == event.get_attributes()
    assert json.loads(read.data) == event.get_data()


@pytest.mark.parametrize("prefix", ["cloudEvents_", "cloudEvents:", "ce-"])
@given(event=events())
def test_what_the_sdk_writes_in_binary_mode_is_read_as_it_was_meant(
    prefix: str, event: CloudEvent
) -> None:
    message = amqp.to_binary_event(event)
    headers = {
        name.replace("cloudEvents_", prefix, 1): value
        for name, value in message.application_properties.items()
    }

    read = Envelope.decode(message.application_data, message.properties["content-type"], headers)

    # The binding writes the time in milliseconds.
    assert to_the_millisecond(said(read)) == to_the_millisecond(event.get_attributes())
    assert json.loads(read.data) == event.get_data()


@given(events())
def test_http_in_structured_mode_is_the_same_event(event: CloudEvent) -> None:
    message = http.to_structured_event(event)

    read = Envelope.decode(message.body, message.headers["content-type"], {})

    assert said(read) == event.get_attributes()


@given(events())
def test_what_we_write_the_sdk_reads_as_it_was_meant(event: CloudEvent) -> None:
    attributes = dict(event.get_attributes())
    ours = Envelope(
        id=attributes.pop("id"),
        source=attributes.pop("source"),
        type=attributes.pop("type"),
        data=json.dumps(event.get_data(), ensure_ascii=False),
    ).with_attributes({name: attributes[name] for name in attributes if name != "specversion"})
    message = amqp.AMQPMessage({"content-type": CONTENT_TYPE}, {}, ours.encode())

    read = amqp.from_amqp_event(message)

    assert read.get_attributes() == event.get_attributes()
    assert read.get_data() == event.get_data()
