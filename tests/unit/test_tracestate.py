"""W3C's tracestate: what is carried, and what is dropped."""

import pytest

from filaviva import tracestate

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (" rojo=1 ,\t, 0tenant@v-1=a b", "rojo=1,0tenant@v-1=a b"),
        ("a=1," + "b" * 256 + "=" + "v" * 10, "a=1," + "b" * 256 + "=" + "v" * 10),
        (",".join(f"k{n}=1" for n in range(32)), ",".join(f"k{n}=1" for n in range(32))),
        (",".join(f"k{n}=1" for n in range(33)), None),
        ("a=1,a=2", None),
        ("A=1", None),
        ("a", None),
        ("a=b=c", None),
        ("a=é", None),
        ("a=1\x00", None),
        ("", None),
        (" , ", None),
        (17, None),
        (None, None),
        ("a=" + "x" * 257, None),
    ],
)
def test_a_list_is_kept_as_it_is_or_dropped(found: object, kept: str | None) -> None:
    assert tracestate.read(found) == kept


def test_of_a_list_that_is_too_long_large_members_go_first_then_the_last() -> None:
    small = [f"k{n}={'v' * 60}" for n in range(7)]
    large = f"big={'v' * 200}"

    assert tracestate.read(",".join([small[0], large, *small[1:]])) == ",".join(small)
    assert tracestate.read(",".join([*small, "l=" + "v" * 100])) == ",".join(small)


def test_without_a_traceparent_it_says_nothing() -> None:
    assert tracestate.beside(None, "a=1") is None
    assert tracestate.beside(TRACE, "a=1") == "a=1"


def test_it_stays_within_its_trace() -> None:
    headers = tracestate.headers(TRACE, "a=1")
    nearer = f"{TRACE[:36]}{'c' * 16}-01"
    other = f"00-{'d' * 32}-{'c' * 16}-01"

    assert tracestate.within(headers, nearer) == {"traceparent": nearer, "tracestate": "a=1"}
    assert tracestate.within(headers, other) == {"traceparent": other}
    assert tracestate.within(headers, None) == headers
