"""Which of our languages a reader prefers, as `Accept-Language` says (RFC 9110, 12.5.4)."""

from collections.abc import Iterator
from typing import Final

from starlette.requests import Request

LANGUAGES: Final = ("en", "pt")


def preferred(request: Request) -> str:
    """Choose a language; English when the reader accepts none of ours, or says nothing."""
    wanted = dict(_ranges(request.headers.get("accept-language", "")))
    weights = {one: wanted.get(one, wanted.get("*", 0.0)) for one in LANGUAGES}
    return max(LANGUAGES, key=lambda one: weights[one])


def _ranges(header: str) -> Iterator[tuple[str, float]]:
    """Give (language, weight), the weightiest of a language last, so that it stays."""
    found = []
    for part in header[:500].split(","):
        tag, _, weight = part.partition(";")
        language = tag.strip().lower().partition("-")[0]
        found.append((language, _weight(weight)))
    yield from sorted(found, key=lambda one: one[1])


def _weight(text: str) -> float:
    name, _, value = text.strip().partition("=")
    if not name:
        return 1.0
    try:
        return min(1.0, max(0.0, float(value))) if name.strip().lower() == "q" else 0.0
    except ValueError:
        return 0.0
