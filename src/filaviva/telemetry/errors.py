"""What a log line says of an error: where it came from and of which kind, not what it was about.

The text of an exception quotes what could not be read, stored or sent: with it payloads, prompts
and secrets would get into logs. What a job failed with stands with the job, for who may see it.
"""

import traceback
from collections.abc import Iterator

_MOST = 30
_DEEPEST = 5


def described(error: BaseException) -> str:
    """Give a traceback, the cause first, without texts that may hold data."""
    return "\n".join(line for one in reversed([*_chain(error)]) for line in _one(one))


def named(error: BaseException) -> str:
    """Name the kind of an error, with what the system says of it where that is harmless."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in {"builtins", "__main__"}:
        name = f"{kind.__module__}.{name}"
    told = _harmless(error)
    return f"{name}: {told}" if told else name


def _one(error: BaseException) -> Iterator[str]:
    frames = [*traceback.walk_tb(error.__traceback__)][-_MOST:]
    for frame, line in frames:
        yield f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
    yield named(error)
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions[:_DEEPEST]:
            yield from (f"  {line}" for line in described(inner).splitlines())


def _chain(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(_DEEPEST):
        if found is None:
            return
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _harmless(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    code = getattr(getattr(error, "orig", None) or error, "sqlstate", None)
    return f"SQLSTATE {code}" if isinstance(code, str) else ""
