"""Send one job twice at once over HTTP, as a client does that lost the answer; then cancel it.

Before: a producer. After: two requests with one Idempotency-Key have made one job, which never ran
(it was due in an hour) and is canceled; or what went otherwise. A key was made for this, and is
revoked. May happen twice: each time with another Idempotency-Key.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import httpx2
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.drill.contract import DrillCall
from filaviva.operations import keys
from filaviva.operations.doctor.finding import Finding, ok, unknown, wrong
from filaviva.operations.doctor.production.sight import Asked

_CHECK: Final = "double send"
_EXPECTED: Final = "one job for both, one of them told as a duplicate; 422 for other content"
_NEEDS: Final = "name the producer: `--api https://producer.example`"
_TENANT: Final = "default"
_SCOPES: Final = ("jobs:write", "jobs:read", "jobs:cancel")
_FAR: Final = timedelta(hours=1)
_ACCEPTED, _UNPROCESSABLE = 202, 422


async def prove(engine: AsyncEngine, asked: Asked) -> Finding:
    """Send, compare and cancel."""
    if not asked.api:
        return unknown(_CHECK, "nobody said where the producer is", _NEEDS, expected=_EXPECTED)
    key = await keys.create(
        engine,
        name="filaviva doctor",
        tenant=_TENANT,
        scopes=_SCOPES,
        types=[DrillCall.contract_type],
        expires_at=datetime.now(UTC) + timedelta(minutes=5),
        author=asked.author,
    )
    headers = {"Authorization": f"Bearer {key.token}"}
    try:
        async with httpx2.AsyncClient(
            base_url=asked.api.rstrip("/"), headers=headers, timeout=10, trust_env=False
        ) as client:
            return await _sent(client)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError) as failed:
        why = f"{type(failed).__name__}: {failed}"[:200]
        return unknown(_CHECK, f"{asked.api}: {why}", _NEEDS, expected=_EXPECTED)
    finally:
        await keys.revoke(engine, key.id, author=asked.author)


async def _sent(client: httpx2.AsyncClient) -> Finding:
    named, when = f"doctor:{uuid4()}", (datetime.now(UTC) + _FAR).isoformat()
    first, second = await asyncio.gather(
        _submit(client, named, 1, when), _submit(client, named, 1, when)
    )
    other = await _submit(client, named, 2, when)
    if first.status_code != _ACCEPTED or second.status_code != _ACCEPTED:
        refused = first if first.status_code != _ACCEPTED else second
        found = f"the producer answers {refused.status_code}: {refused.text[:200]}"
        next_step = "run `filaviva setup` of this release; see `filaviva doctor` for the producer"
        return unknown(_CHECK, found, next_step, expected=_EXPECTED)
    jobs = {str(each.json()["jobId"]) for each in (first, second)}
    told = sorted(bool(each.json()["duplicate"]) for each in (first, second))
    ends = [(await client.post(f"/v1/jobs/{job}/cancel")).json().get("status") for job in jobs]
    if len(jobs) == 1 and told == [False, True] and other.status_code == _UNPROCESSABLE:
        (job,) = jobs
        how = "sent twice at once, was one job, and other content under its key was refused"
        return ok(_CHECK, f"job {job}, {how}; it is {ends[0]}")
    return wrong(
        _CHECK,
        f"{len(jobs)} job(s), duplicate: {told}, other content: {other.status_code}",
        "see what stands between you and the producer: something changes keys or bodies",
        expected=_EXPECTED,
    )


async def _submit(
    client: httpx2.AsyncClient, named: str, number: int, when: str
) -> httpx2.Response:
    body: dict[str, Any] = {
        "type": DrillCall.contract_type,
        "data": {"drillId": "00000000-0000-0000-0000-000000000000", "number": number},
        "runAt": when,
        "labels": {"doctor": "double send"},
    }
    return await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": named})
