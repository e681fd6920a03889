"""The yardstick: what aio-pika and asyncpg reach with a loop that one would write by hand.

It validates nothing, records no status, knows no duplicate and forgets what it cannot do.
"""

import asyncio
import json
import sys
import time
from typing import Any

import aio_pika
import asyncpg
import uvloop

BATCH = 100


class Raw:
    """Consume, insert 100 rows per commit, acknowledge them together; flush at once when idle."""

    def __init__(self, pool: Any, *, effect: bool) -> None:
        self._pool = pool
        self._effect = effect
        self._ready: list[Any] = []
        self._some = asyncio.Event()
        self.done = 0
        self.first = self.last = 0.0

    async def receive(self, message: Any) -> None:
        self._ready.append(message)
        self._some.set()

    async def run(self, total: int) -> None:
        while self.done < total:
            if not self._ready:
                self._some.clear()
                await self._some.wait()
            batch, self._ready = self._ready[:BATCH], self._ready[BATCH:]
            self.first = self.first or time.time()
            await self._flush(batch)
            self.done += len(batch)
            self.last = time.time()

    async def _flush(self, batch: list[Any]) -> None:
        bodies = [json.loads(message.body) for message in batch]
        if self._effect:
            rows = [(m.message_id, b["n"]) for m, b in zip(batch, bodies, strict=True)]
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.executemany(
                    "INSERT INTO bench.effects (key, n) VALUES ($1, $2)", rows
                )
        await batch[-1].ack(multiple=True)


async def main(broker: str, postgres: str, queue: str, total: int, effect: str) -> None:
    pool = await asyncpg.create_pool(postgres, min_size=2, max_size=4)
    connection = await aio_pika.connect(broker)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=500)
        found = await channel.get_queue(queue, ensure=False)
        loop = Raw(pool, effect=effect == "effect")
        started = time.process_time()
        await found.consume(loop.receive)
        await loop.run(total)
        print(json.dumps({
            "seconds": loop.last - loop.first,
            "cpu": time.process_time() - started,
        }), flush=True)  # fmt: skip
    await pool.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]))
