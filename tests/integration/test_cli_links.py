"""Links to status pages from the command line."""

import asyncio
import time
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest

from filaviva.operations.catalogue_links import CatalogueLinks
from filaviva.operations.links import Links
from filaviva_producer.page.visit import read_link
from fixtures.command_line import CommandLine
from fixtures.dying import Morgue

SECRET = "a secret of more than thirty-two characters"
DATA = '{"url": "a"}'


@pytest.fixture
def cli(database: str) -> CommandLine:
    return CommandLine(FILAVIVA_POSTGRES__URL=database, FILAVIVA_LINKS__SECRET=SECRET)


async def test_a_link_opens_one_job_for_so_long_and_may_be_for_looking_only(
    cli: CommandLine, morgue: Morgue
) -> None:
    await morgue.contract({"type": "object"})
    kept = await asyncio.to_thread(
        cli, "jobs", "submit", "invoice.extract", "--data", DATA, "--json"
    )
    job_id = str(kept.json["jobId"])

    full = await asyncio.to_thread(
        cli, "jobs", "link", job_id, "--expires", "2h", "--base-url", "https://jobs.example/x/"
    )
    look = await asyncio.to_thread(cli, "jobs", "link", job_id, "--view-only", "--json")
    absent = await asyncio.to_thread(cli, "jobs", "link", str(UUID(int=7)))
    wrong = await asyncio.to_thread(cli, "jobs", "link", job_id, "--expires", "soon")

    assert full.out.startswith(f"https://jobs.example/x/jobs/{job_id}?")
    query = {name: value for name, (value,) in parse_qs(urlsplit(full.out.strip()).query).items()}
    link, signature = read_link(UUID(job_id), query)
    assert Links(SECRET).signed(link, signature)
    assert link.can == "cancel.retry"
    assert abs(link.expires - time.time() - 7200) < 120
    assert "can=view&" in look.json["url"]
    assert look.json["expiresAt"].endswith("Z")
    assert (absent.code, wrong.code) == (3, 2)


async def test_without_a_secret_it_says_which_variable_is_missing(database: str) -> None:
    cli = CommandLine(FILAVIVA_POSTGRES__URL=database)
    short = CommandLine(FILAVIVA_POSTGRES__URL=database, FILAVIVA_LINKS__SECRET=SECRET[:5])

    missing = await asyncio.to_thread(cli, "jobs", "link", str(UUID(int=7)))
    wrong = await asyncio.to_thread(short, "jobs", "link", str(UUID(int=7)))

    assert missing.code == wrong.code == 2
    assert "FILAVIVA_LINKS__SECRET" in missing.err
    assert "32 characters or more" in wrong.err
    assert SECRET[:5] not in wrong.err


async def test_a_link_opens_the_page_of_contracts_of_some_types(cli: CommandLine) -> None:
    chosen = ("--type", "invoice.extract", "--type", "order.paid")
    made = await asyncio.to_thread(cli, "contracts", "link", *chosen, "--expires", "2h", "--json")

    address = urlsplit(made.json["url"])
    query = {name: value for name, (value,) in parse_qs(address.query).items()}
    link = CatalogueLinks(SECRET).opened(query)
    assert address.path == "/contracts"
    assert link is not None
    assert link.types == {"invoice.extract", "order.paid"}
    assert abs(link.expires - time.time() - 7200) < 120
