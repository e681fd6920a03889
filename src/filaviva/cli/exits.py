"""Exit codes: the one place that turns an error into a number and a sentence."""

import re
from math import ceil
from typing import Final

from filaviva.errors import (
    ConfigurationError,
    FilavivaError,
    Incompatible,
    NotAdmitted,
    NotFound,
    Rejected,
    Unreachable,
)

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4
UNREACHABLE: Final = 5

_BY_STATUS: Final = {404: NOT_FOUND, 403: REFUSED, 409: REFUSED, 429: REFUSED}
_SERVER: Final = 500
_NO_SERVER: Final = re.compile("^FILAVIVA_(POSTGRES|BROKER)__URL: found nothing", re.MULTILINE)
_NEXT: Final = "or run it in the folder where `filaviva dev` runs: there it needs no addresses"


def exit_code(error: FilavivaError) -> int:
    """Give the exit code of an error."""
    match error:
        case ConfigurationError() | NotAdmitted():
            return USAGE
        case NotFound():
            return NOT_FOUND
        case Unreachable():
            return UNREACHABLE
        case Incompatible() | Rejected(code="idempotency_key_reused"):
            return REFUSED
        case Rejected(status=status):
            return _BY_STATUS.get(status, UNREACHABLE if status >= _SERVER else USAGE)
        case _:
            return FAILED


def explanation(error: FilavivaError) -> str:
    """Say what is wrong, each flaw of an input on a line of its own."""
    if isinstance(error, NotAdmitted):
        return f"FILAVIVA_BROKER__URL: {error}"
    if isinstance(error, ConfigurationError) and _NO_SERVER.search(str(error)):
        return f"{error}\n{_NEXT}"
    if not isinstance(error, Rejected):
        return str(error)
    when = "" if error.retry_after is None else f" (again in {ceil(error.retry_after)} s)"
    lines = [f"{error.code}: {error.detail}{when}"]
    # A single flaw is in the sentence already.
    if len(error.flaws) > 1:
        lines += [f"  {flaw.pointer or '/'}: {flaw.detail}" for flaw in error.flaws]
    return "\n".join(lines)
