"""Signed links to the page of contracts: made without a database, valid until they expire.

Before: somebody who may see contracts. After: an address that shows them to whoever has it.
May happen twice: the same types and expiry give the same link.
"""

import re
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from filaviva.operations.link_signing import LinkSigning
from filaviva_contracts.names import event_of

_PURPOSE = "contracts"
_EXPIRY = re.compile(r"[0-9]{1,12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class CatalogueLink:
    """What a link opens: the contracts of these types (None: all), until when (Unix time)."""

    types: frozenset[str] | None
    expires: int

    def may_use(self, job_type: str) -> bool:
        """Tell whether it shows this type; with an event's, its handlers."""
        return self.types is None or not self.types.isdisjoint((job_type, event_of(job_type)))


class CatalogueLinks:
    """Make links and recognise them; who knows the secret can do both."""

    def __init__(self, secret: str, *, base_url: str = "", previous: str | None = None) -> None:
        self._signing = LinkSigning(secret, previous=previous)
        self._base_url = base_url.rstrip("/")

    def make(self, types: Collection[str] | None, *, expires: int) -> str:
        """Give the link up to this moment (Unix time)."""
        link = CatalogueLink(None if types is None else frozenset(types), expires)
        signature = self._signing.sign(_PURPOSE, _written(link), expires)
        query = {"types": _written(link), "expires": expires, "signature": signature}
        return f"{self._base_url}/contracts?{urlencode(query)}"

    def opened(self, query: Mapping[str, str]) -> CatalogueLink | None:
        """Give what the query of an address opens; None if it is not ours, or has expired."""
        types, expires = query.get("types", ""), query.get("expires", "")
        if not _EXPIRY.fullmatch(expires):
            return None
        link = CatalogueLink(frozenset(types.split(",")) if types else None, int(expires))
        given = query.get("signature", "")
        ours = self._signing.is_ours(given, _PURPOSE, _written(link), link.expires)
        return link if ours and link.expires > time.time() else None


def _written(link: CatalogueLink) -> str:
    return ",".join(sorted(link.types or ()))
