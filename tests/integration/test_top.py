"""`filaviva top` against a real database, printed once and live on a terminal."""

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fixtures.amqp import Proxy
from fixtures.retrying import Jobs
from fixtures.waiting import until

pytestmark = pytest.mark.usefixtures("contract")

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture
async def contract(jobs: Jobs) -> None:
    await jobs.all(
        "INSERT INTO filaviva.contracts (type, version, app, queue, schema)"
        " VALUES ('invoice.extract', 1, 'shop', 'llm', '{}')"
    )


def environment(database: str, **more: str) -> dict[str, str]:
    # COLUMNS and LINES, which pytest-xdist sets, would count for more than the terminal's size.
    others = ("FILAVIVA_", "NO_COLOR", "COLUMNS", "LINES")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    return {**kept, "TERM": "xterm-256color", "FILAVIVA_POSTGRES__URL": database, **more}


COMMAND = (sys.executable, "-m", "filaviva.cli", "top")


async def printed(database: str, cwd: Path, *words: str, **more: str) -> tuple[int, str, str]:
    running = await asyncio.create_subprocess_exec(
        *COMMAND,
        *words,
        cwd=cwd,
        env=environment(database, **more),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await running.communicate()
    return running.returncode or 0, out.decode(), err.decode()


class Terminal:
    """A terminal of this size on which the page is live."""

    def __init__(self, keyboard: int, process: asyncio.subprocess.Process) -> None:
        self._keyboard = keyboard
        self.process = process
        self.written = ""

    def read(self) -> None:
        try:
            self.written += os.read(self._keyboard, 65536).decode(errors="replace")
        except OSError:  # its last writer is gone
            asyncio.get_running_loop().remove_reader(self._keyboard)

    @property
    def page(self) -> str:
        """What was drawn last, in plain text."""
        return _ESCAPE.sub("", self.written.rpartition("\x1b[H")[2])

    async def shows(self, text: str) -> None:
        try:
            await until(lambda: text in self.page)
        except AssertionError as never:
            raise AssertionError(f"never shown: {text!r}, but {self.page!r}") from never

    def press(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())


@asynccontextmanager
async def live(
    database: str, cwd: Path, *words: str, size: tuple[int, int] = (40, 120), **more: str
) -> AsyncIterator[Terminal]:
    keyboard, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    before = termios.tcgetattr(theirs)
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--interval=0.5",
        *words,
        cwd=cwd,
        env=environment(database, **more),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    terminal = Terminal(keyboard, process)
    asyncio.get_running_loop().add_reader(keyboard, terminal.read)
    try:
        yield terminal
        async with asyncio.timeout(20):
            assert await process.wait() == 0
        await until(lambda: terminal.written.count(_LEAVE) == terminal.written.count(_ENTER) == 1)
        assert termios.tcgetattr(theirs) == before
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(keyboard)
        os.close(keyboard)
        os.close(theirs)


async def test_it_is_printed_once_where_there_is_no_terminal(
    database: str, jobs: Jobs, tmp_path: Path
) -> None:
    job = await jobs.queued(queued_at="now() - interval '2 minutes'")

    code, out, err = await printed(database, tmp_path)

    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert "! queue llm: 1 wait, the oldest for 2m" in out
    assert re.search(rf"waiting +2m\d\ds  {job} invoice.extract on llm", out)


async def test_programs_get_one_json_document(
    database: str, vhost: str, jobs: Jobs, tmp_path: Path
) -> None:
    await jobs.queued(queued_at="now() - interval '2 minutes'")

    code, out, _ = await printed(
        database, tmp_path, "--json", "--queue=llm", FILAVIVA_BROKER__URL=vhost
    )
    seen = json.loads(out)

    assert code == 0
    assert [(q["queue"], q["waiting"]["number"]) for q in seen["queues"]] == [("llm", 1)]
    assert [each["where"] for each in seen["stuck"]] == ["queue llm"]
    assert (seen["broker"], seen["brokerAway"]) == ({}, None)


async def test_a_database_that_is_away_is_an_error_where_it_is_printed_once(
    tmp_path: Path,
) -> None:
    code, out, err = await printed("postgresql://x@127.0.0.1:1/x", tmp_path, "--once")

    assert (code, out) == (5, "")
    assert "does not answer" in err


async def test_the_page_follows_what_happens_and_leaves_the_terminal_as_it_was(
    database: str, jobs: Jobs, tmp_path: Path
) -> None:
    async with live(database, tmp_path) as terminal:
        await terminal.shows("OLDEST  nothing waits")
        job = await jobs.queued()
        await terminal.shows(str(job))
        terminal.press("s")
        await terminal.shows("by waiting")
        terminal.press("q")


async def test_control_c_leaves_as_cleanly(database: str, tmp_path: Path) -> None:
    async with live(database, tmp_path, size=(8, 30)) as terminal:
        await terminal.shows("no room for")
        terminal.process.send_signal(signal.SIGINT)


async def test_without_colours_there_are_none(database: str, tmp_path: Path) -> None:
    async with live(database, tmp_path, NO_COLOR="1") as terminal:
        await terminal.shows("RATES")
        terminal.press("q")

    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", terminal.written)


async def test_a_database_and_a_broker_that_go_away_come_back(
    database: str, vhost: str, jobs: Jobs, tmp_path: Path
) -> None:
    to_database, to_broker = Proxy(database), Proxy(vhost)
    await to_database.open()
    await to_broker.open()
    job = await jobs.queued()

    async with live(to_database.url, tmp_path, FILAVIVA_BROKER__URL=to_broker.url) as terminal:
        await terminal.shows(str(job))
        to_database.close()
        to_broker.close()
        await terminal.shows("NO DATABASE; what follows is")
        await terminal.shows("NO BROKER")
        assert str(job) in terminal.page
        await to_database.open()
        await to_broker.open()
        await until(lambda: "NO " not in terminal.page and str(job) in terminal.page)
        terminal.press("q")
    to_database.close()
    to_broker.close()


@pytest.mark.soak  # the patience of several looks
async def test_a_server_that_falls_silent_is_as_good_as_away(
    database: str, jobs: Jobs, tmp_path: Path
) -> None:
    job = await jobs.queued()

    async with Proxy(database) as proxy, live(proxy.url, tmp_path) as terminal:
        await terminal.shows(str(job))
        proxy.silence()
        await terminal.shows("NO DATABASE; what follows is")
        assert str(job) in terminal.page
        proxy.resume()
        await until(lambda: "NO DATABASE" not in terminal.page and str(job) in terminal.page)
        terminal.press("q")


async def test_a_database_of_another_release_is_named_with_the_next_step(
    database: str, jobs: Jobs, tmp_path: Path
) -> None:
    await jobs.all("ALTER TABLE filaviva.workers DROP COLUMN lately")

    async with live(database, tmp_path) as terminal:
        await terminal.shows("is not set up for this release")
        await terminal.shows("`filaviva setup`")
        terminal.press("q")
