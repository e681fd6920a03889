"""Jobs in the document: submitted over HTTP, and their results read there."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from filaviva.asyncapi.schemas import ID, reference
from filaviva.asyncapi.told import Told

BINDING: Final = "0.3.0"
_KEY: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["Idempotency-Key"],
    "properties": {
        "Idempotency-Key": {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "description": "the same key is the same job, however often it is sent",
        }
    },
}
_TAGS: Final = [{"name": "jobs"}]


def channels(jobs: Sequence[Told]) -> dict[str, Any]:
    """Describe where jobs are submitted, and where they are seen."""
    if not jobs:
        return {}
    return {
        "jobs": _channel("/v1/jobs", {_sent(job): _message(_sent(job)) for job in jobs}),
        "job": {
            **_channel("/v1/jobs/{jobId}", {_seen(job): _message(_seen(job)) for job in jobs}),
            "parameters": {"jobId": {"description": "the id that the submission was answered"}},
        },
    }


def _channel(address: str, messages: dict[str, Any]) -> dict[str, Any]:
    servers = [{"$ref": "#/servers/producer"}]
    return {"address": address, "servers": servers, "messages": messages, "tags": _TAGS}


def _message(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/messages/{name}"}


def _sent(job: Told) -> str:
    return f"{job.name}.submission"  # the type may be an event's too


def _seen(job: Told) -> str:
    return f"{job.name}.job"


def operations(jobs: Sequence[Told]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Describe the submission of each."""
    post = {"method": "POST", "bindingVersion": BINDING}
    for job in jobs:
        reply = {
            "channel": {"$ref": "#/channels/job"},
            "messages": [{"$ref": f"#/channels/job/messages/{_seen(job)}"}],
        }
        yield (
            f"submit.{job.name}",
            {
                "action": "receive",
                "channel": {"$ref": "#/channels/jobs"},
                "title": job.name,
                "summary": "Submit it, and it becomes a job",
                "messages": [{"$ref": f"#/channels/jobs/messages/{_sent(job)}"}],
                "reply": reply,
                "bindings": {"http": post},
                "tags": _TAGS,
                "x-filaviva-queue": job.queue,
            },
        )


def messages(jobs: Sequence[Told]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Describe what is submitted, and the job that becomes of it."""
    for job in jobs:
        yield _sent(job), _submitted(job)
        yield _seen(job), _job(job)


def _submitted(job: Told) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": _sent(job),
        "title": str(job.schema.get("title", job.name)),
        "contentType": "application/json",
        "headers": _KEY,
        "payload": {
            "type": "object",
            "required": ["type", "data"],
            "properties": {
                "type": {"const": job.type},
                "version": {"const": job.version},
                "data": reference(job.name),
            },
        },
        "tags": _TAGS,
    }
    if description := job.schema.get("description"):
        found["summary"] = str(description)
    found |= job.notices()
    if job.example is not None:
        payload = {"type": job.type, "version": job.version, "data": job.example}
        headers = {"Idempotency-Key": "order-17"}
        found["examples"] = [{"name": job.name, "headers": headers, "payload": payload}]
    return found


def _job(job: Told) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if job.result_schema is not None:
        result = {"anyOf": [reference(f"{job.name}.result"), {"type": "null"}]}
    return {
        "name": _seen(job),
        "title": f"{job.schema.get('title', job.name)}: the job",
        "summary": "The job, with its result once it has succeeded",
        "contentType": "application/json",
        "payload": {
            "type": "object",
            "required": ["jobId", "type", "version", "status"],
            "properties": {
                "jobId": {"type": "string", "format": "uuid", "examples": [ID]},
                "type": {"const": job.type},
                "version": {"const": job.version},
                "status": {"type": "string"},
                "result": result,
            },
        },
        "tags": _TAGS,
    }
