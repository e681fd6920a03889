"""Keep samples of what is worked on: outlines, without contents, of types that the settings name.

Before: a job is claimed. After: now and then the outline of its data is in `contract_samples`.
May happen twice: yes, it is counted. A job pays for a look at the clock; what costs more is done
beside it.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.app import App
from filaviva.database.transaction import DATABASE_ERRORS, said, transact
from filaviva.evolution import samples
from filaviva.evolution.catalog import Key
from filaviva.evolution.outline import Outline, outline, vocabulary
from filaviva.service import wait
from filaviva.settings import SamplesGroup
from filaviva_contracts.names import event_of

log = structlog.get_logger("filaviva")

_LARGEST: Final = 64 * 1024
_LARGEST_OUTLINE: Final = 16 * 1024
_ALL: Final = "*"


class Sampling:
    """The samples of one process; without types nothing is kept."""

    def __init__(
        self, app: App, engine: AsyncEngine, group: SamplesGroup, *, pause: float = 5
    ) -> None:
        self._app = app
        self._engine = engine
        self._group = group
        self._pause = pause
        self._next: dict[Key, float] = {}
        self._waiting: dict[Key, tuple[str, str]] = {}
        self._words: dict[Key, frozenset[str]] = {}

    def offer(self, job_type: str, version: int, payload: str) -> None:
        """Take a job's data, if it is time for one of this version."""
        if not self._group.types:
            return
        kind = event_of(job_type)
        if not self._wants(kind) or len(payload) > _LARGEST:
            return
        key, now = (kind, version), time.monotonic()
        if now >= self._next.get(key, 0):
            self._next[key] = now + self._group.every_seconds
            self._waiting[key] = (job_type, payload)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep what was taken until stopped."""
        while not stop.is_set() and self._group.types:
            await wait(stop, self._pause)
            await self.step()

    async def step(self) -> int:
        """Keep once; return how many. Who cannot be kept now is not missed: others come."""
        waiting, self._waiting = self._waiting, {}
        drawn = await asyncio.to_thread(self._drawn, waiting) if waiting else {}
        if not drawn:
            return 0
        try:
            await transact(self._engine, lambda on: samples.keep(on, drawn))
            await transact(
                self._engine, lambda on: samples.trim(on, list(drawn), self._group.per_version)
            )
        except DATABASE_ERRORS as away:
            log.info("samples of contracts are not kept", why=said(away))
            return 0
        return len(drawn)

    def _wants(self, kind: str) -> bool:
        types = self._group.types
        return (kind in types or _ALL in types) and not kind.startswith("filaviva.")

    def _drawn(self, waiting: Mapping[Key, tuple[str, str]]) -> dict[Key, Outline]:
        found = {}
        for key, (job_type, payload) in waiting.items():
            words = self._words.get(key)
            if words is None:
                words = self._words[key] = self._vocabulary(job_type, key)
            found[key] = outline(json.loads(payload), words)
        return {
            key: each for key, each in found.items() if len(json.dumps(each)) <= _LARGEST_OUTLINE
        }

    def _vocabulary(self, job_type: str, key: Key) -> frozenset[str]:
        """Give what the version's own contract names; one that is known by name names nothing."""
        handler = self._app.find(job_type, key[1])
        own = None if handler is None or handler.upcasters else handler.contract
        contract = own or self._app.old_contracts.get(key)
        return frozenset() if contract is None else vocabulary(contract.json_schema())
