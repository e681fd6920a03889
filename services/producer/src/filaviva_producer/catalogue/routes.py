"""GET /contracts: the contracts as a page. It shows what the API would, to a key or a signed link.

Before: a request. After: the page, the document itself, or what is needed to see them.
May happen twice: looking changes nothing.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final, TypeAlias

from fastapi import APIRouter
from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import Response

from filaviva.errors import NotFound, Rejected
from filaviva.http import ExactResponse
from filaviva.http.auth import authenticated
from filaviva.operations.catalogue_links import CatalogueLinks
from filaviva.registry import Registry
from filaviva_producer.catalogue.view import groups
from filaviva_producer.describing import described
from filaviva_producer.page.rendering import FOREVER, HEADERS, templates

MayUse: TypeAlias = Callable[[str], bool]

_PACKAGE: Final = "filaviva_producer.catalogue"
_STYLE: Final = "contracts.css"
_HEADERS: Final = {
    **HEADERS,
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Vary": "Authorization",
}


def _templates() -> Environment:
    return templates(_PACKAGE)


def _style() -> bytes:
    return (files(_PACKAGE) / "assets" / _STYLE).read_bytes()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The page's means; without a secret there are no links, and keys alone open it."""

    registry: Registry
    links: CatalogueLinks | None = None
    templates: Environment = field(default_factory=_templates)
    style: bytes = field(default_factory=_style)

    def router(self) -> APIRouter:
        """Give the routes: plain ones, since the page is for people."""
        router = APIRouter()
        for path, route in (
            ("/contracts", self.page),
            ("/contracts/asyncapi.json", self.document),
            (f"/contracts/{_STYLE}", self.asset),
        ):
            router.add_route(path, route, methods=["GET"], include_in_schema=False)
        return router

    async def page(self, request: Request) -> Response:
        """Show the contracts."""
        try:
            may_use = await self._opened(request)
        except Rejected as refused:
            return self._rendered("closed.html", status=refused.status, detail=refused.detail)
        shown = groups(described(self.registry, may_use))
        query = f"?{request.url.query}" if request.url.query else ""
        return self._rendered("contracts.html", groups=shown, document=f"asyncapi.json{query}")

    async def document(self, request: Request) -> Response:
        """Give the document that the page shows."""
        may_use = await self._opened(request)
        return ExactResponse(described(self.registry, may_use), headers=_HEADERS)

    async def asset(self, request: Request) -> Response:
        """Give the page's style."""
        if request.query_params.keys() - {"v"}:
            raise NotFound("there is nothing at this address")
        return Response(self.style, headers={"Cache-Control": FOREVER}, media_type="text/css")

    async def _opened(self, request: Request) -> MayUse:
        """Tell which types may be shown; Rejected if none."""
        link = self.links.opened(request.query_params) if self.links is not None else None
        if link is not None:
            return link.may_use
        if request.query_params.get("signature"):
            detail = "the link is not valid, or not any more"
            raise Rejected("forbidden", detail, status=403)
        return (await authenticated(request, "jobs:read")).may_use

    def _rendered(self, name: str, *, status: int = 200, **shown: Any) -> Response:
        style = f"{_STYLE}?v={hashlib.sha256(self.style).hexdigest()[:12]}"
        text = self.templates.get_template(name).render(style=style, **shown)
        headers = {**_HEADERS, "Content-Language": "en"}
        return Response(text, status, headers, media_type="text/html")
