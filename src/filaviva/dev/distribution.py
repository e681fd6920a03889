"""Where a RabbitMQ comes from and how its programs are run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from filaviva.dev.packages import require

_LIBRARY = Path("/usr/lib/rabbitmq")


class Distribution(Protocol):
    """One installed RabbitMQ."""

    def command(self, state: Path, program: str, *words: str) -> list[str]:
        """The command line that becomes this program (no process in between)."""

    def inside(self, state: Path) -> Path:
        """The state folder as the program sees it."""


@dataclass(frozen=True, slots=True)
class SystemPackage:
    """The machine's own rabbitmq-server package."""

    def command(self, state: Path, program: str, *words: str) -> list[str]:
        """Run the package's program in place."""
        del state
        return [str(path_of(program)), *words]

    def inside(self, state: Path) -> Path:
        """The folder itself."""
        return state


def system_package() -> SystemPackage:
    """Find the machine's RabbitMQ; install it when we may."""
    require("rabbitmq-server", present=path_of("rabbitmq-server"))
    return SystemPackage()


def path_of(program: str) -> Path:
    """Where the Debian package keeps a program."""
    # Not /usr/sbin/rabbitmq-server: that one changes the user and the folders.
    return Path("/usr/bin/epmd") if program == "epmd" else _LIBRARY / "bin" / program


def system_version() -> str | None:
    """The version of the machine's RabbitMQ; None when there is none."""
    return version_in(Path("/"))


def version_in(root: Path) -> str | None:
    """The version of the RabbitMQ below a root folder; None when there is none."""
    folders = (root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
    return next((folder.name.partition("-")[2] for folder in folders), None)
