"""Submit jobs and follow them over HTTP, from any Python program."""

from filaviva.client.asynchronous import Client, Job
from filaviva.client.blocking import SyncClient, SyncJob
from filaviva.client.refusals import (
    Conflict,
    Forbidden,
    InvalidRequest,
    JobCanceled,
    JobFailed,
    Missing,
    Overloaded,
    Refusal,
    Unauthenticated,
)
from filaviva.client.wire import Event, Item, JobError, JobStatus, Page, Progress

__all__ = [
    "Client",
    "Conflict",
    "Event",
    "Forbidden",
    "InvalidRequest",
    "Item",
    "Job",
    "JobCanceled",
    "JobError",
    "JobFailed",
    "JobStatus",
    "Missing",
    "Overloaded",
    "Page",
    "Progress",
    "Refusal",
    "SyncClient",
    "SyncJob",
    "Unauthenticated",
]
