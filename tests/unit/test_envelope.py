"""CloudEvents out in structured mode, in both modes in; anything else is undecodable."""

import base64
import json
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filaviva_contracts import CONTENT_TYPE, Envelope, Undecodable, WakeUp, exact

NOW = datetime(2026, 11, 30, 12, 0, 1, 5, tzinfo=UTC)
LEAST = {"specversion": "1.0", "id": "1", "source": "shop", "type": "order.paid.v1"}


def event(**attributes: Any) -> bytes:
    return json.dumps({**LEAST, **attributes}).encode()


def test_a_message_of_ours_comes_back_as_it_went() -> None:
    message = WakeUp(job_id=uuid4(), epoch=3, type="document.extract", version=2, queue="llm")
    sent = Envelope.of(
        message, id="a:3:1", source="filaviva", time=NOW, correlationid="c", traceparent="00-…"
    )

    received = Envelope.decode(sent.encode(), CONTENT_TYPE, {})

    assert received == sent
    assert received.contract == ("filaviva.wakeup", 1)
    assert received.dataschema == "/v1/contracts/filaviva.wakeup/1"
    assert WakeUp.model_validate_json(received.data) == message


def test_the_body_is_structured_json() -> None:
    body = json.loads(Envelope(id="1", source="s", type="t.v1", time=NOW, data='{"a":1}').encode())

    assert body["specversion"] == "1.0"
    assert body["time"] == "2026-11-30T12:00:01.000005Z"
    assert body["data"] == {"a": 1}


def test_extensions_are_kept() -> None:
    received = Envelope.decode(event(causationid="x", sequence=7), CONTENT_TYPE, {})

    assert received.extensions == {"causationid": "x", "sequence": 7}
    assert Envelope.decode(received.encode(), CONTENT_TYPE, {}) == received


@pytest.mark.parametrize(
    "number", ["0.10000000000000000555", "12345678901234567890.120", "1e400", "2E-7"]
)
def test_numbers_in_the_data_stay_as_they_were_written(number: str) -> None:
    body = f'{{"data": {{"a": [{number}, "]}}"]}} , "specversion":"1.0","id":"1",'
    body += '"source":"s","type":"t.v1"}'

    assert number in Envelope.decode(body.encode(), CONTENT_TYPE, {}).data


@pytest.mark.parametrize("prefix", ["ce-", "cloudEvents_", "cloudEvents:", "CE-"])
def test_binary_mode_is_read(prefix: str) -> None:
    headers = {f"{prefix}{name}": value for name, value in LEAST.items()}
    headers |= {f"{prefix}time": NOW, f"{prefix}subject": b"order/7", "x-other": 1}

    received = Envelope.decode(b'{"a": 1.50}', "application/json", headers)

    assert (received.id, received.source, received.type) == ("1", "shop", "order.paid.v1")
    assert (received.time, received.subject, received.data) == (NOW, "order/7", '{"a": 1.50}')
    assert received.extensions == {}


def test_a_structured_event_is_read_whatever_the_content_type_says() -> None:
    assert Envelope.decode(event(), None, {}).id == "1"
    assert Envelope.decode(event(), "application/cloudevents+json; charset=UTF-8", {}).id == "1"


def test_base64_data_is_unpacked() -> None:
    packed = base64.b64encode(b'{"a":1}').decode()

    assert Envelope.decode(event(data_base64=packed), CONTENT_TYPE, {}).data == '{"a":1}'


@pytest.mark.parametrize(
    ("body", "content_type", "says"),
    [
        (b"", None, "it is not JSON"),
        (b"\xff", CONTENT_TYPE, "it is not UTF-8"),
        (b"[]", CONTENT_TYPE, "found an array, expected a CloudEvents object"),
        (b"{}", CONTENT_TYPE, "specversion: found None, expected '1.0'"),
        (event(specversion="0.3"), CONTENT_TYPE, "specversion: found '0.3'"),
        (event(id=""), CONTENT_TYPE, "id: found nothing"),
        (event(source=7), CONTENT_TYPE, "source: found a number, expected a string"),
        (event(time="yesterday"), CONTENT_TYPE, "time: found 'yesterday', expected RFC 3339"),
        (event(time=7), CONTENT_TYPE, "time: found '7'"),
        (event(data_base64="***"), CONTENT_TYPE, "data_base64"),
        (event(data={"a": "\x00"}), CONTENT_TYPE, "it contains a NUL character at /data/a"),
        (event(data="\ud800"), CONTENT_TYPE, "half of a surrogate pair at /data"),
        (b"[]", "application/cloudevents-batch+json", "a batch of events"),
        (b'{"a":1,"a":2}', CONTENT_TYPE, "appears twice"),
    ],
)
def test_what_is_no_event_is_undecodable(body: bytes, content_type: str | None, says: str) -> None:
    with pytest.raises(Undecodable) as refused:
        Envelope.decode(body, content_type, {})

    assert says in refused.value.reason


def test_binary_mode_with_another_content_type_is_undecodable() -> None:
    headers = {f"ce-{name}": value for name, value in LEAST.items()}

    with pytest.raises(Undecodable, match="found content type 'text/xml'"):
        Envelope.decode(b"<a/>", "text/xml", headers)


@given(st.binary(max_size=100), st.sampled_from([None, CONTENT_TYPE, "application/json", "x"]))
def test_any_bytes_are_an_event_or_undecodable(body: bytes, content_type: str | None) -> None:
    for headers in ({}, {f"ce-{name}": value for name, value in LEAST.items()}):
        with suppress(Undecodable):
            Envelope.decode(body, content_type, headers)


def binary(**more: Any) -> Envelope:
    headers = {f"ce-{name}": value for name, value in {**LEAST, **more}.items()}
    return Envelope.decode(b"{}", "application/json", headers)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (NOW, NOW.isoformat().replace("+00:00", "Z")),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
        (Decimal("1.5"), 1.5),
        ({"when": [NOW.replace(tzinfo=None)]}, {"when": [NOW.isoformat()[:-6] + "Z"]}),
        (True, True),
        (2**70, 2**70),
    ],
)
def test_headers_that_json_has_no_type_for_go_on_as_it_would_have_them(
    value: Any, kept: Any
) -> None:
    received = binary(more=value)

    assert received.extensions == {"more": kept}
    assert Envelope.decode(received.encode()) == received


def test_a_fraction_among_the_attributes_goes_on() -> None:
    received = Envelope.decode(event(rate=0.5), CONTENT_TYPE, {})

    assert Envelope.decode(received.encode()).extensions == {"rate": 0.5}


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"more": "a\x00b"}, "it contains a NUL character at /more"),
        ({"more": "\ud800"}, "half of a surrogate pair"),
        ({"\x00": "a"}, "it contains a NUL character"),
        ({"more": float("nan")}, "an attribute of the event is no JSON"),
        ({"more": {"a": object()}}, "an attribute of the event is no JSON"),
        ({"data": "a"}, "'data' is no attribute"),
        ({"data_base64": "a"}, "'data_base64' is no attribute"),
        ({"time": "9999-12-31T23:59:59-23:59"}, "time: found '9999-12-31T23:59:59-23:59', which"),
        ({"time": "0001-01-01T00:00:00+23:59"}, "which is out of range"),
    ],
)
def test_headers_that_could_not_go_on_are_undecodable(headers: Any, says: str) -> None:
    with pytest.raises(Undecodable) as refused:
        binary(**headers)

    assert says in refused.value.reason


@pytest.mark.parametrize("name", ["\x00", "\ud800"])
def test_why_a_name_is_refused_can_be_stored(name: str) -> None:
    for decode in (
        lambda: binary(**{name: "a"}),
        lambda: Envelope.decode(event(data={name: 1}), CONTENT_TYPE, {}),
    ):
        with pytest.raises(Undecodable) as refused:
            decode()

        assert exact.unstorable(refused.value.reason) is None
