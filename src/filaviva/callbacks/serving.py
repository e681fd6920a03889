"""The built-in handler of callbacks, which every worker that has the secret serves.

Before: a job has ended; its callback is a job of its own. After: its submitter's server has
answered 2xx.
May happen twice: yes, under the same `webhook-id`.
"""

import json
import time
from typing import Any, Final

from filaviva.callbacks.contract import POLICY, QUEUE, CallBack
from filaviva.callbacks.signing import headers, tenant_secret
from filaviva.callbacks.urls import Rules
from filaviva.context import Context
from filaviva.handler import Handler
from filaviva.settings import CallbackSettings

# Of the same tenant: a callback that was corrected for its replay may name any job.
_URL: Final = "SELECT callback_url FROM filaviva.jobs WHERE id = $1 AND tenant = $2"


def rules(settings: CallbackSettings) -> Rules | None:
    """Give what a callback's URL may be; None: there are no callbacks here."""
    if settings.secret is None:
        return None
    return Rules(allow_http=settings.allow_http, allow_private=settings.allow_private)


def secrets(settings: CallbackSettings, tenant: str) -> list[str]:
    """Give the secrets that a tenant's callbacks are signed with, the present one first."""
    masters = (settings.secret, settings.previous_secret)
    return [tenant_secret(one.get_secret_value(), tenant) for one in masters if one is not None]


def message(job: CallBack) -> bytes:
    """Write what the receiver gets: thin, since whoever wants more asks with a key."""
    finished = job.model_dump(mode="json")["finishedAt"]
    error = None
    if job.error_class is not None:
        error = {"class": job.error_class, "code": job.error_code}
    told = {
        "type": f"job.{job.status}",
        "timestamp": finished,
        "data": {
            "jobId": str(job.job_id),
            "type": job.type,
            "version": job.version,
            "status": job.status,
            "finishedAt": finished,
            "attempts": job.attempts,
            "costUsd": job.cost_usd,
            "error": error,
            "statusUrl": f"/v1/jobs/{job.job_id}",
        },
    }
    return json.dumps(told, separators=(",", ":")).encode()


def handler(settings: CallbackSettings) -> Handler:
    """Give the handler that calls back."""

    async def call_back(job: CallBack, ctx: Context) -> dict[str, Any]:
        """Tell that a job has ended."""
        # Imported here: a worker without callbacks needs no HTTP client.
        from filaviva.callbacks.posting import post  # noqa: PLC0415

        async with ctx.transaction() as connection:
            url = (await connection.exec_driver_sql(_URL, (job.job_id, ctx.tenant))).scalar()
        if url is None:
            return {"answered": None, "why": "the job's data was erased, or it was removed"}
        body = message(job)
        signed = headers(secrets(settings, ctx.tenant), f"msg_{ctx.job_id}", int(time.time()), body)
        answered = await post(
            url,
            body,
            {**signed, "Content-Type": "application/json", "User-Agent": "Filaviva"},
            rules=rules(settings) or Rules(),
            seconds=settings.timeout_seconds,
        )
        return {"answered": answered}

    return Handler.ours(CallBack, call_back, QUEUE, POLICY)
