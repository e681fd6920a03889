"""Signed links to the status page of one job: made without a database, valid until they expire.

Before: somebody who may see a job. After: an address that shows it to whoever has the address.
May happen twice: the same job, rights and expiry give the same link.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import urlencode
from uuid import UUID

from filaviva.operations.keys import Principal
from filaviva.operations.link_signing import LinkSigning

Right: TypeAlias = Literal["cancel", "retry"]

RIGHTS: Final[tuple[Right, ...]] = ("cancel", "retry")
_VIEW: Final = "view"
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Link:
    """What a link opens: one job, what its reader may do there, and until when (Unix time)."""

    job_id: UUID
    can: str
    expires: int

    def may(self, right: Right) -> bool:
        """Tell whether its reader may do this."""
        return right in self.can.split(".")

    @property
    def seconds_left(self) -> float:
        """Tell for how long it is still valid; it is not below zero."""
        return self.expires - time.time()


def rights(principal: Principal) -> list[Right]:
    """Give what a link may allow that this key's owner hands on: no more than the key itself."""
    asked: dict[Right, str] = {"cancel": "jobs:cancel", "retry": "jobs:write"}
    return [right for right, scope in asked.items() if principal.may(scope)]


class Links:
    """Make links and recognise them; who knows the secret can do both."""

    def __init__(
        self, secret: str, *, base_url: str = "", days: float = 30, previous: str | None = None
    ) -> None:
        self._signing = LinkSigning(secret, previous=previous)
        self._base_url = base_url.rstrip("/")
        self._days = days

    def of(self, job_id: UUID, rights: Collection[Right]) -> str:
        """Give the job's link for the usual time: the same one for the whole day."""
        today = int(time.time()) // _DAY * _DAY
        return self.make(job_id, rights, expires=int(today + (1 + self._days) * _DAY))

    def make(self, job_id: UUID, rights: Collection[Right], *, expires: int) -> str:
        """Give the job's link up to this moment (Unix time)."""
        can = ".".join(sorted(rights)) or _VIEW
        return f"{self._base_url}/jobs/{job_id}?{self.query(Link(job_id, can, expires))}"

    def query(self, link: Link) -> str:
        """Give what follows the question mark of every address that a link opens."""
        signature = self._sign("link", link)
        return urlencode({"can": link.can, "expires": link.expires, "signature": signature})

    def signed(self, link: Link, signature: str) -> bool:
        """Tell whether this link was made by us; it may have expired since."""
        return self._is_ours("link", link, signature)

    def token(self, link: Link, action: str) -> str:
        """Give what a form of the page carries, to show that it came from there."""
        return self._sign(f"form {action}", link)

    def posted(self, link: Link, action: str, token: str) -> bool:
        """Tell whether a form came from the page that this link opens."""
        return self._is_ours(f"form {action}", link, token)

    def _is_ours(self, purpose: str, link: Link, signature: str) -> bool:
        return self._signing.is_ours(signature, purpose, link.job_id, link.can, link.expires)

    def _sign(self, purpose: str, link: Link) -> str:
        return self._signing.sign(purpose, link.job_id, link.can, link.expires)
