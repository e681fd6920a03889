"""POST a callback: to the address that was checked, once, without following anybody anywhere.

Before: a body and a URL. After: the receiver has answered 2xx, or an error says whether to repeat.
May happen twice: yes; the receiver knows a message by its id.
"""

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from urllib.parse import urlsplit

import httpx2

from filaviva.callbacks.addresses import look_up
from filaviva.callbacks.urls import Rules, flaw
from filaviva.errors import Retryable, Terminal
from filaviva.retry_after import retry_after

_LONGEST_PAUSE = 86_400.0
_PORTS = {"https": 443, "http": 80}


async def post(
    url: str, body: bytes, headers: Mapping[str, str], *, rules: Rules, seconds: float
) -> int:
    """Return the status of the answer if it is 2xx; Retryable or Terminal otherwise."""
    wrong = flaw(url, rules)  # the settings may be stricter by now than when it was submitted
    if wrong is not None:
        raise Terminal(f"callbackUrl: {wrong}")
    try:
        async with asyncio.timeout(seconds):
            return _judge(await _send(url, body, headers, rules))
    except TimeoutError:
        raise Retryable(f"the receiver did not answer within {seconds:g} s") from None
    except (OSError, httpx2.HTTPError) as failed:
        raise Retryable(f"the receiver was not reached: {type(failed).__name__}") from failed


async def _send(url: str, body: bytes, headers: Mapping[str, str], rules: Rules) -> httpx2.Response:
    parts = urlsplit(url)
    host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
    address = await look_up(host, port, allow_private=rules.allow_private)
    pinned = httpx2.URL(url).copy_with(host=address)
    # Without environment no proxy is asked, which would look the name up anew.
    async with httpx2.AsyncClient(verify=_trust(), trust_env=False, timeout=None) as client:
        request = client.build_request(
            "POST",
            pinned,
            content=body,
            headers={**headers, "Host": parts.netloc, "Connection": "close"},
            extensions={"sni_hostname": host},
        )
        # The status is all that counts: what else it sends is not read.
        answer = await client.send(request, stream=True, follow_redirects=False)
        await answer.aclose()
        return answer


def _judge(answer: httpx2.Response) -> int:
    status = answer.status_code
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return status
    if status == HTTPStatus.GONE:
        raise Terminal("the receiver answered 410: it wants no more")
    moved = "; redirects are not followed" if answer.is_redirect else ""
    asked = retry_after(answer.headers, now=datetime.now(UTC))
    pause = None if asked is None else min(asked, _LONGEST_PAUSE)
    raise Retryable(f"the receiver answered {status}{moved}", retry_after=pause)


@cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()
