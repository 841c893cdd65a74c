"""The engine as the caller's tenant sees it: a view that cannot reach anybody else's rows."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request

from holdfast.errors import Forbidden
from holdfast.runtime.engine import Engine
from holdfast.server.access.identity import Identity, current_identity

SHARED: Final = "_system"  # its flows are open to every tenant; no caller belongs to it


def tenant_engine(request: Request, identity: Identity) -> Engine:
    if identity.tenant == SHARED:
        raise Forbidden("No request may act for this tenant.", code="ORG_FORBIDDEN", hint="Use one of your own.")
    engine: Engine = request.app.state.engine
    return engine.for_org(identity.tenant)


async def _tenant_engine(request: Request) -> Engine:
    return tenant_engine(request, await current_identity(request))


TenantEngine = Annotated[Engine, Depends(_tenant_engine)]
