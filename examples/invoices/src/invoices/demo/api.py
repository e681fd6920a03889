"""What the demonstration asks the services over HTTP, as any client could."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import httpx2

from invoices.demo.stack import DemoFailed

Json = dict[str, Any]


class Away(DemoFailed):
    """A service does not answer just now; it may be about to start again."""


class Api:
    """The producer and the dlq-handler of one stack."""

    def __init__(self, *, producer: str, dlq: str, key: str) -> None:
        self._http = httpx2.AsyncClient(timeout=30, headers={"Authorization": f"Bearer {key}"})
        self._producer = producer.rstrip("/")
        self._dlq = dlq.rstrip("/")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def submit(self, url: str, *, key: str, document: str) -> Json:
        """Submit one document; the same key again is the same job."""
        return await self._ask(
            "POST",
            f"{self._producer}/v1/jobs",
            headers={"Idempotency-Key": key},
            json={
                "type": "invoice.extract",
                "version": 1,
                "data": {"documentUrl": url},
                "labels": {"document": document},
            },
        )

    async def submit_batch(
        self, urls: Sequence[str], *, key: str, documents: str, concurrency: int
    ) -> Json:
        """Submit several documents as the items of one batch."""
        return await self._ask(
            "POST",
            f"{self._producer}/v1/jobs",
            headers={"Idempotency-Key": key},
            json={
                "type": "invoice.extract",
                "version": 1,
                "items": [{"documentUrl": url} for url in urls],
                "concurrency": concurrency,
                "labels": {"documents": documents},
            },
        )

    async def jobs(self, **filters: str) -> list[Json]:
        """Return every job, those of a batch too."""
        wanted = {"limit": 100, **filters}
        page = await self._ask("GET", f"{self._producer}/v1/jobs", params=wanted)
        return list(page["items"])

    async def job(self, job_id: str) -> Json:
        """Return one job as it is now."""
        return await self._ask("GET", f"{self._producer}/v1/jobs/{job_id}")

    async def attempts(self, job_id: str) -> list[Json]:
        """Return a job's attempts, oldest first."""
        return await self._list(f"{self._producer}/v1/jobs/{job_id}/attempts")

    async def steps(self, job_id: str) -> list[Json]:
        """Return a job's finished and begun steps."""
        return await self._list(f"{self._producer}/v1/jobs/{job_id}/steps")

    async def dead_letters(self) -> list[Json]:
        """Return every dead letter."""
        return await self._list(f"{self._dlq}/v1/dead-letters")

    async def replay(self, letter: str, *, reason: str, patch: list[Json] | None = None) -> Json:
        """Send a dead letter back, corrected if a JSON Patch is given."""
        wanted: Json = {"scope": {"ids": [letter]}, "reason": reason}
        if patch is not None:
            wanted["patch"] = patch
        return await self._ask("POST", f"{self._dlq}/v1/replays", json=wanted)

    async def replay_status(self, letter: str) -> int:
        """Try to replay a letter and return only how that was answered."""
        wanted = {"scope": {"ids": [letter]}, "reason": "a second time, by mistake"}
        answer = await self._http.post(f"{self._dlq}/v1/replays", json=wanted)
        return answer.status_code

    async def _list(self, url: str) -> list[Json]:
        return list((await self._ask("GET", url))["items"])

    async def _ask(self, method: str, url: str, **options: Any) -> Json:
        try:
            answer = await self._http.request(method, url, **options)
        except httpx2.TransportError as away:
            raise Away(f"{method} {url}: {away}") from away
        if answer.is_error:
            raise DemoFailed(f"{method} {url}: {answer.status_code} {answer.text}")
        content: Json = answer.json()
        return content


class Provider:
    """The sandbox provider's own side: planned faults and the ledger."""

    def __init__(self, url: str) -> None:
        self._http = httpx2.AsyncClient(timeout=30, base_url=url)
        self._url = url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    def address(self, document: str) -> str:
        """Return where a document is served."""
        return f"{self._url}/documents/{document}.xml"

    async def plan(self, document: str, faults: tuple[str, ...]) -> None:
        """Plan the faults of the next calls for a document."""
        wanted = {"document": document, "faults": list(faults)}
        (await self._http.post("/faults", json=wanted)).raise_for_status()

    async def calls(self) -> list[Json]:
        """Return every call that reached the sandbox."""
        return list((await self._http.get("/ledger")).json()["calls"])

    async def held(self) -> set[str]:
        """Return the documents whose answers are held back."""
        return set((await self._http.get("/held")).json()["documents"])

    async def release(self) -> None:
        """Let the held answers go."""
        (await self._http.post("/release")).raise_for_status()
