"""Debian packages the embedded stack needs, installed when we may."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filaviva.dev.lock import waiting_lock

_POLICY = Path("/usr/sbin/policy-rc.d")


class Missing(Exception):
    """Something the stack needs is not on this machine and we cannot bring it here."""


def cache() -> Path:
    """The folder for what outlives a clone."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(chosen) if chosen else Path.home() / ".cache") / "filaviva"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def require(package: str, *, present: Path | str) -> None:
    """Make sure a program is there: install its package when we are root on Debian/Ubuntu."""
    if _exists(present):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"{package} is not installed: run `sudo apt-get install {package}`")
    with waiting_lock(cache() / "apt.lock"):
        if not _exists(present):
            _install(package)
    if not _exists(present):
        raise Missing(f"{package} was installed, but {present} is still not there")


def _exists(present: Path | str) -> bool:
    return present.exists() if isinstance(present, Path) else shutil.which(present) is not None


def _install(package: str) -> None:
    options = ["-qq", "-o", "DPkg::Lock::Timeout=300"]
    install = ["apt-get", *options, "install", "-y", "--no-install-recommends", package]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _nothing_started():
        # Without lists, or with old ones, the first try fails; the lists are then read once.
        for command in (install, ["apt-get", *options, "update"], install):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode == 0 and command is install:
                return
    raise Missing(f"installing {package} failed: {done.stderr.strip()[-500:]}")


@contextmanager
def _nothing_started() -> Iterator[None]:
    """Keep the package's installation from starting a system service."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            _POLICY.unlink()
