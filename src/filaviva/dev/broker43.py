"""RabbitMQ 4.3 in a Debian root of its own, for machines whose package is older."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from filaviva.dev.distribution import path_of, version_in
from filaviva.dev.lock import waiting_lock
from filaviva.dev.packages import Missing, cache, require

VERSION = "4.3"
_SUITES = ("sid", "testing")
_PRIVATE = ("unshare", "--mount", "--propagation", "private")

# The mounts live in a private namespace and end with the process: neither a killed run
# nor `rm -rf` of the root can ever reach the machine's /proc, /dev or a state folder.
_ENTER = """
set -e
root=$1 state=$2
shift 2
mount -t proc proc "$root/proc"
mount --bind "$state" "$root/state"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True, slots=True)
class DebianRoot:
    """A root file system that holds RabbitMQ 4.3."""

    root: Path

    def command(self, state: Path, program: str, *words: str) -> list[str]:
        """Run the program inside the root; every step execs the next."""
        enter = [*_PRIVATE, "sh", "-c", _ENTER, "sh", str(self.root), str(state)]
        return [*enter, str(path_of(program)), *words]

    def inside(self, state: Path) -> Path:
        """The fixed place where the root has the state folder."""
        del state
        return Path("/state")


def debian_root() -> DebianRoot:
    """Find the root; build it when it is missing."""
    root = _place()
    with waiting_lock(cache() / "rabbitmq.lock"):
        if version_in(root) is None:
            _build(root)
    return DebianRoot(root)


def built() -> bool:
    """Tell whether the root is there already."""
    return version_in(_place()) is not None


def _place() -> Path:
    return cache() / f"rabbitmq-{VERSION}"


def _build(root: Path) -> None:
    """Build the root beside its place and rename it once it is whole and of the right version."""
    if os.geteuid() != 0:
        raise Missing(
            f"RabbitMQ {VERSION} needs a root of its own: run once as root, or use docker"
        )
    require("debootstrap", present="debootstrap")
    found = []
    for suite in _SUITES:
        beside = root.with_name(f"{root.name}.building")
        shutil.rmtree(beside, ignore_errors=True)
        _bootstrap(suite, beside)
        version = version_in(beside)
        if version is not None and version.startswith(f"{VERSION}."):
            beside.rename(root)
            return
        found.append(f"{suite} has {version}")
        shutil.rmtree(beside)
    raise Missing(f"no RabbitMQ {VERSION} in Debian any more: {', '.join(found)}")


def _bootstrap(suite: str, target: Path) -> None:
    include = "--include=rabbitmq-server"
    mirror = _mirror()
    command = ["debootstrap", "--variant=minbase", include, suite, str(target), *mirror]
    done = subprocess.run([*_PRIVATE, *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"building RabbitMQ {VERSION} failed: {done.stdout.strip()[-500:]}")
    (target / "state").mkdir()
    (target / "etc/hosts").write_text("127.0.0.1 localhost\n")
    for archive in (target / "var/cache/apt/archives").glob("*.deb"):
        archive.unlink()


def _mirror() -> list[str]:
    """The archive this machine installs from, if it is Debian's."""
    query = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return [uri for uri in done.stdout.split() if "security" not in uri][:1]
