"""Failures of one cause have one fingerprint, others have their own."""

import re

import pytest

from filaviva.fingerprint import LONGEST_MESSAGE, fingerprint, normalise

SAME_CAUSE = [
    ("job 01890a5d-ac96-774b-bcce-b302099a8057 is gone", "job <uuid> is gone"),
    ("no answer from https://api.example.com/v1/x?key=3 in time", "no answer from <url> in time"),
    ("mail to ana.souza@example.com.br bounced", "mail to <email> bounced"),
    ("expired at 2026-11-30T03:45:12.123Z", "expired at <time>"),
    ("expired at 2026-11-30", "expired at <time>"),
    ("no file /var/lib/app/upload_7.xml", "no file <path>"),
    (r"no file C:\work\upload.xml", "no file <path>"),
    ("object at 0x7f3b2c found", "object at <hex> found"),
    ("digest 9f86d081884c7d65 differs", "digest <hex> differs"),
    ("request req_81723 refused", "request <id> refused"),
    ("order INV-2024-0001 has no total", "order <id> has no total"),
    ("waited 12.5 seconds for 3 items", "waited <n> seconds for <n> items"),
    ("field 'total' of \"a b\" is missing", "field <quoted> of <quoted> is missing"),
    ("two\n  lines", "two lines"),
    ("401: Bearer abcdef.ghi", "<n>: Bearer <secret>"),
    ("Authorization: Basic YWxhZGRpbg== is refused", "Authorization: <secret> is refused"),
    ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.abc-def expired", "jwt <secret> expired"),
    ("AKIAIOSFODNN7EXAMPLE may not", "<secret> may not"),
    ("password=hunter refused", "password=<secret> refused"),
    ("OPENAI_API_KEY=abc is invalid", "OPENAI_API_KEY=<secret> is invalid"),
    ("invalid token: unexpected end", "invalid token: unexpected end"),
]


@pytest.mark.parametrize(("message", "normal"), SAME_CAUSE)
def test_what_changes_between_failures_is_replaced(message: str, normal: str) -> None:
    assert normalise(message) == normal


def test_names_that_carry_a_version_stay() -> None:
    assert normalise("model gpt-4o has no tool v2") == "model gpt-4o has no tool v2"


def test_two_failures_that_differ_in_ids_alone_have_one_fingerprint() -> None:
    first = fingerprint("invoice.extract", "upstream", "request req_81723 took 30 s", ("a:f",))
    second = fingerprint("invoice.extract", "upstream", "request req_99121 took 7 s", ("a:f",))

    assert first == second
    assert re.fullmatch("[0-9a-f]{16}", first)


def test_type_class_message_and_frames_tell_causes_apart() -> None:
    prints = {
        fingerprint("a", "timeout", "late", ("m:f",)),
        fingerprint("b", "timeout", "late", ("m:f",)),
        fingerprint("a", "upstream", "late", ("m:f",)),
        fingerprint("a", "timeout", "too late", ("m:f",)),
        fingerprint("a", "timeout", "late", ("m:g",)),
        fingerprint(None, "timeout", "late", ("m:f",)),
    }

    assert len(prints) == 6


def test_only_the_innermost_frames_count() -> None:
    inner = tuple(f"m:f{number}" for number in range(5))

    assert fingerprint("a", None, "x", ("main:one", *inner)) == fingerprint(
        "a", None, "x", ("main:two", *inner)
    )


def test_a_huge_message_is_normalised_quickly_and_cut() -> None:
    assert len(normalise("a1-" * 1_000_000)) <= LONGEST_MESSAGE
