"""Commands that are imported when they are used, so that `--help` answers at once."""

from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


class Deferred(TyperGroup):
    """A group that knows its commands by name, place and one line of help."""

    places: ClassVar[dict[str, tuple[str, str]]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # What the list of commands needs: a name and a line, without importing anything.
        self.commands = {
            name: TyperCommand(name, short_help=line, rich_markup_mode=None)
            for name, (_, line) in self.places.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Give the command itself, now that it is used."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.load(str(name)), rest

    def load(self, name: str) -> Any:
        """Import a command."""
        module, _, attribute = self.places[name][0].partition(":")
        command = typer.main.get_command(getattr(import_module(module), attribute))
        command.name = name
        return command
