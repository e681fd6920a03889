"""One look at the page: which part of it is asked for, and every address that leads on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from filaviva.http import languages
from filaviva.operations.links import Link, Links, Right
from filaviva_producer.page.view import View
from filaviva_producer.page.words import LANGUAGES, Words

PAGE = 50
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the address asks for beside the job."""

    lang: str | None = None
    failed: bool = False
    after: int = -1
    refresh: bool = True
    note: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Wanted":
        """Read a query; what we do not know, such as what mailers add to links, is ignored."""
        return cls(
            lang=query["lang"] if query.get("lang") in LANGUAGES else None,
            failed=query.get("show") == "failed",
            after=whole(query.get("after", ""), -1),
            refresh=query.get("refresh") != "off",
            note=query.get("note", ""),
        )

    @property
    def query(self) -> str:
        """Write it as it is read."""
        parts = {
            "lang": self.lang,
            "show": "failed" if self.failed else None,
            "after": str(self.after) if self.after >= 0 else None,
            "refresh": None if self.refresh else "off",
            "note": self.note or None,
        }
        return urlencode({name: value for name, value in parts.items() if value is not None})


def words_for(request: Request, wanted: Wanted) -> Words:
    """Choose the language: the one that was chosen on the page, or the browser's."""
    return LANGUAGES[wanted.lang or languages.preferred(request)]


@dataclass(frozen=True, slots=True)
class Visit:
    """What the template needs beside the view; its addresses are relative to the page's."""

    link: Link
    links: Links
    wanted: Wanted
    words: Words
    view: View
    able: frozenset[Right]
    last: int
    next_after: int | None = None

    @property
    def here(self) -> str:
        """Give the page's own address, without the note of what was just done."""
        return self._address(replace(self.wanted, note=""))

    @property
    def events(self) -> str:
        """Give the address of the stream from this moment on; empty if nothing will come."""
        if self.view.final:
            return ""
        return f"{self.link.job_id}/events?{self.links.query(self.link)}&after={self.last}"

    @property
    def note(self) -> str:
        """Say what was just done."""
        return self.words.notes.get(self.wanted.note, "")

    @property
    def may_cancel(self) -> bool:
        """Tell whether there is a button for it."""
        return self._may("cancel") and self.view.may_be_canceled

    @property
    def may_retry(self) -> bool:
        """Tell whether there is a button for it."""
        return self._may("retry") and self.view.may_be_repeated

    def _may(self, right: Right) -> bool:
        return right in self.able and self.link.may(right)

    @property
    def refreshing(self) -> bool:
        """Tell whether the page reloads itself where there is no script."""
        return self.wanted.refresh

    @property
    def only_failed(self) -> bool:
        """Tell whether only what failed is listed."""
        return self.wanted.failed

    @property
    def other_refresh(self) -> str:
        """Give the page that reloads itself if this one does not."""
        return self._address(replace(self.wanted, refresh=not self.wanted.refresh, note=""))

    @property
    def other_filter(self) -> str:
        """Give the page with everything if this one has only what failed."""
        return self._address(replace(self.wanted, failed=not self.wanted.failed, after=-1, note=""))

    @property
    def first(self) -> str:
        """Give the first page of the parts, unless this is it."""
        if self.wanted.after < 0:
            return ""
        return self._address(replace(self.wanted, after=-1, note=""))

    @property
    def next(self) -> str:
        """Give the next page of the parts, if there is one."""
        if self.next_after is None:
            return ""
        return self._address(replace(self.wanted, after=self.next_after, note=""))

    def in_language(self, words: Words) -> str:
        """Give the same page in another language."""
        (code,) = (code for code, one in LANGUAGES.items() if one is words)
        return self._address(replace(self.wanted, lang=code, note=""))

    def address(self, action: str) -> str:
        """Give where a form is sent."""
        return f"{self.link.job_id}/{action}?{self._query(replace(self.wanted, note=''))}"

    def token(self, action: str) -> str:
        """Give what shows that a form came from this page."""
        return self.links.token(self.link, action)

    @property
    def stays(self) -> str:
        """Say until when the link is valid."""
        until = datetime.fromtimestamp(self.link.expires, UTC)
        return self.words.stays.format(date=self.words.day(until))

    def _address(self, wanted: Wanted) -> str:
        return f"{self.link.job_id}?{self._query(wanted)}"

    def _query(self, wanted: Wanted) -> str:
        return "&".join(filter(None, (self.links.query(self.link), wanted.query)))


def read_link(job_id: Any, query: Mapping[str, str]) -> tuple[Link, str]:
    """Read a link and its signature as they are in an address, whatever they are worth."""
    expires = whole(query.get("expires", ""), 0, digits=11)
    return Link(job_id, query.get("can", ""), expires), query.get("signature", "")


def whole(text: str, otherwise: T, *, digits: int = 9) -> int | T:
    """Read a whole number of so many digits at most."""
    fits = text.isascii() and text.isdecimal() and len(text) <= digits
    return int(text) if fits else otherwise
