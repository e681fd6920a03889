"""What is wrong with a value: JSON pointers and words, never the value itself."""

from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from filaviva.errors import Flaw
from filaviva.few import few
from filaviva_contracts.exact import escaped

_SHOWN = 20


def pointer(parts: Iterable[str | int]) -> str:
    """Write a path as a JSON pointer."""
    return "".join(f"/{escaped(part)}" for part in parts)


def flaws_of(invalid: ValidationError) -> tuple[Flaw, ...]:
    """Turn pydantic's errors into flaws; inputs stay out, for they may be secret."""
    errors = invalid.errors(include_url=False, include_context=False, include_input=False)
    return tuple(Flaw(pointer(error["loc"]), error["msg"]) for error in errors)


def sentence(subject: str, flaws: Sequence[Flaw]) -> str:
    """Say what is wrong in one line."""
    told = few(flaws, _SHOWN, _told, between="; ", last="; and")
    return f"{subject} does not fit: {told}"


def _told(flaw: Flaw) -> str:
    return f"{flaw.pointer or '/'}: {flaw.detail}"
