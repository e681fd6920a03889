"""The bodies of the dlq-handler's requests."""

from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from filaviva.operations.dead_letters import Filter
from filaviva.outcome import ErrorClass
from filaviva.words import DeadReason

MOST_IDS = 1000


class Body(BaseModel):
    """Strict: an unknown member is a mistake, not a wish that goes unheard."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class FilterBody(Body):
    """Which letters are meant; at least one thing must be said."""

    type: str | None = Field(default=None, max_length=300)
    error_class: ErrorClass | None = None
    reason: DeadReason | None = None
    group: UUID | None = None

    @model_validator(mode="after")
    def _not_everything(self) -> "FilterBody":
        if self.model_fields_set == set() or not any(self.model_dump().values()):
            raise ValueError("expected at least one of type, errorClass, reason, group")
        return self


class ScopeBody(Body):
    """Exactly one of: ids, a group, a filter."""

    ids: list[UUID] | None = Field(default=None, min_length=1, max_length=MOST_IDS)
    group: UUID | None = None
    filter: FilterBody | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> "ScopeBody":
        if sum(value is not None for value in (self.ids, self.group, self.filter)) != 1:
            raise ValueError("expected exactly one of ids, group, filter")
        return self

    def letters(self) -> Filter:
        """Give the filter that it stands for."""
        if self.ids is not None:
            return Filter(ids=tuple(sorted(set(self.ids))))
        if self.filter is None:
            return Filter(group=self.group)
        wanted = self.filter
        return Filter(
            group=wanted.group,
            type=wanted.type,
            error_class=wanted.error_class,
            reason=wanted.reason,
        )


class ReplayBody(Body):
    """A replay as it is asked for; the patch is checked where it is applied."""

    scope: ScopeBody
    patch: Any = None
    rate_per_second: float | None = None
    canary: int | None = None
    reason: str = Field(min_length=1, max_length=1000)


class DiscardBody(Body):
    """Why a letter needs nothing any more."""

    reason: str = Field(min_length=1, max_length=1000)


class SnoozeBody(Body):
    """How long to be silent."""

    seconds: float
    reason: str | None = Field(default=None, max_length=1000)


class ResolveBody(Body):
    """Why the episode is over."""

    reason: str | None = Field(default=None, max_length=1000)
