"""Read server-sent events, and read on where a connection was lost.

Before: a job's id, perhaps with the last event seen. After: everything that came after it, in
order, once, up to the final state. May happen twice: each connection names the last id it got.
"""

import asyncio
import io
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

import httpx2

from filaviva.client.refusals import Overloaded
from filaviva.client.transport import Transport, again_after, loads
from filaviva.client.wire import Event

_SILENCE: Final = 45.0  # the server says something each 15 s
_NOTHING_MORE: Final = 204


async def follow(transport: Transport, job_id: str, *, after: int | None) -> AsyncIterator[Event]:
    """Give what happens to a job until it ends."""
    last, tries, heard = after, 0, time.monotonic()
    while True:
        lost: Exception
        try:
            headers = {} if last is None else {"Last-Event-ID": str(last)}
            path = f"/v1/jobs/{job_id}/events"
            async with transport.stream(path, headers, silence=_SILENCE) as answer:
                if answer.status_code == _NOTHING_MORE:
                    return
                async with aclosing(_events(answer)) as events:
                    async for event in events:
                        last, tries, heard = event.id or last, 0, time.monotonic()
                        yield event
                        if event.final:
                            return
            lost = ConnectionError("the stream ended")
        except (httpx2.TransportError, Overloaded) as failed:
            lost = failed
        tries += 1
        pause = again_after(tries, lost)
        if time.monotonic() - heard + pause > max(transport.patience, _SILENCE):
            raise transport.unreachable(lost) from lost
        await asyncio.sleep(pause)


async def _events(answer: httpx2.Response) -> AsyncGenerator[Event, None]:
    fields: dict[str, str] = {}
    async for line in _lines(answer):
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = (
                f"{fields[name]}\n{value}" if name == "data" and name in fields else value
            )
            continue
        if "data" in fields:
            number = fields.get("id", "")
            kind = fields.get("event", "message")
            yield Event(kind, loads(fields["data"]), int(number) if number.isdecimal() else None)
        fields = {}


async def _lines(answer: httpx2.Response) -> AsyncGenerator[str, None]:
    """Give the lines as the protocol ends them; the library ends them at U+2028 and others too."""
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    rest = ""
    async for text in answer.aiter_text():
        *lines, rest = (rest + newlines.decode(text)).split("\n")
        for line in lines:
            yield line
