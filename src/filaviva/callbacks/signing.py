"""Signatures as Standard Webhooks 1.0 has them; each tenant has a secret of its own."""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Final

_PREFIX: Final = "whsec_"


def tenant_secret(master: str, tenant: str) -> str:
    """Derive the secret that a tenant's receivers verify with: one tenant cannot sign for another.

    Derived and not stored: who has the settings has all of them, a backup of the database none.
    """
    key = hmac.digest(master.encode(), f"filaviva callback secret:{tenant}".encode(), "sha256")
    return _PREFIX + base64.b64encode(key).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Sign one message with a `whsec_…` secret."""
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def headers(
    secrets: Iterable[str], message_id: str, timestamp: int, body: bytes
) -> Mapping[str, str]:
    """Give the headers of a message; with several secrets while they are being changed."""
    signatures = [signature(secret, message_id, timestamp, body) for secret in secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }
