"""GET /v1/asyncapi.json: the registry as one document, for every language.

Reading changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends
from starlette.responses import Response

from filaviva.asyncapi import document, of_registry
from filaviva.http import ExactResponse, allowed, documented
from filaviva.operations.keys import Principal
from filaviva.registry import Registry

MEDIA_TYPE: Final = "application/json"
Reader = Annotated[Principal, Depends(allowed("jobs:read"))]

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "An AsyncAPI 3.1 document",
        "content": {MEDIA_TYPE: {"schema": {"type": "object", "required": ["asyncapi"]}}},
    },
    **documented(401, 403, 422, 500, 503),
}


@dataclass(frozen=True, slots=True)
class Describing:
    """The route's means."""

    registry: Registry

    def router(self) -> APIRouter:
        """Give the route."""
        router = APIRouter(tags=["contracts"])
        router.add_api_route(
            "/v1/asyncapi.json",
            self.get,
            methods=["GET"],
            name="getAsyncApi",
            operation_id="getAsyncApi",
            response_class=ExactResponse,
            responses=_ANSWERS,
        )
        return router

    async def get(self, reader: Reader) -> Response:
        """Describe every contract that the key may use, as AsyncAPI."""
        return ExactResponse(described(self.registry, reader.may_use))


def described(registry: Registry, may_use: Callable[[str], bool]) -> dict[str, Any]:
    """Describe the contracts of the registry that somebody may use."""
    told = of_registry(each for each in registry.all() if may_use(each.type))
    return document(told, title="Filaviva", version=version("filaviva"))
