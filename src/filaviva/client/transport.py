"""Requests that are safe to make again are made again: jittered, bounded, as the server asks.

Before: a request. After: an answer that is no refusal, or an error. May happen twice: what is
repeated here has an idempotency key, or only reads, or asks for what may be asked twice.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import httpx2
import simplejson

from filaviva import backoff
from filaviva.client.refusals import Overloaded, Refusal, refusal
from filaviva.errors import Unreachable
from filaviva.retry_after import retry_after

_BASE: Final = 0.25
_CAP: Final = 5.0
_JITTER: Final = 0.5
_ERROR: Final = 400


class Transport:
    """One server and one key."""

    def __init__(self, http: httpx2.AsyncClient, *, patience: float) -> None:
        self._http = http
        self.patience = patience

    async def call(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        params: Any = None,
        lasting: float = 0,
    ) -> httpx2.Response:
        """Make a request; `lasting`: for how many seconds the server may think about it."""
        content = None if body is None else dumps(body)
        given = {**({"Content-Type": "application/json"} if content else {}), **(headers or {})}
        request = self._http.build_request(
            method, path, content=content, headers=given, params=params, timeout=10 + lasting
        )
        began, tries = time.monotonic(), 0
        while True:
            try:
                return await self._once(request)
            except httpx2.TransportError as lost:
                error: Exception = _unreachable(self._http, lost)
            except Overloaded as refused:
                error = refused
            tries += 1
            pause = _pause(tries, error)
            if time.monotonic() - began + pause > self.patience:
                raise error
            await asyncio.sleep(pause)

    async def _once(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._http.send(request)
        if answer.status_code >= _ERROR:
            raise _refused(answer)
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str], *, silence: float
    ) -> AsyncIterator[httpx2.Response]:
        """Open an answer that goes on; an error if nothing comes for so many seconds."""
        limits = httpx2.Timeout(10, read=silence)
        async with self._http.stream("GET", path, headers=headers, timeout=limits) as answer:
            if answer.status_code >= _ERROR:
                await answer.aread()
                raise _refused(answer)
            yield answer

    def unreachable(self, lost: Exception) -> Unreachable:
        """Make the error of a connection that was lost."""
        return _unreachable(self._http, lost)


def again_after(tries: int, error: Exception | None = None) -> float:
    """Give the pause before the next try."""
    return _pause(tries, error)


def dumps(content: Any) -> bytes:
    """Write JSON with exact decimals."""
    text: str = simplejson.dumps(content, use_decimal=True, ensure_ascii=False, allow_nan=False)
    return text.encode()


def loads(text: str | bytes) -> Any:
    """Read JSON with exact decimals."""
    return simplejson.loads(text, use_decimal=True)


def _pause(tries: int, error: Exception | None) -> float:
    asked = error.retry_after if isinstance(error, Overloaded) else None
    drawn = backoff.pause(tries, base=_BASE, cap=_CAP, jitter=_JITTER, retry_after=asked)
    # Many who were told the same second must not come in the same one.
    return drawn + (random.uniform(0, _JITTER) if asked else 0)  # noqa: S311 - spreads the rivals


def _refused(answer: httpx2.Response) -> Refusal:
    asked = retry_after(answer.headers, now=datetime.now(UTC))
    try:
        problem = loads(answer.content)
    except ValueError:
        problem = {}
    return refusal(answer.status_code, problem if isinstance(problem, dict) else {}, asked)


def _unreachable(http: httpx2.AsyncClient, lost: Exception) -> Unreachable:
    why = str(lost) or type(lost).__name__
    return Unreachable(f"the API at {http.base_url} does not answer: {why}")
