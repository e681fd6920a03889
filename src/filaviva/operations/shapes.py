"""Jobs as they look on the wire: for HTTP and for `--json` alike."""

from collections.abc import Mapping
from typing import Any

import simplejson
from simplejson.raw_json import RawJSON

from filaviva.operations import batch_state
from filaviva.operations.figures import moment, money
from filaviva.operations.jobs import Attempt, Event, Item, Job, LlmCall, Step
from filaviva.operations.waiting_for import waiting_for


def dumps(content: Any) -> str:
    """Write JSON with exact decimals."""
    text: str = simplejson.dumps(
        content, use_decimal=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text


def raw(text: str | None) -> RawJSON | None:
    """Embed JSON text as it is (as PostgreSQL gave it); None stays null."""
    return None if text is None else RawJSON(text)


def job(found: Job, language: str = "en") -> dict[str, Any]:
    """Give a job with its result."""
    return {
        **job_summary(found, language),
        "result": raw(found.result),
        "error": raw(found.error),
    }


def job_summary(found: Job, language: str = "en") -> dict[str, Any]:
    """Give a job as lists show it: without its result, which may be large."""
    address = f"/v1/jobs/{found.id}"
    parts: tuple[str, ...] = ("items",) if found.is_batch else ()
    parts += ("attempts", "steps", "llm-calls", "timeline", "events")
    return {
        "jobId": str(found.id),
        "type": found.type,
        "version": found.version,
        "status": found.state,
        "attempt": found.attempt,
        "maxAttempts": found.max_attempts,
        "progress": None if found.progress is None else progress(_loads(found.progress), language),
        "notBefore": moment(found.not_before),
        "deadline": moment(found.deadline),
        "costUsd": money(found.cost_usd),
        "error": raw(found.error),
        "createdAt": moment(found.created_at),
        "startedAt": moment(found.started_at),
        "finishedAt": moment(found.finished_at),
        "labels": raw(found.labels),
        "subject": found.subject,
        "submittedBy": found.submitted_by,
        "parkedReason": None if found.is_batch else found.parked_reason,
        "waitingFor": waiting_for(found, language),
        "parentId": None if found.parent_id is None else str(found.parent_id),
        "itemIndex": found.item_index,
        "removed": list(found.removed or ()),
        "erasedAt": moment(found.erased_at),
        "links": {"self": address, **{part: f"{address}/{part}" for part in parts}},
    }


def item(found: Item) -> dict[str, Any]:
    """Give one item of a batch."""
    return {
        "index": found.item_index,
        "jobId": str(found.id),
        "status": found.state,
        "result": raw(found.result),
        "error": raw(found.error),
        "costUsd": money(found.cost_usd),
        "attempts": found.attempt,
    }


def attempt(found: Attempt) -> dict[str, Any]:
    """Give one execution."""
    error = None
    if found.error_class is not None:
        error = {
            "class": found.error_class,
            "code": found.error_code,
            "message": found.error_message,
        }
    return {
        "number": found.number,
        "worker": found.worker,
        "startedAt": moment(found.started_at),
        "finishedAt": moment(found.finished_at),
        "outcome": found.outcome,
        "error": error,
        "step": found.step,
        "pauseSeconds": found.pause_seconds,
        "costUsd": money(found.cost_usd),
    }


def step(found: Step) -> dict[str, Any]:
    """Give one step."""
    return {
        "name": found.name,
        "attempt": found.attempt,
        "state": found.state,
        "startedAt": moment(found.started_at),
        "finishedAt": moment(found.finished_at),
        "costUsd": money(found.cost_usd),
        "tool": found.tool,
        "revision": found.revision,
    }


def llm_call(found: LlmCall) -> dict[str, Any]:
    """Give one recorded model call."""
    return {
        "attempt": found.attempt,
        "step": found.step,
        "provider": found.provider,
        "model": found.model,
        "inputTokens": found.input_tokens,
        "outputTokens": found.output_tokens,
        "cacheReadTokens": found.cache_read_tokens,
        "cacheWriteTokens": found.cache_write_tokens,
        "costUsd": money(found.cost_usd),
        "priceSource": found.price_source,
        "at": moment(found.at),
    }


def event(found: Event) -> dict[str, Any]:
    """Give one entry of the timeline."""
    return {
        "sequence": found.id,
        "at": moment(found.at),
        "kind": found.kind,
        "data": raw(found.data),
    }


def progress(found: Mapping[str, Any], language: str = "en") -> dict[str, Any]:
    """Give a progress as it was stored; a batch's in the reader's language."""
    if "succeeded" in found:
        return {**found, "message": batch_state.message(found, language)}
    done = found.get("done", 0)
    return {
        "total": found.get("total"),
        "succeeded": done,
        "failed": found.get("failed", 0),
        "canceled": found.get("canceled", 0),
        "running": found.get("running", 0),
        "queued": found.get("queued", 0),
        "message": found.get("message"),
    }


def _loads(stored: str) -> Any:
    return simplejson.loads(stored, use_decimal=True)
