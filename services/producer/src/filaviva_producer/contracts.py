"""GET /v1/contracts: what may be submitted and published, as JSON Schema with examples.

Before: a request. After: what the registry knows, or a problem. May happen twice: it only reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from email.utils import format_datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from filaviva.errors import NotFound
from filaviva.http import ExactResponse, allowed
from filaviva.operations.contract_shapes import contract, contract_in_full
from filaviva.operations.keys import Principal
from filaviva.registry import Registered, Registry
from filaviva_producer import contract_documents as documents

Reader = Annotated[Principal, Depends(allowed("jobs:read"))]
Kind = Annotated[str | None, Query(alias="type", max_length=200, description="of this type alone")]
_SCHEMA = "application/schema+json"
Number = Annotated[int, Path(ge=1, lt=2**31)]


@dataclass(frozen=True, slots=True)
class Contracts:
    """The routes' means."""

    registry: Registry

    def router(self) -> APIRouter:
        """Give the routes."""
        router = APIRouter(prefix="/v1/contracts", tags=["contracts"])
        for path, route, name, more in (
            ("", self.all, "listContracts", documents.LIST),
            ("/{contract_type}/{version}", self.one, "getContract", documents.ONE),
        ):
            named = {"name": name, "operation_id": name}
            router.add_api_route(path, route, methods=["GET"], **named, **more)  # type: ignore[arg-type]
        return router

    async def all(self, reader: Reader, kind: Kind = None) -> Response:
        """List every version of every contract that the key may use."""
        items = [
            contract(each)
            for each in self.registry.all()
            if _may_see(reader, each) and kind in (None, each.type)
        ]
        return ExactResponse({"items": items, "next": None})

    async def one(
        self, request: Request, reader: Reader, contract_type: str, version: Number
    ) -> Response:
        """Give one version: schema, result schema, policy, examples; or its JSON Schema alone."""
        found = self.registry.find(contract_type, version)
        if found is None or not _may_see(reader, found):
            raise NotFound(f"there is no contract {contract_type[:200]!r} v{version}")
        told = notices(found, self.registry)
        if _SCHEMA in request.headers.get("accept", ""):
            return ExactResponse(found.schema, headers={**told, "Content-Type": _SCHEMA})
        return ExactResponse(contract_in_full(found), headers=told)


def notices(found: Registered | None, registry: Registry) -> Mapping[str, str]:
    """Tell who uses a version that it is on its way out (RFC 9745, RFC 8594)."""
    if found is None or (found.sunset is None and not found.deprecated):
        return {}
    since = found.announced_at or found.deprecated_at
    told = {} if since is None else {"Deprecation": f"@{int(since.timestamp())}"}
    if found.sunset is not None:
        last = datetime.combine(found.sunset, time(23, 59, 59), UTC)
        told["Sunset"] = format_datetime(last, usegmt=True)
    newest = registry.find(found.type)
    if newest is not None and newest.version > found.version:
        there = f"/v1/contracts/{newest.type}/{newest.version}"
        told["Link"] = f'<{there}>; rel="successor-version"'
    return told


def _may_see(reader: Principal, found: Registered) -> bool:
    return not found.type.startswith("filaviva.") and reader.may_use(found.type)
