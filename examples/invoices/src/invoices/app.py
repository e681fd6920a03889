"""The app: one contract, one handler. `FILAVIVA_APP=invoices.app:app`."""

import os
from functools import cache

from filaviva import App, Context, InvalidOutput, Policy

from invoices.checking import DoesNotAddUp, check_totals
from invoices.contracts import ExtractInvoice
from invoices.fetching import fetch
from invoices.model_call import Origin, Reader, invoice_in
from invoices.models import Invoice
from invoices.provider import Provider
from invoices.storage import store, tables

# Pauses of 1, 2, 4 … s; a provider that asks for more by Retry-After gets more.
POLICY = Policy(max_attempts=4, base=1, cap=30, jitter=0.5, timeout=120)

app = App("invoices", tables=tables)


@app.handler(ExtractInvoice, queue="llm", policy=POLICY)
async def extract(job: ExtractInvoice, ctx: Context) -> Invoice:
    """Fetch a document, have a model read it, check that it adds up, and store it once."""
    url = str(job.document_url)
    text = await ctx.step("fetch", fetch, url)
    await ctx.progress(1, 4, "fetched")
    invoice = await ctx.step("read", read, text, ctx)
    await ctx.progress(2, 4, "read")
    await ctx.step("check", check, invoice)
    await ctx.progress(3, 4, "checked")
    key = ctx.idempotency_key("store")
    async with ctx.transaction() as db:
        await db.execute(store(invoice, key=key, job_id=str(ctx.job_id), document_url=url))
    await ctx.progress(4, 4, "stored")
    return invoice


async def read(text: str, ctx: Context) -> Invoice:
    """Have the model read the document; what it cost is recorded before its answer is judged."""
    origin = Origin(str(ctx.job_id), "read", ctx.idempotency_key("read"))
    answer = await reader().ask(text, origin)
    await ctx.record_call(provider="openai", model=answer.model, usage=answer.usage)
    return invoice_in(answer)


async def check(invoice: Invoice) -> str:
    """Return the total once it adds up: a misread figure must not be stored."""
    try:
        return str(check_totals(invoice))
    except DoesNotAddUp as wrong:
        raise InvalidOutput(f"the model's answer does not add up: {wrong}") from wrong


@cache
def reader() -> Reader:
    """Return this process's connection to the provider; made at the first call, not at import."""
    return Reader(Provider.from_environment(os.environ))
