"""Ask a model to read one document: one chat completion with JSON output."""

from dataclasses import dataclass

from filaviva import InvalidOutput, Refused
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import ResponseFormat
from pydantic import ValidationError

from invoices.models import Invoice
from invoices.provider import Provider

INSTRUCTION = (
    "You extract one Brazilian fiscal document (NF-e, NFC-e, CT-e or CT-e OS). Copy figures "
    "exactly as text with two decimals; what the document does not state is 0.00 or null. "
    "Lines are the products, or the components of the transport price."
)

SHAPE: ResponseFormat = {
    "type": "json_schema",
    "json_schema": {"name": "invoice", "strict": True, "schema": Invoice.model_json_schema()},
}


@dataclass(frozen=True, slots=True)
class Origin:
    """For whom a call is made; sent as headers so that the provider can tell repeats."""

    job_id: str
    step: str
    idempotency_key: str

    def headers(self) -> dict[str, str]:
        """Return the extra headers of the call."""
        return {
            "Idempotency-Key": self.idempotency_key,
            "X-Job-Id": self.job_id,
            "X-Step": self.step,
        }


class Reader:
    """One provider, ready to read documents."""

    def __init__(self, provider: Provider) -> None:
        self._model = provider.model
        # The library's own retries are off: Filaviva repeats, where it is seen, spaced and paid.
        self._client = AsyncOpenAI(
            base_url=provider.base_url,
            api_key=provider.api_key,
            timeout=provider.timeout,
            max_retries=0,
        )

    async def ask(self, document: str, origin: Origin) -> ChatCompletion:
        """Return the provider's answer as it came; it has been paid for, whatever it says."""
        return await self._client.chat.completions.create(
            model=self._model,
            messages=[
                {"role": "system", "content": INSTRUCTION},
                {"role": "user", "content": document},
            ],
            response_format=SHAPE,
            temperature=0,
            extra_headers=origin.headers(),
        )

    async def close(self) -> None:
        """Close the connections to the provider."""
        await self._client.close()


def invoice_in(answer: ChatCompletion) -> Invoice:
    """Return the invoice of an answer; raise Refused or InvalidOutput if it holds none."""
    choice = answer.choices[0]
    if choice.message.refusal:
        raise Refused(f"the model declined: {choice.message.refusal}")
    if choice.finish_reason == "length":
        raise InvalidOutput("the model's answer was cut off at its length limit; expected all")
    try:
        return Invoice.model_validate_json(choice.message.content or "")
    except ValidationError as outside:
        raise InvalidOutput(
            f"the model's answer is outside its schema: {_flaws(outside)}"
        ) from None


def _flaws(outside: ValidationError) -> str:
    """Name the first flaws only: a dead letter is read by a person."""
    flaws = outside.errors(include_url=False, include_input=False)
    shown = [f"/{'/'.join(str(part) for part in flaw['loc'])} {flaw['msg']}" for flaw in flaws[:3]]
    more = f" and {len(flaws) - 3} more" if len(flaws) > len(shown) else ""
    return "; ".join(shown) + more
