"""The command `filaviva`: what a person does, with an exit code that a script understands."""

import sys
from collections.abc import Sequence

from filaviva.cli.exits import exit_code, explanation
from filaviva.cli.root import root
from filaviva.errors import ConfigurationError, FilavivaError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line; ends with SystemExit."""
    try:
        _check(sys.argv[1:] if arguments is None else arguments)
        root()(args=arguments, prog_name="filaviva")
    except FilavivaError as error:
        print(explanation(error), file=sys.stderr)  # noqa: T201 - our way to speak
        raise SystemExit(exit_code(error)) from None


def _check(arguments: Sequence[str]) -> None:
    """Refuse what is no text here once, before it gets to the database or to who reads it."""
    for number, word in enumerate(arguments, start=1):
        try:
            word.encode()
        except UnicodeEncodeError:
            found = ascii(word[:60])
            raise ConfigurationError(
                f"argument {number}: found {found}, expected text in UTF-8"
            ) from None
