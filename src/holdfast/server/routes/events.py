"""Events by key: for senders who know an order or a parcel, but no instance."""

from __future__ import annotations

from uuid import UUID

from holdfast.server.access.identity import CurrentIdentity
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.tenants import TenantEngine
from holdfast.server.http.contract import CHANGES, api_router
from holdfast.server.http.idempotency import IdempotencyKey, signal_id
from holdfast.server.models.events import SendEvent, SentEvent

router = api_router("events")


@router.post("", operation_id="send_event", status_code=202, responses=CHANGES, dependencies=[needs(Scope.ACT)])
async def send_event(
    wish: SendEvent, engine: TenantEngine, identity: CurrentIdentity, key: IdempotencyKey
) -> SentEvent:
    """Send an event to every wait with a key, those that open later included; answered when it is kept.

    The answer is the same whether a step waits or not. A step that asks for capabilities does not take it.
    """
    id = signal_id(identity, f"{len(wish.event)}:{wish.event}{wish.key}", key, "event")
    sent = await engine.signal_key(wish.event, wish.key, wish.payload, id=id, by=identity.subject)
    return SentEvent(id=UUID(sent), event=wish.event, key=wish.key)
