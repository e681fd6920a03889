"""API keys from the command line, on a real database."""

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.operations import keys
from fixtures.command_line import CommandLine, Result


@pytest.fixture
def cli(database: str) -> CommandLine:
    return CommandLine(FILAVIVA_POSTGRES__URL=database)


async def _created(cli: CommandLine, *words: str) -> Result:
    return await asyncio.to_thread(cli, "keys", "create", "--name", "shop", "--json", *words)


async def test_a_created_key_opens_what_it_was_made_for(
    cli: CommandLine, engine: AsyncEngine
) -> None:
    made = await _created(
        cli, "--tenant", "acme", "--scope", "jobs:read", "--type", "a.b", "--expires-in", "1h"
    )

    async with engine.connect() as connection:
        principal = await keys.authenticate(connection, made.json["token"])

    assert principal is not None
    assert (principal.tenant, principal.scopes) == ("acme", {"jobs:read"})
    assert principal.types == {"a.b"}


async def test_a_listed_key_does_not_show_its_token(cli: CommandLine) -> None:
    made = await _created(cli)

    listed = await asyncio.to_thread(cli, "keys", "list", "--json")

    assert [item["id"] for item in listed.json["items"]] == [made.json["id"]]
    assert made.json["token"] not in listed.out


async def test_a_revoked_key_opens_nothing_and_a_dry_run_revokes_none(
    cli: CommandLine, engine: AsyncEngine
) -> None:
    made = (await _created(cli)).json

    async def opens() -> bool:
        async with engine.connect() as connection:
            return await keys.authenticate(connection, made["token"]) is not None

    tried = await asyncio.to_thread(cli, "keys", "revoke", made["id"], "--dry-run")
    after_trial = await opens()
    done = await asyncio.to_thread(cli, "keys", "revoke", made["id"], stdin="y\n")

    assert (tried.code, after_trial) == (0, True)
    assert (done.code, await opens()) == (0, False)


async def test_a_key_that_is_not_there_has_its_own_exit_code(cli: CommandLine) -> None:
    assert (await asyncio.to_thread(cli, "keys", "revoke", "zzz", "--yes")).code == 3


async def test_a_scope_that_does_not_exist_is_a_usage_error(cli: CommandLine) -> None:
    refused = await _created(cli, "--scope", "jobs:wirte")

    assert refused.code == 2
    assert "jobs:write" in refused.err
