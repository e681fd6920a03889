"""Callbacks: which URLs and addresses they may go to, how they are signed and posted."""

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import json
import socket
import threading
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filaviva.callbacks.addresses import is_public, look_up
from filaviva.callbacks.contract import CallBack
from filaviva.callbacks.posting import post
from filaviva.callbacks.serving import message
from filaviva.callbacks.signing import headers, tenant_secret
from filaviva.callbacks.urls import Rules, flaw
from filaviva.errors import Retryable, Terminal
from fixtures.receiver import Receiver

STRICT, LOCAL = Rules(), Rules(allow_http=True, allow_private=True)


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/hook?job=1&x=%20",
        "https://shop.example:8443",
        "https://xn--caf-dma.example./",
        "https://8.8.8.8/",
        "https://[2606:4700:4700::1111]/",
    ],
)
def test_an_https_url_to_the_outside_is_fine(url: str) -> None:
    assert flaw(url, STRICT) is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (None, "expected a URL"),
        (7, "expected a URL"),
        ("", "expected a URL"),
        ("https://" + "a" * 2048, "2048"),
        ("http://shop.example/", "expected https"),
        ("ftp://shop.example/", "scheme"),
        ("//shop.example/", "scheme"),
        ("shop.example", "scheme"),
        ("https:///hook", "host"),
        ("https://user:pass@shop.example/", "user"),
        ("https://shop.example@10.0.0.1/", "user"),
        ("https://shop.example/#top", "fragment"),
        ("https://shop.example:0/", "port"),
        ("https://shop.example:99999/", "no URL"),
        ("https://shop.example/a b", "spaces"),
        ("https://shop.example/\r\nX-Evil: 1", "spaces"),
        ("https://shop.example\\@10.0.0.1/", "spaces"),
        ("https://café.example/", "ASCII"),
        ("https://localhost/", "outside"),
        ("https://api.localhost:8443/", "outside"),
        ("https://127.0.0.1/", "public"),
        ("https://169.254.169.254/latest/meta-data", "public"),
        ("https://[::1]/", "public"),
        ("https://[::ffff:10.0.0.1]/", "public"),
        ("https://[fd00:ec2::254]/", "public"),
        ("https://2130706433/", "host"),
        ("https://0x7f000001/", "host"),
        ("https://0177.0.0.1/", "host"),
        ("https://127.1/", "host"),
        ("https://shop_.example-/", "host"),
        ("https://[::1", "no URL"),
    ],
)
def test_any_other_is_refused_with_the_reason(url: object, why: str) -> None:
    assert why in (flaw(url, STRICT) or "it was taken")


@given(st.text(max_size=60))
def test_no_text_is_more_than_refused(text: str) -> None:
    flaw("https://" + text, STRICT)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1",  # noqa: S104 - refused
        "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "224.0.0.1",
        "240.0.0.1", "255.255.255.255",
        "::", "::1", "::ffff:127.0.0.1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1",
        "2002:0a00:0001::1", "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8", "2001:db8::1", "3fff::1",
        "fec0::1", "2a00::5efe:10.0.0.1", "2a00::200:5efe:127.0.0.1",
    ],
)  # fmt: skip
def test_an_address_inside_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


async def test_a_name_that_leads_inside_is_refused_even_beside_a_public_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Terminal, match="expected a public address"):
        await look_up("localhost", 443)
    leads_to(monkeypatch, ["8.8.8.8", "10.0.0.1"])
    with pytest.raises(Terminal, match=r"shop\.example is at 10\.0\.0\.1"):
        await look_up("shop.example", 443)


async def test_name_servers_that_do_not_answer_keep_no_other_works_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Among that work is the end of processes that somebody has canceled.
    answering = threading.Event()

    def silent(*_: Any, **__: Any) -> Any:
        answering.wait(20)
        raise OSError("no name server answers")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    looking = [asyncio.create_task(look_up("shop.example", 443)) for _ in range(40)]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(5):
            await asyncio.to_thread(int)
    finally:
        answering.set()
        await asyncio.gather(*looking, return_exceptions=True)


def verified(secret: str, got: dict[str, str], body: bytes, *, now: float) -> Any:
    """Verify as a receiver does: written from the specification alone."""
    sent = int(got["webhook-timestamp"])
    assert abs(now - sent) <= 5 * 60
    key = base64.b64decode(secret.split("_", 1)[1])
    content = b".".join((got["webhook-id"].encode(), got["webhook-timestamp"].encode(), body))
    expected = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    signatures = [one.split(",", 1) for one in got["webhook-signature"].split(" ")]
    assert any(v == "v1" and hmac.compare_digest(expected, found) for v, found in signatures)
    return json.loads(body)


def test_a_signature_is_the_one_of_the_specification() -> None:
    # The example that the reference libraries of Standard Webhooks share.
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    signed = headers([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_each_tenant_has_a_secret_of_its_own_and_two_are_used_while_they_change() -> None:
    old, new = (tenant_secret(master, "default") for master in ("a" * 32, "b" * 32))
    assert len({old, new, tenant_secret("b" * 32, "other")}) == 3

    signed = dict(headers([new, old], "msg_1", int(time.time()), b"{}"))

    for secret in (old, new):
        assert verified(secret, signed, b"{}", now=time.time()) == {}
    with pytest.raises(AssertionError):
        verified(tenant_secret("b" * 32, "other"), signed, b"{}", now=time.time())


async def test_a_receiver_that_answers_2xx_has_got_exactly_what_was_signed(
    receiver: Receiver,
) -> None:
    secret = tenant_secret("s" * 32, "default")
    job = CallBack(
        job_id=UUID(int=7), type="invoice.extract", version=2, status="failed",
        finished_at=datetime(2026, 11, 30, tzinfo=UTC), attempts=3, cost_usd="0.25",
        error_class="upstream", error_code="ServerError",
    )  # fmt: skip
    body = message(job)
    signed = {**headers([secret], "msg_9", int(time.time()), body), "Content-Type": "text/x"}

    assert await post(receiver.url, body, signed, rules=LOCAL, seconds=5) == 204

    (got,) = receiver.received
    assert (got.path, got.headers["host"]) == ("/hook?x=1", f"127.0.0.1:{receiver.port}")
    told = verified(secret, got.headers, got.body, now=time.time())
    assert (told["type"], told["timestamp"]) == ("job.failed", "2026-11-30T00:00:00Z")
    assert told["data"]["jobId"] == str(UUID(int=7))
    assert told["data"]["error"] == {"class": "upstream", "code": "ServerError"}


@pytest.mark.parametrize(
    ("status", "answer", "error", "why"),
    [
        (500, {}, Retryable, "answered 500"),
        (404, {}, Retryable, "answered 404"),
        (302, {"Location": "http://127.0.0.1:1/"}, Retryable, "redirects are not followed"),
        (410, {}, Terminal, "wants no more"),
    ],
)
async def test_any_other_answer_is_an_error_of_its_kind(
    receiver: Receiver, status: int, answer: dict[str, str], error: type[Exception], why: str
) -> None:
    receiver.status, receiver.headers = status, answer

    with pytest.raises(error, match=why):
        await post(receiver.url, b"{}", {}, rules=LOCAL, seconds=5)

    assert len(receiver.received) == 1


async def test_a_receiver_says_when_to_come_again(receiver: Receiver) -> None:
    receiver.status, receiver.headers = 503, {"Retry-After": "7"}

    with pytest.raises(Retryable) as refused:
        await post(receiver.url, b"{}", {}, rules=LOCAL, seconds=5)

    assert refused.value.retry_after == 7


async def test_who_is_slow_endless_or_not_there_is_tried_again(receiver: Receiver) -> None:
    receiver.seconds = 2
    began = time.monotonic()
    with pytest.raises(Retryable, match="did not answer within"):
        await post(receiver.url, b"{}", {}, rules=LOCAL, seconds=0.3)
    assert time.monotonic() - began < 1.5

    receiver.seconds, receiver.headers = 0, {"Content-Length": "100000000000"}
    assert await post(receiver.url, b"{}", {}, rules=LOCAL, seconds=5) == 204

    for url in ("http://127.0.0.1:1/", "http://nobody.invalid/"):
        with pytest.raises(Retryable, match="not reached"):
            await post(url, b"{}", {}, rules=LOCAL, seconds=5)


async def test_nothing_is_sent_where_it_is_not_allowed_to_go(receiver: Receiver) -> None:
    for url, rules in (
        (receiver.url, STRICT),
        (receiver.url, Rules(allow_http=True)),
        (f"http://localhost:{receiver.port}/", Rules(allow_http=True)),
    ):
        with pytest.raises(Terminal):
            await post(url, b"{}", {}, rules=rules, seconds=5)

    assert receiver.received == []


async def test_the_connection_goes_to_the_address_that_was_checked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A name server that answers differently the second time finds nobody asking.
    asked = leads_to(monkeypatch, ["127.0.0.1"], ["127.0.0.9"])

    url = f"http://shop.example:{receiver.port}/hook"
    assert await post(url, b"{}", {}, rules=LOCAL, seconds=5) == 204

    assert asked.count("shop.example") == 1
    assert receiver.received[0].headers["host"] == f"shop.example:{receiver.port}"


def leads_to(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let the resolver give these addresses, one answer after the other; what was asked."""
    real = socket.getaddrinfo
    asked: list[str] = []

    def resolve(host: Any, port: Any, *more: Any, **rest: Any) -> Any:
        asked.append(str(host))
        if host != "shop.example":
            return real(host, port, *more, **rest)
        found = answers[min(asked.count("shop.example"), len(answers)) - 1]
        return [(2, 1, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked
