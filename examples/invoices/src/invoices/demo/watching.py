"""Turn what jobs look like from one moment to the next into lines for a person."""

from datetime import UTC, datetime
from typing import Any, Protocol

from invoices.demo.evidence import moment

Json = dict[str, Any]


class Says(Protocol):
    """Something that shows one line."""

    def say(self, text: str) -> None:
        """Show it."""


class Watch:
    """Show only what is new."""

    def __init__(self, screen: Says) -> None:
        self._screen = screen
        self._seen: dict[str, tuple[Any, ...]] = {}

    def show(self, jobs: dict[str, Json]) -> None:
        """Compare with the last look and show the difference."""
        for name, job in jobs.items():
            look = (job["status"], job["attempt"], job["notBefore"])
            line = describe(job) if look != self._seen.get(name) else None
            self._seen[name] = look
            if line:
                self._screen.say(f"{name}: {line}")


def describe(job: Json) -> str | None:
    """Say how a job stands; None if that is nothing worth a line."""
    match job["status"]:
        case "succeeded":
            return f"succeeded in attempt {job['attempt']}, USD {job['costUsd']}"
        case "failed":
            return f"dead: {_cause(job)}"
        case "queued" if job["error"] and job["error"].get("class") == "lost":
            return f"attempt {job['attempt']} was lost with its worker; again in {_pause(job)}"
        case "queued" if job["error"]:
            return f"attempt {job['attempt']} failed ({_cause(job)}); again in {_pause(job)}"
        case "running" if job["attempt"] > 1:
            return f"attempt {job['attempt']} runs"
    return None


def _cause(job: Json) -> str:
    error = job["error"] or {}
    return f"{error.get('class', 'unknown')}, {error.get('code', 'unknown')}"


def _pause(job: Json) -> str:
    if job["notBefore"] is None:
        return "a moment"
    left = (moment(job["notBefore"]) - datetime.now(UTC)).total_seconds()
    return f"{max(left, 0):.1f} s"
