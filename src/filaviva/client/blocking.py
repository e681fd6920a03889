"""The client for programs without an event loop: the same names, each call waits.

One thread runs the asynchronous client; any number of threads may call.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack
from uuid import UUID

from filaviva.client.asynchronous import Client, Job
from filaviva.client.submission import Options
from filaviva.client.wire import Event, Item, JobStatus, Page
from filaviva_contracts import Contract

T = TypeVar("T")


class SyncClient:
    """A connection to the API with one key; close it, or use it with `with`."""

    def __init__(self, url: str, api_key: str, *, patience: float = 60.0) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="filaviva-client", daemon=True
        )
        self._thread.start()

        async def made() -> Client:
            return Client(url, api_key, patience=patience)

        self._client = self._run(made())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def submit(
        self,
        job: Contract | type[Contract] | str,
        data: Any = None,
        *,
        items: Sequence[Any] | None = None,
        result: type[T] | Any = Any,
        idempotency_key: str | None = None,
        **options: Unpack[Options],
    ) -> "SyncJob[T]":
        """Submit a contract's message, or a type with data; `items` make a batch."""
        kept: Job[T] = self._run(
            self._client.submit(
                job, data, items=items, result=result, idempotency_key=idempotency_key, **options
            )
        )
        return SyncJob(kept, self._run, self._iterate)

    def job(self, job_id: UUID | str, *, result: type[T] | Any = Any) -> "SyncJob[T]":
        """Take up a job that was submitted before; nothing is asked yet."""
        taken: Job[T] = self._client.job(job_id, result=result)
        return SyncJob(taken, self._run, self._iterate)

    def list(
        self,
        *,
        status: Sequence[str] = (),
        type: str | None = None,  # noqa: A002 - the word of the API
        labels: dict[str, str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """List jobs, newest first, without their results."""
        return self._run(
            self._client.list(status=status, type=type, labels=labels, limit=limit, cursor=cursor)
        )

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()  # Ctrl-C while we wait
            raise

    def _iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> tuple[T, ...]:
            try:
                return (await anext(source),)
            except StopAsyncIteration:
                return ()

        async def ended() -> None:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

        try:
            while found := self._run(following()):
                yield found[0]
        finally:
            self._run(ended())


class SyncJob(Generic[T]):
    """A submitted job."""

    def __init__(
        self,
        job: Job[T],
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        iterate: Callable[[AsyncIterator[Any]], Iterator[Any]],
    ) -> None:
        self._job = job
        self._run = run
        self._iterate = iterate
        self.id = job.id
        self.duplicate = job.duplicate

    def __repr__(self) -> str:
        return f"<SyncJob {self.id}>"

    def get(self) -> JobStatus:
        """Give it as it is now."""
        found: JobStatus = self._run(self._job.get())
        return found

    def wait(self, *, timeout: float | None = None) -> JobStatus:
        """Give it once it is final; TimeoutError if it is not by then."""
        found: JobStatus = self._run(self._job.wait(timeout=timeout))
        return found

    def result(self, *, timeout: float | None = None) -> T:
        """Give what its handler returned; JobFailed or JobCanceled if it did not succeed."""
        found: T = self._run(self._job.result(timeout=timeout))
        return found

    def watch(self, *, after: int | None = None) -> Iterator[Event]:
        """Give what happens to it up to its end."""
        return self._iterate(self._job.watch(after=after))

    def cancel(self, *, reason: str | None = None) -> str:
        """Cancel it; give its status."""
        return str(self._run(self._job.cancel(reason=reason)))

    def retry(
        self,
        *,
        items: Sequence[tuple[int, Any] | int] | None = None,
        data: Any = None,
        reason: str | None = None,
    ) -> int:
        """Repeat what failed or was canceled of it; give how many jobs that are."""
        return int(self._run(self._job.retry(items=items, data=data, reason=reason)))

    def items(self, *, status: Sequence[str] = ()) -> Iterator[Item]:
        """Give its items, if it is a batch."""
        return self._iterate(self._job.items(status=status))
