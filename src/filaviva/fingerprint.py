"""Tell failures of one cause from others: the fingerprint of a failure group."""

import hashlib
import json
import re
from collections.abc import Sequence

TOP_FRAMES = 5
LONGEST_MESSAGE = 600

_ASSIGNED = (
    r"(?P<name>(?:(?:passw(?:or)?d|api[_-]?key|authorization)['\"]?\s*[=:]"
    r"|(?:passphrase|secret|token)=)\s*)(?!<secret>)"
    r"(?:'[^']*'|\"[^\"]*\"|(?:(?:bearer|basic) )?[^\s,;)}\]]+)"
)
# In this order: what contains numbers goes before numbers, what contains paths before paths.
_CHANGING = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
        (r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", "<url>"),
        (r"\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?", "<secret>"),
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}", "<secret>"),
        (r"(?<=\bbearer )[\w.~+/=-]{8,}", "<secret>"),
        (_ASSIGNED, r"\g<name><secret>"),
        (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "<email>"),
        (r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "<uuid>"),
        (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?", "<time>"),
        (r"\b\d\d:\d\d:\d\d(?:\.\d+)?", "<time>"),
        (r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|`[^`\n]*`", "<quoted>"),
        (r"(?<![\w<])(?:[a-z]:)?(?:[/\\][\w.@~+-]+){2,}", "<path>"),
        (r"\b0x[0-9a-f]+\b", "<hex>"),
        (r"\b(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b", "<hex>"),
        # A word with three or more digits is an id (req_81723, INV-2024-0001), a name is not (v2).
        (r"\b(?=(?:[\w-]*\d){3})[\w-]*[a-z][\w-]*\b", "<id>"),
        (r"(?<![\w-])[-+]?\d+(?:[.,:/x-]\d+)*", "<n>"),
    )
)
_SPACES = re.compile(r"\s+")


def normalise(message: str) -> str:
    """Replace what changes from one failure to the next of the same cause."""
    text = message[: 4 * LONGEST_MESSAGE]
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return _SPACES.sub(" ", text).strip()[:LONGEST_MESSAGE]


def fingerprint(
    type: str | None,  # noqa: A002 - the word of the contract
    error_class: str | None,
    message: str,
    frames: Sequence[str] = (),
) -> str:
    """Give 16 hex characters that are equal for failures of the same cause.

    Frames are innermost last; the last few count.
    """
    parts = [type, error_class, normalise(message), list(frames[-TOP_FRAMES:])]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
