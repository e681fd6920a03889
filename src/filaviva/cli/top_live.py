"""The page of `filaviva top` on a terminal: drawn again and again, left as it was found."""

import asyncio
import logging
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group
from rich.live import Live

from filaviva.cli.top_grid import page
from filaviva.cli.top_looking import Looking
from filaviva.cli.top_view import SORTS, header, sections

_LOCAL: Final = 3  # where termios keeps the local modes
_CHARACTERS: Final = 6  # and the control characters
_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Screen:
    """One page, and what the keys have made of it."""

    def __init__(self, looking: Looking, console: Console, *, interval: float, sort: str) -> None:
        self._looking = looking
        self._console = console
        self._interval = interval
        self._sort = sort
        self._again = asyncio.Event()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Show what there is until somebody has seen enough."""
        loop = asyncio.get_running_loop()
        for each in _ENDS:
            loop.add_signal_handler(each, self._end)
        loop.add_signal_handler(signal.SIGWINCH, self._again.set)
        live = Live(console=self._console, screen=True, auto_refresh=False)
        with _quiet(), _keys(self._key), live:
            await self._show(live)

    async def _show(self, live: Live) -> None:
        looking = asyncio.create_task(self._look())
        try:
            while not self._stop.is_set():
                self._again.clear()
                live.update(self._page(), refresh=True)
                await self._again.wait()
        finally:
            looking.cancel()
            await asyncio.wait({looking})
        if not looking.cancelled():
            looking.result()

    async def _look(self) -> None:
        try:
            while True:
                await self._looking.try_to()
                self._again.set()
                await asyncio.sleep(self._looking.rest(self._interval))
        finally:
            self._end()

    def _page(self) -> Group:
        width, height = self._console.size
        every = self._looking.rest(self._interval)
        seen = self._looking.seen
        head = header(seen, every=every, sort=self._sort, live=True)
        return Group(*page(head, sections(seen, self._sort), width, height))

    def _key(self, key: str) -> None:
        match key:
            case "q" | "Q" | "\x03":
                self._end()
            case "s":
                self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
                self._again.set()

    def _end(self) -> None:
        self._stop.set()
        self._again.set()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep log lines off the page: what is wrong stands on it."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _keys(pressed: Callable[[str], None]) -> Iterator[None]:
    """Hear of each key at once, unseen; without a keyboard there are none."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(keyboard)
    now = termios.tcgetattr(keyboard)
    now[_LOCAL] &= ~(termios.ICANON | termios.ECHO)
    # A page that is stopped would stay on the screen of the shell.
    now[_CHARACTERS][termios.VSUSP] = b"\0"
    termios.tcsetattr(keyboard, termios.TCSADRAIN, now)

    def heard() -> None:
        for key in _read(keyboard):
            pressed(key)

    loop.add_reader(keyboard, heard)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _read(keyboard: int) -> str:
    try:
        return os.read(keyboard, 64).decode(errors="replace") or "q"
    except OSError:  # the terminal is gone
        return "q"
