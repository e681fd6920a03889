"""What Alertmanager told Slack: counted at our stand-in, or by Alertmanager's own figures."""

import re
from collections.abc import Sequence
from typing import Final

import httpx2

from filaviva.database import redacted
from filaviva.dev.slack import Inbox
from filaviva.drilling.evidence import Told
from filaviva.drilling.prometheus import ALERT
from filaviva.errors import Unreachable

_FIRING, _RESOLVED = ":rotating_light:", ":white_check_mark:"
_SENT: Final = re.compile(
    r'^alertmanager_notifications(_failed)?_total\{[^}]*integration="slack"[^}]*\} (\S+)$',
    re.MULTILINE,
)


def at_stand_in(inbox: Inbox) -> Told:
    """Count the messages of the alert that our stand-in got."""
    ours = [text for text in inbox.texts() if ALERT in text]
    return Told(
        sum(_FIRING in text for text in ours),
        sum(_RESOLVED in text for text in ours),
        where=" at the stand-in",
    )


class Alertmanagers:
    """The platform's own: any number that share the work."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._http = httpx2.AsyncClient(trust_env=False, timeout=10)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def sent(self) -> tuple[int, int]:
        """Count what they have told Slack in all, and what Slack did not take."""
        pages = [await self._page(url) for url in self._urls]
        found = [each for page in pages for each in _SENT.findall(page)]
        failed = sum(float(value) for failure, value in found if failure)
        return round(sum(float(value) for failure, value in found if not failure)), round(failed)

    async def _page(self, url: str) -> str:
        try:
            answer = await self._http.get(f"{url}/metrics")
            answer.raise_for_status()
        except httpx2.HTTPError as away:
            why = str(away) or type(away).__name__
            raise Unreachable(f"Alertmanager at {redacted(url)} does not answer: {why}") from away
        return answer.text
