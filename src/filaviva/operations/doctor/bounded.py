"""Look for so long at most: what does not answer in time is a finding like any other."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import httpx2

from filaviva.database.transaction import DATABASE_ERRORS, words
from filaviva.errors import FilavivaError
from filaviva.operations.doctor.finding import Finding, unknown

SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 4.0  # for a server to answer the first question


async def within(
    check: str,
    looking: AsyncIterator[Finding],
    *,
    seconds: float = SECONDS,
    group: str | None = None,
) -> list[Finding]:
    """Collect what is found until it is over or the time is; the rest is told as unknown."""
    found: list[Finding] = []
    again = "see what the other findings say, then run `filaviva doctor` again"
    try:
        async with asyncio.timeout(seconds) as limit:
            async for each in looking:
                found.append(each)  # noqa: PERF401 - what was found stays when the time is up
    except DATABASE_ERRORS as away:
        why = f"nothing more within {seconds:g} s" if limit.expired() else words(away)
        found.append(unknown(check, f"it could not be looked at: {why}", again))
    except FilavivaError as told:
        found.append(unknown(check, f"it could not be looked at: {told}", again))
    except (httpx2.HTTPError, ValueError, LookupError) as odd:
        why = f"{type(odd).__name__}: {odd}"[:200]
        found.append(unknown(check, f"it could not be looked at: {why}", again))
    return found if group is None else [replace(each, group=group) for each in found]
