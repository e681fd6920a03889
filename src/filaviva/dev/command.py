"""The commands `filaviva dev` and `filaviva dev stop`."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from filaviva.dev.broker import Version
from filaviva.dev.child import recover, tail
from filaviva.dev.identity import Identity
from filaviva.dev.lock import exclusive_lock
from filaviva.dev.options import Options, Programs
from filaviva.dev.packages import Missing
from filaviva.dev.readiness import NotReady, wait_until
from filaviva.dev.supervisor import Supervisor, dev_json, record

app = typer.Typer(
    help="The embedded stack: every service as its own process.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_REFUSED = 4
_DETACH_PATIENCE = timedelta(minutes=10)  # the first time, packages are installed
_STOP_PATIENCE = timedelta(seconds=90)

State = Annotated[Path, typer.Option(help="where this stack keeps everything")]
DEFAULT_STATE = Path(".filaviva")


@app.callback(invoke_without_command=True)
def dev(  # noqa: PLR0913 - one argument per option of the command
    context: typer.Context,
    *,
    app_name: Annotated[
        str | None, typer.Option("--app", envvar="FILAVIVA_APP", help="package.module:attribute")
    ] = None,
    services: Annotated[str, typer.Option(help="comma-separated; empty: all")] = "",
    workers: Annotated[int, typer.Option(min=0, help="worker processes")] = 1,
    broker_version: Annotated[str, typer.Option(help="system or 4.3")] = "system",
    state: State = DEFAULT_STATE,
    detach: Annotated[bool, typer.Option(help="return once it is ready")] = False,
    reload: Annotated[bool, typer.Option(help="restart services on change")] = False,
) -> None:
    """Run the stack until Ctrl-C; `dev stop` ends a detached one."""
    if context.invoked_subcommand is not None:
        return
    options = Options(
        state=_folder(state),
        app=app_name,
        services=tuple(name.strip() for name in services.split(",") if name.strip()),
        workers=workers,
        broker_version=_version(broker_version),
        reload=reload,
    )
    if detach:
        _detach(options)
    else:
        foreground(options, Programs())


@app.command()
def stop(state: State = DEFAULT_STATE) -> None:
    """End the stack that runs on this state, or what a killed one has left."""
    state = state.absolute()
    supervisor = Identity.read(record(state))
    if supervisor is not None and supervisor.alive:
        supervisor.terminate()
        if not supervisor.wait_gone(_STOP_PATIENCE):
            _fail(f"the stack on {state} (pid {supervisor.pid}) does not end")
    elif not recover(state):
        typer.echo(f"nothing runs on {state}")
    record(state).unlink(missing_ok=True)
    dev_json(state).unlink(missing_ok=True)


def foreground(options: Options, programs: Programs) -> None:
    """Run the stack here, alone on its state."""
    with exclusive_lock(options.state / "lock") as ours:
        if not ours:
            _refuse(options.state)
        try:
            Supervisor(options, programs, say=typer.echo).run()
        except (Missing, NotReady) as why:
            _fail(str(why))


def _detach(options: Options) -> None:
    """Start ourselves again in a session of our own; return when that one is ready."""
    state = options.state
    with exclusive_lock(state / "lock") as free:
        if not free:
            _refuse(state)
    dev_json(state).unlink(missing_ok=True)
    log = state / "logs" / "supervisor.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        began = output.tell()
        child = subprocess.Popen(
            [sys.executable, "-m", "filaviva.dev", *_words(options)],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until(
            dev_json(state).exists,
            patience=_DETACH_PATIENCE,
            what="the stack",
            still_possible=lambda: child.poll() is None,
        )
    except NotReady as why:
        _fail(f"{why}\n{tail(log, since=began, lines=12)}")
    except KeyboardInterrupt:
        child.terminate()  # Ctrl-C reaches only us
        child.wait(_STOP_PATIENCE.total_seconds())
        raise
    typer.echo(f"ready: {dev_json(state)} (`filaviva dev stop --state {state}` ends it)")


def _words(options: Options) -> list[str]:
    words = ["--state", str(options.state), "--workers", str(options.workers)]
    words += ["--broker-version", options.broker_version]
    if options.services:
        words += ["--services", ",".join(options.services)]
    if options.app is not None:
        words += ["--app", options.app]
    return [*words, "--reload"] if options.reload else words


def _folder(state: Path) -> Path:
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        raise typer.BadParameter(f"--state: expected a folder that can be written: {why}") from None
    return state.absolute()


def _version(text: str) -> Version:
    match text:
        case "system" | "4.3":
            return text
        case _:
            raise typer.BadParameter(f"found {text}, expected system or 4.3")


def _refuse(state: Path) -> None:
    supervisor = Identity.read(record(state))
    who = f" (pid {supervisor.pid})" if supervisor is not None else ""
    how = f"`filaviva dev stop --state {state}`"
    typer.echo(f"a stack runs on {state} already{who}: {how} ends it", err=True)
    raise typer.Exit(_REFUSED)


def _fail(why: str) -> None:
    typer.echo(why, err=True)
    raise typer.Exit(1)
