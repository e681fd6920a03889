"""What a callback's URL may be, as far as can be said without looking it up."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from filaviva.callbacks.addresses import is_public

LONGEST: Final = 2048

_PRINTABLE = re.compile(r"[!-~]+", re.ASCII)
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
# The last label has a letter: 127.1 and 0x7f000001 are addresses to some resolvers.
_NAME = re.compile(rf"(?:{_LABEL}\.)*(?!0[xX])[A-Za-z](?:[A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?\.?")
_EXAMPLE = "such as https://shop.example/filaviva"


@dataclass(frozen=True, slots=True)
class Rules:
    """What is allowed beyond https to public addresses."""

    allow_http: bool = False
    allow_private: bool = False


def flaw(url: object, rules: Rules) -> str | None:
    """Say what is wrong with a callback's URL; None if nothing is."""
    if not isinstance(url, str) or not 1 <= len(url) <= LONGEST:
        return f"expected a URL of 1 to {LONGEST} characters, {_EXAMPLE}"
    if not _PRINTABLE.fullmatch(url) or "\\" in url:
        return (
            f"found spaces, controls or letters beyond ASCII, expected an encoded URL, {_EXAMPLE}"
        )
    try:
        parts = urlsplit(url)
        return _scheme(parts, rules) or _extras(parts) or _host(parts, rules)
    except ValueError:
        return f"found no URL that can be read, expected one {_EXAMPLE}"


def _scheme(parts: SplitResult, rules: Rules) -> str | None:
    allowed = ("https", "http") if rules.allow_http else ("https",)
    if parts.scheme in allowed:
        return None
    return f"found the scheme {parts.scheme[:20]!r}, expected {' or '.join(allowed)}"


def _extras(parts: SplitResult) -> str | None:
    if "@" in parts.netloc:
        return "found a user or password in it, expected none: the signature tells who calls"
    if parts.fragment:
        return "found a fragment (#…), expected none: a server never sees it"
    if parts.port == 0:
        return "found port 0, expected 1 to 65535"
    return None


def _host(parts: SplitResult, rules: Rules) -> str | None:
    host = parts.hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return _name(host, rules)
    if rules.allow_private or is_public(address):
        return None
    return f"found the address {host}, expected a public one"


def _name(host: str, rules: Rules) -> str | None:
    if not _NAME.fullmatch(host) or len(host) > 253:  # noqa: PLR2004 - of DNS
        return f"found the host {host[:60]!r}, expected a name or an address"
    inside = host.rstrip(".").rpartition(".")[2] == "localhost"
    if inside and not rules.allow_private:
        return f"found the host {host[:60]!r}, expected one that is reached from outside"
    return None
