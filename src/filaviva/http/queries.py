"""Refuse unknown query parameters: a misspelt filter must not show everything."""

from collections.abc import Collection, Iterator

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request

from filaviva.errors import Flaw, Rejected


async def strict_query(request: Request) -> None:
    """Compare the query with the parameters that the route declares (an app-wide dependency).

    A route allows families of names by `openapi_extra={"x-query-families": ["label."]}`.
    """
    route = request.scope.get("route")
    if request.scope["query_string"] and isinstance(route, APIRoute):
        families = (route.openapi_extra or {}).get("x-query-families", ())
        refuse_unknown(request, frozenset(_names(route.dependant)), tuple(families))


def refuse_unknown(
    request: Request, known: Collection[str], families: tuple[str, ...] = ()
) -> None:
    """Raise for the first query parameters that are not among these."""
    unknown = [
        name
        for name in request.query_params
        if name not in known and not (families and name.startswith(families))
    ]
    if unknown:
        expected = ", ".join([*sorted(known), *(f"{family}*" for family in families)]) or "none"
        flaws = [Flaw(f"/query/{name}", "unknown query parameter") for name in unknown]
        detail = f"found query parameter {unknown[0]!r}, expected: {expected}"
        raise Rejected("invalid_request", detail, status=422, flaws=flaws)


def _names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        yield field.alias
    for dependency in dependant.dependencies:
        yield from _names(dependency)
