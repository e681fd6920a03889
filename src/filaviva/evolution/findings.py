"""What a check finds: verdicts on changes, and what is not as it should be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from filaviva.evolution.catalog import Key, Part
from filaviva.evolution.change import Change, Mode


@dataclass(frozen=True, slots=True)
class Released:
    """A schema that counts, and where it is: a file, or the registry of a database."""

    key: Key
    part: Part
    where: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One change of a released version. `reasons` are what refuses it; empty: it is safe."""

    key: Key
    part: Part
    against: str  # where the schema is that was released
    mode: Mode
    change: Change
    reasons: tuple[str, ...] = ()
    waived: str | None = None

    @property
    def refused(self) -> bool:
        return bool(self.reasons) and self.waived is None

    @property
    def next_step(self) -> str | None:
        """Say what to do instead."""
        kind, version = self.key
        if not self.refused:
            return None
        if self.part == "result":
            return f"keep what v{version} returns, and return this from a version {version + 1}"
        return (
            f"take it back, and make version {version + 1}: filaviva contracts new-version {kind}"
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be: what was found, what is expected, the next step."""

    key: Key | None  # None: of no version, but of what is recorded beside them
    found: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Report:
    """All that a check found."""

    checked: Sequence[Key]
    drafts: Sequence[Key]
    judged: Sequence[Judged]
    findings: Sequence[Finding]
    unfrozen: Sequence[str] = ()  # recorded cases that are not released yet

    @property
    def passes(self) -> bool:
        return not self.findings and not any(each.refused for each in self.judged)
