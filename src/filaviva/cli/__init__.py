"""The command `filaviva`: what a person does, with an exit code that a script understands."""

import sys
from collections.abc import Sequence

from filaviva.cli.exits import exit_code, explanation
from filaviva.cli.root import root
from filaviva.errors import FilavivaError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line; ends with SystemExit."""
    try:
        root()(args=arguments, prog_name="filaviva")
    except FilavivaError as error:
        print(explanation(error), file=sys.stderr)  # noqa: T201 - our way to speak
        raise SystemExit(exit_code(error)) from None
