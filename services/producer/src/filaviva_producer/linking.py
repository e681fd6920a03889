"""A job as its reader gets it: with the link to its status page, if links are set up."""

from typing import Any

from filaviva.operations import shapes
from filaviva.operations.jobs import Job
from filaviva.operations.keys import Principal
from filaviva.operations.links import Links, rights


def linked(found: Job, reader: Principal, links: Links | None, language: str) -> dict[str, Any]:
    """Give a job, with the link that an application may give to its end user."""
    shape = shapes.job(found, language)
    if links is not None:
        shape["links"] = {**shape["links"], "status": links.of(found.id, rights(reader))}
    return shape
