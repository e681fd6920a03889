"""Releases of one application, frozen: what a worker of then and one of now read side by side.

The contract is the example's, its handler cut down to its effect. Each family is an app of its own,
so that the tests do not meet: `archive_1` is the first release of `archive`. An address says what
happens to it: `/busy/` fails once and waits, `/bug/` is what the first release could not read.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from sqlalchemy import BigInteger, Column, Identity, Integer, MetaData, Table, Text, Uuid, insert

from filaviva import App, Context, Contract, Policy, Retryable, Terminal

tables = MetaData(schema="releases")
# Without a unique key on purpose: an effect applied twice shows as two rows.
extracted = Table(
    "extracted",
    tables,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("job_id", Uuid, nullable=False),
    Column("release", Integer, nullable=False),
    Column("read_as", Integer, nullable=False),
    Column("url", Text, nullable=False),
)
POLICY = Policy(max_attempts=4, base=1, cap=5, jitter=0, timeout=30)
_BUSY_SECONDS = 4


class Document(BaseModel):
    """Where a document lies, from the second version on."""

    url: str
    language: str


class Result(BaseModel):
    """What every version's jobs return."""

    url: str


def contracts(kind: str) -> tuple[type[Contract], type[Contract], type[Contract]]:
    """Give three versions of a contract: an address, a document, a document with its pages."""

    class First(Contract, type=kind, version=1):
        document_url: str

    class Second(Contract, type=kind, version=2):
        document: Document

    class Third(Contract, type=kind, version=3):
        document: Document
        pages: int

    return First, Second, Third


def describe(data: dict[str, Any]) -> dict[str, Any]:
    """Upcast the first version to the second."""
    url = data.pop("documentUrl")
    return {**data, "document": {"url": url, "language": "pt"}}


def release(kind: str, number: int, *, versions: tuple[int, ...], upcast: bool = False) -> App:
    """Make one release, which has handlers of these versions."""
    app = App(kind, tables=tables)
    known = contracts(f"{kind}.extract")
    for version in versions:
        app.handler(known[version - 1], queue=kind, policy=POLICY)(_handler(number, version))
    if upcast:
        app.upcaster(f"{kind}.extract", 1, to=2)(describe)
    return app


def _handler(release: int, version: int) -> Any:
    async def extract(job: Any, ctx: Context) -> Result:
        url = job.document_url if version == 1 else job.document.url
        if "/busy/" in url and ctx.attempt == 1:
            raise Retryable("the provider is busy", retry_after=_BUSY_SECONDS)
        if "/bug/" in url and release == 1:
            raise Terminal("found a document that this release cannot read")
        ctx.effect(
            insert(extracted).values(job_id=ctx.job_id, release=release, read_as=version, url=url)
        )
        return Result(url=url)

    return extract


def subscriber(kind: str, number: int, *, versions: tuple[int, ...]) -> App:
    """Make one release that handles these versions as an event."""
    app = App(kind, tables=tables)
    known = contracts(f"{kind}.extract")
    for version in versions:
        handler = _handler(number, version)
        app.on_event(known[version - 1], queue=kind, policy=POLICY, name="note")(handler)
    return app


_RELEASES: Mapping[str, Callable[[], App]] = {
    "archive_1": lambda: release("archive", 1, versions=(1,)),
    "archive_2": lambda: release("archive", 2, versions=(2,), upcast=True),
    "archive_3": lambda: release("archive", 3, versions=(2,)),
    "future_2": lambda: release("future", 2, versions=(2,)),
    "future_3": lambda: release("future", 3, versions=(2, 3)),
    "notice_2": lambda: subscriber("notice", 2, versions=(2,)),
    "notice_3": lambda: subscriber("notice", 3, versions=(2, 3)),
    "rolling_1": lambda: release("rolling", 1, versions=(1,)),
    "rolling_2": lambda: release("rolling", 2, versions=(2,), upcast=True),
    "rolling_3": lambda: release("rolling", 3, versions=(2, 3)),
}


def __getattr__(name: str) -> App:
    """Make a release when it is asked for: an older Filaviva knows less than the last one needs."""
    if name not in _RELEASES:
        raise AttributeError(name)
    return _RELEASES[name]()
