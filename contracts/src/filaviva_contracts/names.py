"""Names on the wire: a contract's type, and the CloudEvents type that carries its major version."""

import re

_WORDS = re.compile(r"[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)*")
_VERSIONED = re.compile(r"(?P<type>.+)\.v(?P<version>[1-9][0-9]{0,8})")
# A routing key has 255 bytes, and a delay's key needs 57 of them.
_LONGEST = 150
_GREATEST = 2**31 - 1


def check_type(found: object) -> str:
    """Return a contract's type; ValueError says what was found and what is expected."""
    if isinstance(found, str) and len(found) <= _LONGEST and _WORDS.fullmatch(found):
        last = found.rpartition(".")[2]
        if not re.fullmatch(r"v[0-9]+", last):
            return found
    expected = f"lower-case words joined by dots, not ending in .vN, at most {_LONGEST} characters"
    raise ValueError(
        f"type: found {_shown(found)}, expected {expected} (such as 'invoice.extract')"
    )


def check_version(found: object) -> int:
    """Return a contract's version; ValueError says what was found and what is expected."""
    if isinstance(found, int) and not isinstance(found, bool) and 1 <= found <= _GREATEST:
        return found
    raise ValueError(f"version: found {_shown(found)}, expected a whole number from 1")


def _shown(found: object) -> str:
    return "nothing" if found is None else repr(found)


def wire_type(contract_type: str, version: int) -> str:
    """Give the CloudEvents type of a contract: `invoice.extract.v2`."""
    return f"{contract_type}.v{version}"


def parse_wire_type(text: str) -> tuple[str, int] | None:
    """Split a CloudEvents type into contract type and version; None if it names no version."""
    match = _VERSIONED.fullmatch(text)
    return (match["type"], int(match["version"])) if match else None


def handler_type(event_type: str, handler: str) -> str:
    """Name the job type of one handler of an event: `invoice.issued:send_receipt`."""
    return f"{event_type}:{handler}"


def event_of(job_type: str) -> str:
    """Give the event that a job type handles; any other type is its own."""
    return job_type.partition(":")[0]


def schema_uri(contract_type: str, version: int) -> str:
    """Name where the registry serves a contract's schema."""
    return f"/v1/contracts/{contract_type}/{version}"
