"""The app that the benchmarks run: one effect a job, and nothing at all."""

from sqlalchemy import BigInteger, Column, DateTime, MetaData, Table, Text, func, insert

from filaviva import App, Context, Contract, Policy

tables = MetaData(schema="bench")
effects = Table(
    "effects",
    tables,
    Column("key", Text, primary_key=True),
    Column("n", BigInteger, nullable=False),
    Column("at", DateTime(timezone=True), server_default=func.clock_timestamp()),
)

INSERT = insert(effects)


class Effect(Contract, type="bench.effect", version=1):
    """Insert one row."""

    n: int


class Noop(Contract, type="bench.noop", version=1):
    """Do nothing."""

    n: int


app = App("bench", tables=tables)


@app.handler(Effect, queue="bench-effect", policy=Policy(base=1, jitter=0))
async def have_effect(job: Effect, ctx: Context) -> None:
    """Have one effect that commits with the completion."""
    ctx.effect(INSERT, {"key": ctx.idempotency_key("effect"), "n": job.n})


@app.handler(Noop, queue="bench-noop", policy=Policy(base=1, jitter=0))
async def do_nothing(job: Noop, ctx: Context) -> None:
    """Do nothing."""
