"""/v1/contracts as OpenAPI tells it."""

from datetime import date, datetime
from typing import Any, Final

from pydantic import Field

from filaviva.http import documented
from filaviva_producer.documents import Shape


class ContractPolicy(Shape):
    """How its jobs are repeated; seconds."""

    max_attempts: int
    base: float
    cap: float
    jitter: float
    timeout: float | None


class ContractSummary(Shape):
    """One version of a contract."""

    type: str = Field(examples=["invoice.extract"])
    version: int
    app: str
    queue: str | None = Field(description="null: an event that is not handled under this name")
    event: str | None = Field(description="the event that its jobs handle")
    deprecated: bool
    deprecated_at: datetime | None = Field(description="since when that is said, or true")
    sunset: date | None = Field(description="the day until which its app means to read it")
    read_as: int = Field(description="another version than its own: its data is upcast")
    handled: bool = Field(description="an app has a handler for it")
    policy: ContractPolicy
    links: dict[str, str]


class Contract(ContractSummary):
    """One version of a contract, with what a message must look like."""

    message_schema: dict[str, Any] = Field(alias="schema", description="JSON Schema 2020-12")
    result_schema: dict[str, Any] | None
    examples: list[Any]


class ContractList(Shape):
    """Every contract."""

    items: list[ContractSummary]
    next: str | None


LIST: Final[dict[str, Any]] = {
    "response_model": ContractList,
    "responses": documented(401, 403, 422, 500, 503),
}
ONE: Final[dict[str, Any]] = {
    "response_model": Contract,
    "responses": documented(401, 403, 404, 422, 500, 503),
}
