"""Run the demonstration: `python -m invoices.demo`. Exit 0 only if every fact holds."""

import argparse
import asyncio
import shutil
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from filaviva.dev import slack
from filaviva.dev.readiness import NotReady
from rich.console import Console

from invoices.demo.api import Api, Provider
from invoices.demo.facts import Fact, check
from invoices.demo.journey import Journey
from invoices.demo.screen import Screen
from invoices.demo.stack import (
    DemoFailed,
    Stack,
    alive,
    belonging_to,
    fresh,
    only_one,
    sandbox,
    stack,
)
from invoices.demo.truth import connected
from invoices.demo.watching import Watch


def main() -> int:
    """Run all of it; return the exit code."""
    options = _options()
    console = Console()
    screen = Screen(console)
    try:
        with only_one(options.state):
            return asyncio.run(_run(options.state.absolute(), screen))
    except (DemoFailed, NotReady) as failed:
        console.print(f"\nThe demonstration stopped: {failed}", style="red", markup=False)
        console.print(f"Logs are in {options.state}.", markup=False)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("\nInterrupted; everything that was started has been stopped.")
        return 130


async def _run(folder: Path, screen: Screen) -> int:
    started = time.monotonic()
    _stop_on_sigterm()
    await fresh(folder)
    facts, pids = await _demonstrate(folder, screen)
    left = sorted({pid for pid in pids if alive(pid)} | belonging_to(folder))
    facts.append(
        Fact(
            "everything that was started has been stopped",
            f"still running: {left}" if left else f"{len(pids)} processes gone",
            not left,
        )
    )
    screen.facts(facts)
    return _verdict(facts, folder, screen, time.monotonic() - started)


async def _demonstrate(folder: Path, screen: Screen) -> tuple[list[Fact], set[int]]:
    screen.chapter("Filaviva: ten real fiscal documents, and what can go wrong")
    async with AsyncExitStack() as running:
        inbox = running.enter_context(slack.stand_in())
        address = await running.enter_async_context(sandbox(folder))
        with screen.waiting("starting PostgreSQL, RabbitMQ and all services"):
            starting = stack(folder, webhook=inbox.url, provider=address)
            here = await running.enter_async_context(starting)
        return await _journey(here, address, inbox, screen)


async def _journey(
    here: Stack, address: str, inbox: slack.Inbox, screen: Screen
) -> tuple[list[Fact], set[int]]:
    at = here.read()
    screen.say(f"API {at['api']}, dead letters {at['dlq']}, sandbox {address}")
    async with (
        Api(producer=at["api"], dlq=at["dlq"], key=at["apiKey"]) as api,
        Provider(address) as provider,
        connected(at["postgres"]) as truth,
    ):
        evidence = await Journey(api, provider, truth, inbox, screen, Watch(screen)).play()
    return check(evidence), here.pids() | belonging_to(here.state)


def _verdict(facts: list[Fact], folder: Path, screen: Screen, seconds: float) -> int:
    wrong = sum(not fact.holds for fact in facts)
    if wrong:
        screen.say(f"{wrong} of {len(facts)} facts do not hold; logs are in {folder}")
        return 1
    screen.say(f"all {len(facts)} facts hold; {seconds:.0f} s in all")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _stop_on_sigterm() -> None:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m invoices.demo", description=__doc__)
    parser.add_argument("--state", type=Path, default=Path(".filaviva/demo"), help="its folder")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
