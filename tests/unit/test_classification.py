"""What a handler raises decides what becomes of the job, and users' rules come first."""

import asyncio
import errno
import socket
import ssl
import urllib.error
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import Message
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from filaviva import InvalidInput, InvalidOutput, LeaseLost, Policy, Refused, Retryable, Terminal
from filaviva.classification import classify
from filaviva.errors import Unreachable
from filaviva.outcome import Canceled, Dead, Retry

REQUEST = httpx2.Request("POST", "https://provider.example/v1")
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def answered(status: int, **headers: str) -> httpx2.HTTPStatusError:
    response = httpx2.Response(status, headers=headers, request=REQUEST)
    return httpx2.HTTPStatusError(f"{status}", request=REQUEST, response=response)


def provider(kind: type[openai.APIStatusError], status: int, **headers: str) -> Exception:
    response = httpx2.Response(status, headers=headers, request=REQUEST)
    return kind("no", response=response, body=None)


def raised(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test is about
        return error
    raise AssertionError("nothing was raised")


class Answer(BaseModel):
    total: int


class Botocore(Exception):
    def __init__(self, status: int) -> None:
        headers = {"Retry-After": "9"}
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers}}


class Busy(Exception):
    retry_after = 5


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")

    @property
    def response(self) -> object:
        raise RuntimeError("not even that")


def told(error: BaseException, **policy: Any) -> tuple[str, str]:
    outcome = classify(error, Policy(**policy), now=NOW)
    assert not isinstance(outcome, Canceled)
    return type(outcome).__name__, outcome.failure.error_class


def pause(error: BaseException, **policy: Any) -> float | None:
    outcome = classify(error, Policy(**policy), now=NOW)
    assert isinstance(outcome, Retry)
    return outcome.retry_after


@pytest.mark.parametrize(
    ("error", "verdict", "error_class"),
    [
        (TimeoutError(), "Retry", "timeout"),
        (TimeoutError(errno.ETIMEDOUT, "timed out"), "Retry", "timeout"),
        (httpx2.ReadTimeout("slow"), "Retry", "timeout"),
        (httpx2.ConnectTimeout("slow"), "Retry", "timeout"),
        (openai.APITimeoutError(request=REQUEST), "Retry", "timeout"),
        (ConnectionResetError(), "Retry", "connection"),
        (socket.gaierror(-2, "unknown"), "Retry", "connection"),
        (ssl.SSLCertVerificationError("expired"), "Retry", "connection"),
        (OSError(errno.EHOSTUNREACH, "no route"), "Retry", "connection"),
        (httpx2.ConnectError("refused"), "Retry", "connection"),
        (httpx2.RemoteProtocolError("cut off"), "Retry", "connection"),
        (openai.APIConnectionError(request=REQUEST), "Retry", "connection"),
        (urllib.error.URLError("refused"), "Retry", "connection"),
        (Unreachable("database"), "Retry", "connection"),
        (answered(429), "Retry", "rate_limited"),
        (provider(openai.RateLimitError, 429), "Retry", "rate_limited"),
        (Botocore(429), "Retry", "rate_limited"),
        (urllib.error.HTTPError("u", 429, "no", Message(), None), "Retry", "rate_limited"),
        (answered(500), "Retry", "upstream"),
        (answered(503), "Retry", "upstream"),
        (answered(529), "Retry", "upstream"),
        (provider(openai.InternalServerError, 500), "Retry", "upstream"),
        (answered(409), "Retry", "upstream"),
        (answered(408), "Retry", "timeout"),
        (answered(400), "Dead", "terminal"),
        (answered(404), "Dead", "terminal"),
        (answered(422), "Dead", "terminal"),
        (provider(openai.BadRequestError, 400), "Dead", "terminal"),
        (answered(401), "Dead", "refused"),
        (answered(403), "Dead", "refused"),
        (provider(openai.AuthenticationError, 401), "Dead", "refused"),
        (openai.ContentFilterFinishReasonError(), "Dead", "refused"),
        (raised(lambda: Answer.model_validate({})), "Dead", "invalid_output"),
        (InvalidOutput("no"), "Dead", "invalid_output"),
        (InvalidInput("no"), "Dead", "invalid_input"),
        (Refused("no"), "Dead", "refused"),
        (Terminal("no"), "Dead", "terminal"),
        (Retryable("later"), "Retry", "upstream"),
        (LeaseLost("gone"), "Retry", "lost"),
        (KeyError("x"), "Retry", "unexpected"),
        (FileNotFoundError(errno.ENOENT, "no such file"), "Retry", "unexpected"),
        (RecursionError(), "Retry", "unexpected"),
        (MemoryError(), "Retry", "unexpected"),
        (SystemExit(1), "Retry", "unexpected"),
        (Broken(), "Retry", "unexpected"),
    ],
)
def test_the_kind_of_an_error_decides(error: BaseException, verdict: str, error_class: str) -> None:
    assert told(error) == (verdict, error_class)


def test_a_cancel_that_somebody_asked_for_is_canceled_and_no_other() -> None:
    canceled = asyncio.CancelledError()

    assert classify(canceled, Policy(), canceled=True) == Canceled()
    assert told(canceled) == ("Retry", "unexpected")
    assert classify(KeyError("x"), Policy(), canceled=True) != Canceled()


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (answered(429, **{"Retry-After": "7"}), 7),
        (answered(429, **{"Retry-After": "1.5"}), 1.5),
        (answered(503, **{"Retry-After": "7"}), 7),
        (answered(429, **{"Retry-After": "60", "retry-after-ms": "1500"}), 1.5),
        (provider(openai.RateLimitError, 429, **{"Retry-After": "4"}), 4),
        (Botocore(503), 9),
        (Busy(), 5),
        (Retryable("later", retry_after=3), 3),
        (answered(429, **{"Retry-After": "Mon, 30 Nov 2026 12:00:20 GMT"}), 20),
        (answered(429, **{"Retry-After": "Mon, 30 Nov 2026 11:00:00 GMT"}), 0),
        (answered(429, **{"Retry-After": "-4"}), 0),
        (answered(429), None),
        (answered(429, **{"Retry-After": "soon"}), None),
        (answered(429, **{"Retry-After": "nan"}), None),
        (Retryable("later", retry_after=float("inf")), None),
    ],
)
def test_the_pause_that_was_asked_for_is_read(error: Exception, seconds: float | None) -> None:
    assert pause(error) == seconds


def test_a_date_counts_from_the_clock_of_who_sent_it() -> None:
    error = answered(
        429,
        **{"Retry-After": "Tue, 01 Jan 2030 00:00:30 GMT", "Date": "Tue, 01 Jan 2030 00:00:00 GMT"},
    )

    assert pause(error) == 30


@pytest.mark.parametrize(
    ("error", "policy", "expected"),
    [
        (KeyError("x"), {"terminal_on": (KeyError,)}, ("Dead", "terminal")),
        (KeyError("x"), {"terminal_on": (LookupError,)}, ("Dead", "terminal")),
        (
            KeyError("x"),
            {"retry_on": (Exception,), "terminal_on": (LookupError,)},
            ("Dead", "terminal"),
        ),
        (
            KeyError("x"),
            {"retry_on": (KeyError,), "terminal_on": (LookupError,)},
            ("Retry", "upstream"),
        ),
        (answered(404), {"retry_on": (httpx2.HTTPStatusError,)}, ("Retry", "upstream")),
        (answered(429), {"terminal_on": (httpx2.HTTPError,)}, ("Dead", "rate_limited")),
        (
            raised(lambda: Answer.model_validate({})),
            {"retry_on": (ValueError,)},
            ("Retry", "invalid_output"),
        ),
        (Terminal("no"), {"retry_on": (Exception,)}, ("Dead", "terminal")),
        (Retryable("x"), {"terminal_on": (Exception,)}, ("Retry", "upstream")),
        (InvalidOutput("x"), {"retry_on": (InvalidOutput,)}, ("Retry", "upstream")),
        (TimeoutError(), {"terminal_on": (Exception,)}, ("Dead", "timeout")),
    ],
)
def test_the_most_specific_rule_decides_and_users_rules_come_before_the_known_kinds(
    error: Exception, policy: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert told(error, **policy) == expected


def test_a_retryable_error_takes_the_class_of_its_cause() -> None:
    error = Retryable("the model did not answer")
    error.__cause__ = TimeoutError()

    assert told(error) == ("Retry", "timeout")


def test_an_error_alone_in_a_group_counts_as_itself() -> None:
    group = ExceptionGroup(
        "tasks", [ExceptionGroup("inner", [answered(429, **{"Retry-After": "7"})])]
    )

    outcome = classify(group, Policy())

    assert isinstance(outcome, Retry)
    assert (outcome.failure.code, outcome.retry_after) == ("HTTPStatusError", 7)


def test_of_several_errors_the_one_that_no_repetition_mends_decides() -> None:
    assert told(ExceptionGroup("tasks", [TimeoutError(), Terminal("no")])) == ("Dead", "terminal")


def test_of_several_errors_the_longest_pause_is_kept() -> None:
    errors = [Retryable("a", retry_after=1), Retryable("b", retry_after=9), TimeoutError()]

    assert pause(ExceptionGroup("tasks", errors)) == 9


def test_a_failure_can_always_be_stored() -> None:
    outcome = classify(ValueError("a\x00b\ud800" + "x" * 5000), Policy(), step="read")

    assert isinstance(outcome, Retry)
    assert outcome.failure.message.startswith("a\N{REPLACEMENT CHARACTER}b?x")
    assert len(outcome.failure.message) == 2000
    assert (outcome.failure.code, outcome.failure.step) == ("ValueError", "read")


def test_an_error_without_words_is_called_by_its_name() -> None:
    outcome = classify(TimeoutError(), Policy())

    assert isinstance(outcome, Retry)
    assert outcome.failure.message == "TimeoutError"


def test_what_a_model_answered_stays_out_of_the_message() -> None:
    outcome = classify(raised(lambda: Answer.model_validate({"total": "a secret"})), Policy())

    assert isinstance(outcome, Dead)
    assert outcome.failure.message.startswith("Answer does not fit: /total:")
    assert "a secret" not in outcome.failure.message


def _fail() -> None:
    Answer.model_validate_json("{}")
    raise AssertionError


def _ask() -> None:
    _fail()


def test_the_frames_lead_from_the_handler_to_the_line_that_raised() -> None:
    outcome = classify(raised(_ask), Policy())

    assert isinstance(outcome, Dead)
    assert [frame.partition(":")[2] for frame in outcome.failure.frames] == [
        "raised",
        "_ask",
        "_fail",
        "model_validate_json",
    ]
    assert outcome.failure.frames[1] == "unit/test_classification.py:_ask"


def test_the_frames_are_bounded() -> None:
    def deeper(levels: int) -> None:
        if levels == 0:
            raise KeyError
        deeper(levels - 1)

    outcome = classify(raised(lambda: deeper(50)), Policy())

    assert isinstance(outcome, Retry)
    assert len(outcome.failure.frames) == 8
