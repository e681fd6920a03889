"""What the sandbox charged, and to whom: the witness that nothing was paid for twice."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from genai_prices import Usage, calc_price
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


@dataclass(frozen=True, slots=True)
class Caller:
    """What a client's headers say about the call."""

    idempotency_key: str | None = None
    job_id: str | None = None
    step: str | None = None


class Call(BaseModel):
    """One call that reached the sandbox, charged or not."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True, frozen=True
    )

    number: int
    at: datetime
    document: str | None
    model: str
    behaviour: str
    idempotency_key: str | None
    job_id: str | None
    step: str | None
    input_tokens: int
    output_tokens: int
    charged_usd: Decimal
    # This key had paid for an answer before this call.
    key_charged_before: bool

    @property
    def charged(self) -> bool:
        """True if an answer was generated: a refused call is free."""
        return self.output_tokens > 0


class Ledger:
    """Every call in the order of its arrival in the books."""

    def __init__(self) -> None:
        self._calls: list[Call] = []

    def enter(  # noqa: PLR0913 - one argument for each column
        self,
        caller: Caller,
        *,
        document: str | None,
        model: str,
        behaviour: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> Call:
        """Write one call down; no output tokens means that nothing is charged."""
        call = Call(
            number=len(self._calls) + 1,
            at=datetime.now(UTC),
            document=document,
            model=model,
            behaviour=behaviour,
            idempotency_key=caller.idempotency_key,
            job_id=caller.job_id,
            step=caller.step,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            charged_usd=price(model, input_tokens, output_tokens),
            key_charged_before=self._paid(caller.idempotency_key),
        )
        self._calls.append(call)
        return call

    def calls(self) -> list[Call]:
        """Return all calls, oldest first."""
        return list(self._calls)

    def total(self) -> Decimal:
        """Return what was charged in all, in USD."""
        return sum((call.charged_usd for call in self._calls), Decimal(0))

    def _paid(self, key: str | None) -> bool:
        return key is not None and any(c.charged and c.idempotency_key == key for c in self._calls)


def price(model: str, input_tokens: int, output_tokens: int) -> Decimal:
    """Return what the real model of this name would cost; 0 for a name without a public price."""
    if not output_tokens:
        return Decimal(0)
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    try:
        return calc_price(usage, model_ref=model, provider_id="openai").total_price
    except LookupError:
        return Decimal(0)
