"""JSON answers with every digit as it is stored."""

from typing import Any

from starlette.responses import Response

from filaviva.operations.figures import moment, money
from filaviva.operations.shapes import dumps, raw

__all__ = ["ExactResponse", "dumps", "moment", "money", "raw"]


class ExactResponse(Response):
    """JSON with exact decimals; `raw(text)` embeds JSON that is text already."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Give the bytes to send."""
        return dumps(content).encode()
