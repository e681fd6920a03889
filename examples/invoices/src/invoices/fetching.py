"""Fetch a document over HTTP and make sure that it is one before anything is paid for it."""

import ssl
from functools import cache

import httpx2
from filaviva import Terminal

from invoices.parsing import NotAnInvoice, check_root

LIMIT = 1024 * 1024


async def fetch(url: str) -> str:
    """Return the document's text; raise Terminal if it is no invoice or too large."""
    async with (
        httpx2.AsyncClient(timeout=30, follow_redirects=True, verify=trust()) as client,
        client.stream("GET", url) as response,
    ):
        response.raise_for_status()
        text = await _text(response, url)
    try:
        check_root(text)
    except NotAnInvoice as wrong:
        raise Terminal(f"{url}: {wrong}") from wrong
    return text


@cache
def trust() -> ssl.SSLContext:
    """Return the certificates we trust; reading them takes long, so it is done once."""
    return httpx2.create_ssl_context()


async def _text(response: httpx2.Response, url: str) -> str:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > LIMIT:
            raise Terminal(f"{url} is larger than {LIMIT} bytes; expected a single document")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        raise Terminal(f"{url} is not UTF-8 text ({broken.reason}); expected XML") from broken
