"""A policy accepts only what is enforced."""

from typing import Any

import pytest

from filaviva import Policy
from filaviva.policy import StoredPolicy


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(TypeError):
        Policy(retries=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"max_attempts": 0}, "max_attempts: found 0, expected 1 to 100"),
        ({"max_attempts": 2.5}, "max_attempts: found 2.5, expected a whole number"),
        ({"max_attempts": True}, "max_attempts: found True"),
        ({"base": -1}, "base: found -1, expected 0 to"),
        ({"base": "2"}, "base: found '2', expected a number of seconds"),
        ({"cap": float("inf")}, "cap: found inf"),
        ({"cap": 1, "base": 2}, "cap: found 1, expected at least base (2)"),
        ({"jitter": float("nan")}, "jitter: found nan"),
        ({"retention": 0}, "retention: found 0, expected more than 0"),
        ({"retention": "a year"}, "retention: found 'a year', expected a number of days"),
        ({"timeout": 0}, "timeout: found 0, expected more than 0 seconds"),
        ({"retry_on": (1,)}, "retry_on: found 1, expected exception classes"),
        ({"terminal_on": ("KeyError",)}, "terminal_on: found 'KeyError'"),
        ({"retry_on": KeyError, "terminal_on": [KeyError]}, "terminal_on: found KeyError"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_expected(
    keywords: dict[str, Any], says: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        Policy(**keywords)

    assert says in str(refused.value)


def test_a_stored_policy_is_read_back() -> None:
    policy = Policy(max_attempts=3, base=0.5, cap=9, jitter=0, timeout=4)

    assert StoredPolicy.read(policy.stored()) == StoredPolicy(
        max_attempts=3, base=0.5, cap=9, jitter=0, timeout=4
    )


def test_a_policy_stored_by_another_language_may_be_partial() -> None:
    assert StoredPolicy.read({}) == StoredPolicy.read(Policy().stored())
