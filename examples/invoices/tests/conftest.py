"""A real sandbox process on a free port, and a way to talk to it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

PATIENCE = 30.0


@dataclass(frozen=True)
class SandboxClient:
    """Where the sandbox is, how to plan its faults, and the calls since the test began."""

    url: str
    pid: int
    http: httpx2.Client
    before: int = 0

    def plan(self, document: str, *faults: str) -> httpx2.Response:
        return self.http.post("/faults", json={"document": document, "faults": list(faults)})

    def calls(self) -> list[dict[str, Any]]:
        return list(self.http.get("/ledger").json()["calls"][self.before :])


@pytest.fixture(scope="session")
def shared_sandbox(tmp_path_factory) -> Iterator[SandboxClient]:
    with running(tmp_path_factory.mktemp("sandbox") / "sandbox.json") as client:
        yield client


@pytest.fixture
def sandbox(shared_sandbox) -> SandboxClient:
    """The shared sandbox, with nothing planned."""
    shared_sandbox.http.delete("/faults")
    before = len(shared_sandbox.calls())
    return SandboxClient(shared_sandbox.url, shared_sandbox.pid, shared_sandbox.http, before)


@pytest.fixture
def own_sandbox(tmp_path) -> Iterator[SandboxClient]:
    """A sandbox that the test may end."""
    with running(tmp_path / "sandbox.json") as client:
        yield client


@contextmanager
def running(state: Path) -> Iterator[SandboxClient]:
    command = [sys.executable, "-m", "invoices.sandbox", "--state", str(state)]
    with subprocess.Popen(command, env=os.environ | {"PYTHONUNBUFFERED": "1"}) as process:
        try:
            place = announced(state, process)
            with httpx2.Client(base_url=place["url"], timeout=PATIENCE) as http:
                yield SandboxClient(place["url"], place["pid"], http)
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)


def announced(state: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait until the sandbox has written its address."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if state.exists():
            place: dict[str, Any] = json.loads(state.read_text())
            return place
        assert process.poll() is None, "the sandbox ended before it was ready"
        time.sleep(0.02)
    raise AssertionError(f"the sandbox wrote nothing to {state} within {PATIENCE} s")
