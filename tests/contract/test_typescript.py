"""The TypeScript example passes the recorded set of wire messages, on real servers."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from fixtures.conformance import recorded
from fixtures.typescript import ROOT, build

pytestmark = pytest.mark.node
CASES = [one for name in ("reading", "inbox", "publishing") for one in recorded(f"{name}.json")]


async def run(command: list[str], folder: Path, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_it_reads_takes_once_and_publishes_as_the_set_says(
    typescript: Path, vhost: str, empty_database: str
) -> None:
    told = await run(["npm", "test"], typescript, BROKER=vhost, DATABASE=empty_database)

    counts = dict(re.findall(r"(pass|fail|skipped) (\d+)", told))
    assert counts == {"pass": str(len(CASES) + 1), "fail": "0", "skipped": "0"}, told


@pytest.mark.soak  # 54 MB of packages
@pytest.mark.timeout(300)
async def test_asyncapi_s_own_parser_finds_nothing_wrong() -> None:
    build("parser")
    committed = [ROOT / "contracts/asyncapi.yaml", *ROOT.glob("examples/*/asyncapi.yaml")]

    said = await run(["node", "check.js", *map(str, committed)], ROOT / "tests/asyncapi")

    assert said == ""
