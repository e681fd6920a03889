"""Ask the broker's management API."""

from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import httpx2

from filaviva.operations.doctor.bounded import ANSWER_SECONDS


def why(failed: Exception) -> str:
    """Say what failed; a request that was not answered in time has no words of its own."""
    return str(failed)[:200] or f"no answer within {ANSWER_SECONDS:g} s"


class Management:
    """GET from it, with the user and password of its URL; `date` is what its clock said."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.origin = f"{parts.scheme}://{parts.hostname}:{parts.port or 15672}"
        self.user = unquote(parts.username or "")
        login = (self.user, unquote(parts.password or ""))
        self._client = httpx2.AsyncClient(base_url=self.origin, auth=login, timeout=ANSWER_SECONDS)
        self.date: str | None = None

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def get(self, path: str) -> Any:
        """Give what it answers; HTTPError if it refuses."""
        answer = await self._client.get(path)
        self.date = answer.headers.get("date", self.date)
        return answer.raise_for_status().json()

    async def permitted(self, path: str) -> Any | None:
        """Give what it answers; None if this user may not see it."""
        try:
            return await self.get(path)
        except httpx2.HTTPStatusError as refused:
            if refused.response.status_code in (401, 403):
                return None
            raise
