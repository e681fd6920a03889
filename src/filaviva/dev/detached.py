"""A stack that another program runs for a while: `filaviva dev --detach`, and its end."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from filaviva.dev.child import tail
from filaviva.dev.readiness import NotReady

# A first start may install the broker.
PATIENCE = 240.0


@asynccontextmanager
async def detached(
    folder: Path, *, app: str, workers: int, added: Mapping[str, str]
) -> AsyncIterator[Path]:
    """Run the embedded stack while the block does; yield its dev.json. NotReady says why not."""
    words = ("--app", app, "--workers", str(workers), "--state", str(folder), "--detach")
    try:
        await _filaviva("dev", *words, added=added, log=folder / "start.log")
        yield folder / "dev.json"
    finally:
        await asyncio.shield(stop(folder))


async def stop(folder: Path) -> None:
    """End the stack of this folder; nothing to do if none runs."""
    words = ("stop", "--state", str(folder))
    await _filaviva("dev", *words, added={}, log=folder / "stop.log")


async def _filaviva(*words: str, log: Path, added: Mapping[str, str]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "filaviva.cli", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **added},
            # Ctrl-C is for us: `dev stop` must go on, and `dev` is told by us alone.
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(PATIENCE):
            status = await process.wait()
    except asyncio.CancelledError:
        await _end(process, by=signal.SIGINT)
        raise
    except TimeoutError:
        process.kill()
        raise NotReady(f"`filaviva {' '.join(words)}` took over {PATIENCE:.0f} s") from None
    if status != 0:
        said = tail(log, lines=15)
        raise NotReady(f"`filaviva {' '.join(words)}` ended with {status}:\n{said}")


async def _end(process: asyncio.subprocess.Process, *, by: signal.Signals) -> None:
    if process.returncode is not None:
        return
    process.send_signal(by)
    try:
        async with asyncio.timeout(100):  # as long as `dev` gives what it has started
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
