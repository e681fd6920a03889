"""Who asks, and may they? `Authorization: Bearer fv_<id>_<secret>`."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Protocol

from fastapi import Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request

from filaviva.errors import Rejected
from filaviva.operations.keys import Principal

_bearer = HTTPBearer(
    scheme_name="apiKey",
    bearerFormat="fv_<id>_<secret>",
    description="An API key of one tenant",
    auto_error=False,
)


class Authenticator(Protocol):
    """Whatever can tell whose token this is (operations.keys.KeyRing)."""

    async def authenticate(self, token: str) -> Principal | None:
        """Tell whose token this is; None if it is nobody's."""
        ...


def allowed(scope: str) -> Callable[..., Awaitable[Principal]]:
    """Make the dependency that yields the principal, or refuses: 401, or 403 without the scope."""

    async def principal(
        request: Request,
        _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None,
    ) -> Principal:
        return await authenticated(request, scope)

    return principal


async def authenticated(request: Request, scope: str) -> Principal:
    """Give the principal of a request that has this scope."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise Rejected(
            "unauthenticated",
            "found no API key, expected the header Authorization: Bearer fv_<id>_<secret>",
            status=401,
        )
    authenticator: Authenticator = request.app.state.authenticator
    principal = await authenticator.authenticate(token.strip())
    if principal is None:
        raise Rejected("unauthenticated", "the API key is unknown, revoked or expired", status=401)
    if not principal.may(scope):
        raise Rejected("forbidden", f"the API key lacks the scope {scope}", status=403)
    return principal
