"""Free loopback ports for the embedded stack."""

import secrets
import socket

LOOPBACK = "127.0.0.1"

# Below the range that the kernel gives to outgoing connections, so that a connection
# opened between our choice and the server's bind cannot take the port.
_LOWEST, _HIGHEST = 15000, 32000


def free_port() -> int:
    """Choose a loopback port that nobody listens on."""
    for _ in range(1000):
        port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
        if _is_free(port):
            return port
    raise RuntimeError(f"no free port between {_LOWEST} and {_HIGHEST}")


def accepts(port: int) -> bool:
    """Tell whether something listens on the loopback port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
