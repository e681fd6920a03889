"""Sign what a link says, and recognise it again, also while the secret is being replaced."""

import base64
import hashlib
import hmac


class LinkSigning:
    """Sign with the newest secret; what the one before signed is ours while that is named."""

    def __init__(self, secret: str, *, previous: str | None = None) -> None:
        self._secrets = [one.encode() for one in (secret, previous) if one]

    def sign(self, *parts: object) -> str:
        """Give the signature of these parts."""
        return _signature(self._secrets[0], parts).decode()

    def is_ours(self, signature: str, *parts: object) -> bool:
        """Tell whether we signed these parts so."""
        given = signature.encode()
        return any(hmac.compare_digest(_signature(one, parts), given) for one in self._secrets)


def _signature(secret: bytes, parts: tuple[object, ...]) -> bytes:
    signed = "\n".join(("filaviva 1", *map(str, parts)))
    found = hmac.digest(secret, signed.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(found).rstrip(b"=")
