"""JSON is read without a loss, and what cannot be kept is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filaviva import canonical
from filaviva.errors import Rejected
from filaviva_contracts import exact

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "text",
    [
        "1180591620717411303424",
        "0.10000000000000000555",
        "12345678901234567890.12",
        "1E+400",
        "1.0",
    ],
)
def test_numbers_keep_their_exact_value(text: str) -> None:
    assert canonical.dumps(canonical.parse(text)) == text


def test_a_twin_among_very_many_members_is_found_at_once() -> None:
    # Comparing each name with all the others took minutes.
    names = [*range(150_000), 149_999]
    body = "{" + ",".join(f'"{name}":1' for name in names) + "}"

    with pytest.raises(Rejected, match="'149999' appears twice"):
        canonical.parse(body)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"a":', "it is not JSON"),
        (b"", "it is not JSON"),
        (b"\xff\xfe", "it is not UTF-8"),
        (b"NaN", "NaN is not JSON"),
        (b"[1e9999]", "more than 1000 digits"),
        (b"1e99999999999999999999", "more than 1000 digits"),
        (b"1e-5000", "more than 1000 digits"),
        (b"9" * 5000, "thousands of digits"),
        (b'{"a":1,"a":2}', "the member 'a' appears twice"),
        (b"[" * 101 + b"]" * 101, "deeper than 100"),
        (b"[" * 200_000, "deeper than 100"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "deeper than 100"),
        (b'"a\x00"', "it is not JSON"),
    ],
)
def test_what_is_no_document_is_malformed(body: bytes, says: str) -> None:
    with pytest.raises(Rejected) as refused:
        canonical.parse(body)

    assert refused.value.status == 400
    assert refused.value.code == "malformed_json"
    assert says in refused.value.detail


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        (rb'{"data":{"a/b":["x","\u0000"]}}', "/data/a~1b/1", "NUL"),
        (rb'{"data":"\ud800"}', "/data", "surrogate"),
        (rb'{"a\u0000":1}', "/a\x00", "NUL"),
    ],
)
def test_what_cannot_be_stored_is_pointed_at(body: bytes, pointer: str, says: str) -> None:
    with pytest.raises(Rejected) as refused:
        canonical.parse(body)

    (flaw,) = refused.value.flaws
    assert refused.value.status == 422
    assert flaw.pointer == pointer
    assert says in flaw.detail


def test_a_surrogate_pair_and_a_backslash_are_fine() -> None:
    assert canonical.parse(rb'["\ud83d\ude00", "\\u0000"]') == ["😀", "\\u0000"]


def test_nesting_of_exactly_the_limit_is_fine() -> None:
    depth = exact.MAX_DEPTH

    assert canonical.parse(b"[" * depth + b"]" * depth)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{"b":2,"a":1}'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":100}', '{"a":1e2}'),
        ('{"a":0.10}', '{"a":1e-1}'),
        ('{"a":"\\u00e9"}', '{"a":"é"}'),
        ('{"a":12345678901234567890123456789.10}', '{"a":12345678901234567890123456789.1}'),
        ('{"a":-0.0}', '{"a":0}'),
    ],
)
def test_the_same_meaning_has_the_same_fingerprint(one: str, other: str) -> None:
    assert canonical.fingerprint(canonical.parse(one)) == canonical.fingerprint(
        canonical.parse(other)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{"a":"1"}'),
        ('{"a":1}', '{"a":true}'),
        ('{"a":0.1}', '{"a":"0.1"}'),
        ('{"a":null}', "{}"),
        ("[1,2]", "[2,1]"),
        ('{"a":0.10000000000000000555}', '{"a":0.1}'),
        ('{"a":12345678901234567890123456789.1}', '{"a":12345678901234567890123456789.2}'),
    ],
)
def test_another_meaning_has_another_fingerprint(one: str, other: str) -> None:
    assert canonical.fingerprint(canonical.parse(one)) != canonical.fingerprint(
        canonical.parse(other)
    )


@given(json_values)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert canonical.parse(canonical.dumps(value)) == value


@given(json_values)
def test_a_fingerprint_survives_writing_and_reading(value: Any) -> None:
    again = canonical.parse(canonical.dumps(value))

    assert canonical.fingerprint(again) == canonical.fingerprint(value)


@given(st.binary(max_size=50))
def test_any_bytes_are_read_or_rejected(body: bytes) -> None:
    try:
        value = canonical.parse(body)
    except Rejected:
        return
    assert json.dumps(value, default=str) is not None


def test_a_text_is_made_fit_to_be_stored() -> None:
    shown = canonical.storable("a\x00b\ud800" + "x" * 3000, limit=100)

    assert len(shown) == 100
    assert exact.unstorable(shown) is None
    assert shown.startswith("a\N{REPLACEMENT CHARACTER}b")
