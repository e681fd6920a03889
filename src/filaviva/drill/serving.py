"""The built-in handler of drills, which every worker that knows the provider's address serves.

Before: a drill has submitted a job. After: the provider has answered its call.
May happen twice: yes, under the same Idempotency-Key.
"""

import ssl
from functools import cache
from typing import Any

from filaviva.context import Context
from filaviva.drill.contract import POLICY, QUEUE, DrillCall
from filaviva.handler import Handler
from filaviva.settings import DrillSettings

CALLS = "/calls"
_PATIENCE = 5.0


def handler(settings: DrillSettings) -> Handler:
    """Give the handler; the address comes from the settings alone, never from a job."""

    async def drill(job: DrillCall, ctx: Context) -> dict[str, Any]:
        """Call the provider, as a user's handler would call one."""
        key = ctx.idempotency_key("call")

        async def call() -> int:
            return await _call(f"{settings.provider_url}{CALLS}", key)

        return {"number": job.number, "answered": await ctx.step("call", call)}

    return Handler.ours(DrillCall, drill, QUEUE, POLICY)


@cache
def _trust() -> ssl.SSLContext:
    # Made once: it takes as long as all the rest of a call.
    return ssl.create_default_context()


async def _call(url: str, key: str) -> int:
    # Imported here: a worker without drills needs no HTTP client.
    import httpx2  # noqa: PLC0415

    # A connection of its own each time: one that is kept would outlive the cut.
    async with httpx2.AsyncClient(verify=_trust(), trust_env=False, timeout=_PATIENCE) as client:
        answer = await client.post(url, headers={"Idempotency-Key": key, "Connection": "close"})
        answer.raise_for_status()
        return int(answer.json()["number"])
