"""`filaviva keys`: API keys of tenants."""

from datetime import datetime
from typing import Annotated

import typer
from sqlalchemy.ext.asyncio import AsyncEngine

from filaviva.cli import acting
from filaviva.cli.moments import moment_after
from filaviva.cli.output import DryRun, Json, Yes, ask, show_facts, show_json, show_list
from filaviva.errors import NotFound
from filaviva.operations import keys
from filaviva.operations.figures import moment

_COLUMNS = ("id", "name", "tenant", "scopes", "types", "lastUsedAt", "expiresAt", "revokedAt")

app = typer.Typer(
    help="Create, list and revoke API keys.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def create(  # noqa: PLR0913 - what a key is made of
    *,
    name: Annotated[str, typer.Option(help="Who or what uses it.")],
    tenant: Annotated[str, typer.Option(help="The tenant whose jobs it sees.")] = "default",
    scope: Annotated[
        list[str], typer.Option(help=f"One of {', '.join(keys.SCOPES)}; repeat for more.")
    ] = ["jobs:write", "jobs:read"],  # noqa: B006 - Typer copies it
    job_type: Annotated[
        list[str] | None, typer.Option("--type", help="Only this job type; repeat for more.")
    ] = None,
    expires_in: Annotated[str | None, typer.Option(help="Such as 12h, 90d.")] = None,
    json: Json = False,
) -> None:
    """Make a key and print its token: it is stored nowhere and cannot be shown again."""
    until = None if expires_in is None else moment_after(expires_in)

    async def work(engine: AsyncEngine) -> keys.CreatedKey:
        return await keys.create(
            engine,
            name=name,
            tenant=tenant,
            scopes=scope,
            types=job_type or None,
            expires_at=until,
            author=acting.author(),
        )

    made = acting.on_engine(work)
    facts = {
        "id": made.id,
        "token": made.token,
        "tenant": made.tenant,
        "scopes": list(made.scopes),
        "expiresAt": moment(until),
    }
    if json:
        show_json(facts)
    else:
        show_facts(facts)
        typer.echo("keep the token now: it cannot be shown again", err=True)


@app.command("list")
def list_keys(
    *, tenant: Annotated[str | None, typer.Option(help="One tenant's.")] = None, json: Json = False
) -> None:
    """List keys, newest first."""
    found = acting.on_engine(lambda engine: keys.list_keys(engine, tenant=tenant))
    items = [_shown(key) for key in found]
    if json:
        show_json({"items": items, "next": None})
    else:
        show_list(items, _COLUMNS)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `keys list` shows it.")],
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Revoke a key for good; it is refused everywhere within two seconds."""
    found = [key for key in acting.on_engine(keys.list_keys) if key.id == key_id]
    if not found:
        raise NotFound(f"no key has the id {key_id!r}")
    label = f"key {key_id} ({found[0].name}, tenant {found[0].tenant})"
    if dry_run:
        typer.echo(f"would revoke {label}")
        return
    ask(f"Revoke {label}?", yes=yes)
    acting.on_engine(lambda engine: keys.revoke(engine, key_id, author=acting.author()))
    typer.echo(f"revoked {label}")


def _shown(key: keys.Key) -> dict[str, object]:
    times: dict[str, datetime | None] = {
        "createdAt": key.created_at,
        "lastUsedAt": key.last_used_at,
        "expiresAt": key.expires_at,
        "revokedAt": key.revoked_at,
    }
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "scopes": list(key.scopes),
        "types": None if key.types is None else list(key.types),
        **{name: moment(at) for name, at in times.items()},
    }
