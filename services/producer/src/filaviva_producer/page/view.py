"""What the status page shows of a job, in words: everything is decided here, nothing in templates.

Before: a job as it is now. After: text for a person who knows nothing of programs.
May happen twice: it has no effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import simplejson

from filaviva.operations import shapes
from filaviva.operations.jobs import Item, Job
from filaviva.operations.timelines import FINAL
from filaviva_producer.page.results import Shown, shown, spoken
from filaviva_producer.page.words import Words

_TITLE: Final = "title"  # the label that names a job to people
_COUNTED: Final = ("failed", "canceled", "running", "queued")
# What these say was written by whoever knows the request; other messages are about machinery.
_SPEAKING: Final = frozenset(("invalid_input", "refused", "terminal"))
_LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed; `said` is the application's own text, if that is meant for people."""

    what: str
    helps: str
    said: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is; `most` None: nobody knows how much there is."""

    sentence: str
    rest: str
    done: float
    most: float | None


@dataclass(frozen=True, slots=True)
class Part:
    """An item of a batch."""

    index: int
    name: str
    state: str
    headline: str
    failure: Failure | None
    result: Shown | None


@dataclass(frozen=True, slots=True)
class View:
    """A job on its page."""

    id: UUID
    title: str
    state: str
    headline: str
    explained: str
    progress: Progress | None
    failure: Failure | None
    result: Shown | None
    is_batch: bool
    failures: int

    @property
    def final(self) -> bool:
        """Tell whether nothing will change by itself."""
        return self.state in FINAL

    @property
    def may_be_canceled(self) -> bool:
        """Tell whether a cancel would change anything."""
        return self.state in ("queued", "running")

    @property
    def may_be_repeated(self) -> bool:
        """Tell whether there is something to be repeated; in a batch others may go on meanwhile."""
        if self.is_batch:
            return self.failures > 0 and self.state != "cancel_requested"
        return self.state in ("failed", "canceled")


def view(job: Job, words: Words) -> View:
    """Put a job into words."""
    counted = _counted(job.progress)
    failures = (
        int(counted.get("failed", 0)) + int(counted.get("canceled", 0)) if job.is_batch else 0
    )
    headline, explained = _said_of(job, words, partly=job.state == "succeeded" and failures > 0)
    return View(
        id=job.id,
        title=_title(job),
        state=job.state,
        headline=headline,
        explained=explained,
        progress=_progress(job, counted, words),
        failure=failure(job.error, words) if job.state == "failed" else None,
        result=shown(job.result, words),
        is_batch=job.is_batch,
        failures=failures,
    )


def parts(items: Sequence[Item], words: Words) -> list[Part]:
    """Put a batch's items into words."""
    return [
        Part(
            index=item.item_index,
            name=words.item.format(number=item.item_index + 1),
            state=item.state,
            headline=words.states[item.state],
            failure=failure(item.error, words) if item.state == "failed" else None,
            result=shown(item.result, words),
        )
        for item in items
    ]


def failure(stored: str | None, words: Words) -> Failure:
    """Say why something failed; a class of errors alone says nothing to a person."""
    error: Mapping[str, Any] = simplejson.loads(stored) if stored else {}
    kind = str(error.get("class"))
    said = str(error.get("message") or "")[:_LONGEST] if kind in _SPEAKING else ""
    why = words.whys.get(kind, words.whys["unexpected"])
    if error.get("code") == "DeadlineExpired":
        why = words.expired_why
    if error.get("code") == "ItemsFailed":
        why, said = words.items_why, ""
    return Failure(why.what, why.helps, said)


def _said_of(job: Job, words: Words, *, partly: bool) -> tuple[str, str]:
    if partly:
        return words.partly, words.partly_explained
    if job.is_batch and job.state == "failed":
        return words.states[job.state], words.partly_explained
    pause = _seconds_until(job.not_before) if job.state == "queued" else 0
    if pause > 0 and job.attempt:
        return words.again, words.again_explained.format(amount=words.amount(pause))
    if pause > 0:
        return words.scheduled, words.begins.format(amount=words.amount(pause))
    return words.states[job.state], words.explained[job.state]


def _progress(job: Job, counted: Mapping[str, Any], words: Words) -> Progress | None:
    if not counted:
        return None
    done, total = counted["succeeded"] or 0, counted["total"] or 0
    sentence = words.completed.format(done=done, total=total) if total else ""
    if job.is_batch:
        rest = words.counts({name: counted[name] for name in _COUNTED})
        ended = done + counted["failed"] + counted["canceled"]
        return Progress(sentence, rest, ended, total)
    message = str(counted["message"] or "")[:_LONGEST]
    if job.state in FINAL and not total:
        return None
    return Progress(
        sentence or message, message if sentence else "", min(done, total), total or None
    )


def _counted(stored: str | None) -> Mapping[str, Any]:
    found = simplejson.loads(stored) if stored else None
    return shapes.progress(found) if isinstance(found, dict) else {}


def _title(job: Job) -> str:
    labels: Mapping[str, Any] = simplejson.loads(job.labels)
    return str(labels.get(_TITLE) or spoken(job.type.replace(".", " ")))


def _seconds_until(at: datetime | None) -> float:
    return 0 if at is None else (at - datetime.now(UTC)).total_seconds()
