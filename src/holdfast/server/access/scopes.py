"""Scopes: the parts of the API a caller may use, before any question about a single flow.

Scopes are in the token or on the API key. A caller without any gets those of their roles: every role may look, act and
start; `publisher`, `consumer`, `operator` and `admin` may more. `app.state.role_scopes` replaces that table. The
development identity has all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from fastapi import Depends, Request, params

from holdfast.errors import Forbidden
from holdfast.server.access.identity import DEVELOPMENT, Identity, current_identity


class Scope(StrEnum):
    READ = "read"  # look at what one may see
    START = "start"  # start instances
    ACT = "act"  # send events, decide tasks, cancel
    PUBLISH = "publish"  # publish definitions
    CONSUME = "consume"  # register consumers of one's own, take and acknowledge all facts of the tenant
    OPERATE = "operate"  # everything of the tenant: pause, re-run, dead letters, effects, workers


ALL: Final = frozenset(Scope)
EVERYBODY: Final = "*"
ROLE_SCOPES: Final[Mapping[str, frozenset[str]]] = {
    EVERYBODY: frozenset({Scope.READ, Scope.START, Scope.ACT}),
    "publisher": frozenset({Scope.PUBLISH}),
    "consumer": frozenset({Scope.CONSUME}),
    "operator": frozenset({Scope.OPERATE, Scope.CONSUME}),
    "admin": ALL,
}


def scopes_of(identity: Identity, role_scopes: Mapping[str, frozenset[str]] = ROLE_SCOPES) -> frozenset[str]:
    if identity.scopes:
        return identity.scopes & ALL
    if identity.method == DEVELOPMENT:
        return ALL
    return frozenset(scope for role in (EVERYBODY, *identity.roles) for scope in role_scopes.get(role, ()))


async def current_scopes(request: Request) -> frozenset[str]:
    return scopes_of(await current_identity(request), getattr(request.app.state, "role_scopes", ROLE_SCOPES))


CurrentScopes = Annotated[frozenset[str], Depends(current_scopes)]


Check = Callable[[Request], Coroutine[Any, Any, None]]


def needs(scope: Scope) -> params.Depends:
    """The dependency of a route that requires this scope."""
    return Depends(_CHECKS[scope])


def scope_check(dependency: params.Depends) -> Check | None:
    """The check behind a dependency made by `needs`; None for any other."""
    return next((check for check in _CHECKS.values() if check is dependency.dependency), None)


def _check(scope: Scope) -> Check:
    async def check(request: Request) -> None:
        if scope not in await current_scopes(request):
            raise Forbidden(
                f"This needs the scope {scope.value!r}.",
                code="SCOPE_MISSING",
                hint="Use a token or an API key that has it.",
            )

    return check


_CHECKS: Final = {scope: _check(scope) for scope in Scope}
