"""The client: submit, follow, cancel and repeat jobs over HTTP."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack
from uuid import UUID, uuid4

import httpx2
from pydantic import TypeAdapter

from filaviva.client.refusals import Conflict, Forbidden, JobCanceled, JobFailed
from filaviva.client.streaming import follow
from filaviva.client.submission import Options, body, plain
from filaviva.client.transport import Transport, dumps, loads
from filaviva.client.wire import Event, Item, JobStatus, Page, item, job_status
from filaviva.made_up import made_up
from filaviva_contracts import Contract

T = TypeVar("T")

_LONG: Final = 20.0  # seconds of one long poll
_UNCHANGED: Final = 304


class Client:
    """A connection to the API with one key; close it, or use it with `async with`.

    Whatever is safe to be asked again is asked again for `patience` seconds when the connection
    is lost or the API has too much to do: a submission has an idempotency key for that.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        patience: float = 60.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {api_key}"}, transport=transport
        )
        self._transport = Transport(self._http, patience=patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def submit(
        self,
        job: Contract | type[Contract] | str,
        data: Any = None,
        *,
        items: Sequence[Any] | None = None,
        result: type[T] | Any = Any,
        idempotency_key: str | None = None,
        **options: Unpack[Options],
    ) -> "Job[T]":
        """Submit a contract's message, or a type with data; `items` make a batch.

        The job is kept once this returns. `result` is what its handler returns. Give an
        idempotency key of your own to be able to submit the same job again after a crash.
        """
        wanted = body(job, data, items, options)
        key = idempotency_key or made_up()
        answer = await self._transport.call(
            "POST", "/v1/jobs", body=wanted, headers={"Idempotency-Key": key}
        )
        told = loads(answer.content)
        return Job(self, told["jobId"], result, duplicate=told["duplicate"])

    async def put_content(self, content: Any, *, tenant: str | None = None) -> str:
        """Keep data that is too large for a message; give the `dataref` of an event with it.

        Forbidden if the event is meant to be of a tenant that this API key does not belong to: its
        workers would not find the content.
        """
        told = loads((await self._transport.call("POST", "/v1/contents", body=content)).content)
        if tenant not in (None, told["tenant"]):
            detail = f"the API key is of tenant {told['tenant']!r}, expected one of {tenant!r}"
            raise Forbidden("forbidden", detail, status=403)
        return str(told["dataref"])

    def job(self, job_id: UUID | str, *, result: type[T] | Any = Any) -> "Job[T]":
        """Take up a job that was submitted before; nothing is asked yet."""
        return Job(self, str(job_id), result)

    async def get(self, job_id: UUID | str) -> JobStatus:
        """Give a job as it is now."""
        return job_status(loads((await self._transport.call("GET", _path(job_id))).content))

    async def wait(self, job_id: UUID | str, *, timeout: float | None = None) -> JobStatus:  # noqa: ASYNC109 - the usual word
        """Give a job once it is final; TimeoutError if it is not by then."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            asked = time.monotonic()
            left = _LONG if until is None else max(0.0, min(_LONG, until - asked))
            answer = await self._transport.call(
                "GET", _path(job_id), params={"wait": f"{left:.3f}"}, lasting=left
            )
            found = job_status(loads(answer.content))
            if found.final:
                return found
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"job {job_id} is {found.status} after {timeout:g} s")
            # Sooner than asked for: it stops, or too many wait there already.
            await asyncio.sleep(min(asked + left - time.monotonic(), random.uniform(0.5, 1.5)))  # noqa: S311 - spreads the rivals

    def watch(self, job_id: UUID | str, *, after: int | None = None) -> AsyncIterator[Event]:
        """Give what happens to a job up to its end, over as many connections as it takes."""
        return follow(self._transport, str(job_id), after=after)

    async def cancel(self, job_id: UUID | str, *, reason: str | None = None) -> str:
        """Cancel a job; give its status: `canceled`, or `cancel_requested` until it has stopped.

        Conflict if it had ended otherwise before.
        """
        wish = {} if reason is None else {"reason": reason}
        try:
            answer = await self._transport.call("POST", f"{_path(job_id)}/cancel", body=wish)
        except Conflict:
            # Perhaps the answer to our first try was lost: what counts is what it is.
            if (await self.get(job_id)).status == "canceled":
                return "canceled"
            raise
        return str(loads(answer.content)["status"])

    async def retry(
        self,
        job_id: UUID | str,
        *,
        items: Sequence[tuple[int, Any] | int] | None = None,
        data: Any = None,
        reason: str | None = None,
    ) -> int:
        """Repeat what failed or was canceled; give how many jobs that are.

        `items` are indexes of a batch, with corrected data where there is some (a contract's
        message, or plain values); `data` corrects a job that is no batch. Conflict if there
        is nothing to repeat.
        """
        wish: dict[str, Any] = {} if reason is None else {"reason": reason}
        if items is not None:
            wish["items"] = [_correction(each) for each in items]
        if data is not None:
            wish["data"] = plain(data)
        key = {"Idempotency-Key": str(uuid4())}
        path = f"{_path(job_id)}/retry"
        answer = await self._transport.call("POST", path, body=wish, headers=key)
        return int(loads(answer.content)["retried"])

    async def list(
        self,
        *,
        status: Sequence[str] = (),
        type: str | None = None,  # noqa: A002 - the word of the API
        labels: dict[str, str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """List jobs, newest first, without their results."""
        params: list[tuple[str, str]] = [("status", each) for each in status]
        params += [(f"label.{name}", value) for name, value in (labels or {}).items()]
        params += [("type", type)] if type else []
        params += [("cursor", cursor)] if cursor else []
        answer = await self._transport.call(
            "GET", "/v1/jobs", params=[*params, ("limit", str(limit))]
        )
        told = loads(answer.content)
        return Page([job_status(each) for each in told["items"]], told["next"])

    async def items(self, job_id: UUID | str, *, status: Sequence[str] = ()) -> AsyncIterator[Item]:
        """Give the items of a batch, in order, with what each came to."""
        cursor: str | None = None
        while True:
            params = [("status", each) for each in status]
            params += [("cursor", cursor)] if cursor else []
            answer = await self._transport.call("GET", f"{_path(job_id)}/items", params=params)
            told = loads(answer.content)
            for each in told["items"]:
                yield item(each)
            cursor = told["next"]
            if cursor is None:
                return


class Job(Generic[T]):
    """A submitted job; `duplicate`: it had been kept before, under the same idempotency key."""

    def __init__(
        self, client: Client, job_id: str, result: Any = Any, *, duplicate: bool = False
    ) -> None:
        self._client = client
        self._result = result
        self.id = job_id
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    async def get(self) -> JobStatus:
        """Give it as it is now."""
        return await self._client.get(self.id)

    async def wait(self, *, timeout: float | None = None) -> JobStatus:  # noqa: ASYNC109 - the usual word
        """Give it once it is final; TimeoutError if it is not by then."""
        return await self._client.wait(self.id, timeout=timeout)

    async def result(self, *, timeout: float | None = None) -> T:  # noqa: ASYNC109 - the usual word
        """Give what its handler returned; JobFailed or JobCanceled if it did not succeed."""
        found: T = _result(await self.wait(timeout=timeout), self._result)
        return found

    def watch(self, *, after: int | None = None) -> AsyncIterator[Event]:
        """Give what happens to it up to its end."""
        return self._client.watch(self.id, after=after)

    async def cancel(self, *, reason: str | None = None) -> str:
        """Cancel it; give its status."""
        return await self._client.cancel(self.id, reason=reason)

    async def retry(
        self,
        *,
        items: Sequence[tuple[int, Any] | int] | None = None,
        data: Any = None,
        reason: str | None = None,
    ) -> int:
        """Repeat what failed or was canceled of it; give how many jobs that are."""
        return await self._client.retry(self.id, items=items, data=data, reason=reason)

    def items(self, *, status: Sequence[str] = ()) -> AsyncIterator[Item]:
        """Give its items, if it is a batch."""
        return self._client.items(self.id, status=status)


def _result(found: JobStatus, kind: Any) -> Any:
    """Give the result of a final job in its type, every digit kept."""
    if found.status == "failed":
        raise JobFailed(found)
    if found.status == "canceled":
        raise JobCanceled(found)
    if kind is Any:
        return found.result
    # Not as JSON text: pydantic makes a float of every number on its way to a Decimal.
    exact = json.loads(dumps(found.result), parse_float=_number)
    return TypeAdapter(kind).validate_python(exact)


def _number(text: str) -> float | Decimal:
    number = float(text)
    return number if Decimal(repr(number)) == Decimal(text) else Decimal(text)


def _correction(each: tuple[int, Any] | int) -> dict[str, Any]:
    return {"index": each} if isinstance(each, int) else {"index": each[0], "data": plain(each[1])}


def _path(job_id: UUID | str) -> str:
    return f"/v1/jobs/{job_id}"
