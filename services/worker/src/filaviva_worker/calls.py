"""Model calls: what each cost, summed per attempt and job.

Money that was spent is spent: a call is recorded even when the lease was lost meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import structlog
from genai_prices import Usage, calc_price
from sqlalchemy.ext.asyncio import AsyncConnection

log = structlog.get_logger("filaviva")

# The three writes lock call, job, attempt: the job before its attempt, as everywhere. A key that is
# there already says that only the answer to an earlier try was lost: its cost is counted too.
_RECORD = """
WITH called AS (
    INSERT INTO filaviva.llm_calls (job_id, attempt, step, provider, model, input_tokens,
        output_tokens, cache_read_tokens, cache_write_tokens, cost_usd, price_source, key)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
    ON CONFLICT (key) DO NOTHING RETURNING job_id),
job AS (
    UPDATE filaviva.jobs SET cost_usd = cost_usd + coalesce($10, 0)
    FROM called WHERE jobs.id = called.job_id RETURNING jobs.id)
UPDATE filaviva.attempts SET cost_usd = attempts.cost_usd + coalesce($10, 0)
FROM job WHERE attempts.job_id = job.id AND attempts.number = $2
"""


@dataclass(frozen=True, slots=True)
class Call:
    """One model call, priced (cost None: no price is known for this model)."""

    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: Decimal | None
    price_source: str | None


async def record(  # noqa: PLR0913 - the parameters of one statement
    connection: AsyncConnection,
    call: Call,
    *,
    key: UUID,
    job_id: UUID,
    attempt: int,
    step: str | None,
) -> None:
    """Write the call to the ledger and add its cost to the attempt and the job; once for a key."""
    await connection.exec_driver_sql(
        _RECORD,
        (
            job_id,
            attempt,
            step,
            call.provider,
            call.model,
            call.input_tokens,
            call.output_tokens,
            call.cache_read_tokens,
            call.cache_write_tokens,
            call.cost_usd,
            call.price_source,
            key,
        ),
    )


def priced(provider: str, model: str, usage: object, *, cost_usd: Decimal | None = None) -> Call:
    """Price a call from the usage that the provider reported.

    `usage` is ours, or a mapping or object in the shape of OpenAI (`prompt_tokens`, or
    `input_tokens` with details) or Anthropic. A `cost_usd` that the provider told is kept.
    """
    tokens = _tokens(usage)
    source: str | None = "provider"
    if cost_usd is None:
        cost_usd, source = _price(provider, model, tokens)
    return Call(provider, model, *tokens, cost_usd, source)


def _price(
    provider: str, model: str, tokens: tuple[int, int, int, int]
) -> tuple[Decimal | None, str | None]:
    fresh, output, cache_read, cache_write = tokens
    usage = Usage(
        input_tokens=fresh + cache_read + cache_write,  # here it means all of them
        output_tokens=output,
        cache_read_tokens=cache_read or None,
        cache_write_tokens=cache_write or None,
    )
    try:
        price = calc_price(usage, model_ref=model, provider_id=provider)
    except (LookupError, ValueError) as unknown:
        log.warning(
            "no price is known for this model", provider=provider, model=model, why=str(unknown)
        )
        return None, None
    return price.total_price, "genai-prices"


def _tokens(usage: object) -> tuple[int, int, int, int]:
    """Count each token once: fresh input, output, read from a cache, written to one."""
    told = _number(usage, "prompt_tokens", "input_tokens")
    output = _number(usage, "completion_tokens", "output_tokens")
    # OpenAI tells cached tokens as a part of the input, the others beside it.
    cached = _number(_of(usage, "prompt_tokens_details", "input_tokens_details"), "cached_tokens")
    cache_read = _number(usage, "cache_read_input_tokens", "cache_read_tokens")
    cache_write = _number(usage, "cache_creation_input_tokens", "cache_write_tokens")
    return max(0, told - cached), output, cache_read or cached, cache_write


def _number(source: object, *names: str) -> int:
    found = _of(source, *names)
    return max(0, found) if isinstance(found, int) else 0


def _of(source: object, *names: str) -> Any:
    for name in names:
        found = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        if found is not None:
            return found
    return None
