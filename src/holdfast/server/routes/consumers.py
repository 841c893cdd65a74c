"""Consumers: register them, take their facts, answer them, see how far they are behind.

A consumer is there for the subject that registered it, and for operators.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import APIRouter, Path, Query, Request

from holdfast.errors import Refused
from holdfast.runtime.consumers.events import ConsumerEvent, Postpone
from holdfast.runtime.consumers.receiving import check_pulls
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight, Sight
from holdfast.server.http.contract import CHANGES, api_router
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, cut, shown_of
from holdfast.server.http.polls import poll
from holdfast.server.http.replies import encoded, reply
from holdfast.server.http.sse import EventStream
from holdfast.server.models.base import Flag, Listed
from holdfast.server.models.consumers import (
    Acknowledge,
    Acknowledged,
    ConsumerView,
    DeliveryView,
    EnvironmentName,
    OfEnvironment,
    Receive,
    Received,
    RegisterConsumer,
    ReplayFacts,
    ReplayView,
)
from holdfast.server.models.machines import TriggerView
from holdfast.server.settings import ServerSettings

_consumers, _instances = api_router("consumers"), api_router("instances")

ConsumerPath = Annotated[
    str, Path(min_length=1, max_length=200, pattern=r"^[^\x00/]+$", description="The consumer.", examples=["billing"])
]
InEnvironment = Annotated[EnvironmentName, Query(description="The environment of the consumer.", examples=["prod"])]
_FACT: Final = {
    "type": "object",
    "description": "One fact of the stream. `data` is an event as a poll gives it.",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["id", "event", "data"],
}
_SENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Facts as they become due, until the time of the stream is over.",
        "content": {"text/event-stream": {"schema": _FACT}},
    }
}
_CONSUMES: Final = [needs(Scope.CONSUME)]


@_consumers.post("", operation_id="register_consumer", responses=CHANGES, dependencies=_CONSUMES)
async def register_consumer(wish: RegisterConsumer, sight: CurrentSight) -> ConsumerView:
    """Register a consumer that pulls its facts or is pushed to; again, it changes the settings.

    It gets every fact of the tenant that its filters take. It belongs to the caller: only operators may use or
    change it beside them. `since` counts for the first registration, and for one after a removal.
    """
    sight.check_consumes()
    settings = {name: getattr(wish, name) for name in RegisterConsumer.model_fields if name not in _NAMES}
    await sight.engine.register_consumer(
        wish.environment, wish.name, **settings, owner=sight.identity.subject, of_any=sight.operates
    )
    return ConsumerView.of(await sight.engine.get_consumer(wish.environment, wish.name))


_NAMES: Final = frozenset({"environment", "name"})


@_consumers.get("", operation_id="list_consumers", dependencies=[needs(Scope.READ)])
async def list_consumers(
    sight: CurrentSight,
    environment: Annotated[EnvironmentName | None, Query(description="Only of this environment.")] = None,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Listed[ConsumerView]:
    """The caller's consumers, and all of them for operators, by environment and name, each with its lag."""
    listing = Listing(sight.engine.org, "consumers", environment=environment)
    owner = None if sight.operates else sight.identity.subject
    after = listing.place(cursor, tuple[str, str])
    found = await sight.engine.consumers(environment, owner=owner, after=after, limit=limit + 1)
    shown, last = shown_of(found, limit)
    return Listed(
        items=[ConsumerView.of(one) for one in shown],
        next=listing.cursor_behind(last and (last.environment, last.name)),
    )


@_consumers.get("/{name}", operation_id="get_consumer", dependencies=[needs(Scope.READ)])
async def get_consumer(name: ConsumerPath, environment: InEnvironment, sight: CurrentSight) -> ConsumerView:
    """One consumer: its settings, whether it lives, how far it is behind."""
    await sight.consumer(environment, name)
    return ConsumerView.of(await sight.engine.get_consumer(environment, name))


@_consumers.post("/{name}/beat", operation_id="beat_consumer", status_code=204, dependencies=_CONSUMES)
async def beat_consumer(name: ConsumerPath, wish: OfEnvironment, sight: CurrentSight) -> None:
    """Tell that a consumer is alive. Polls and streams tell by themselves."""
    await sight.consumer(wish.environment, name)
    await sight.engine.beat_consumer(wish.environment, name)


@_consumers.post("/{name}/remove", operation_id="remove_consumer", status_code=204, dependencies=_CONSUMES)
async def remove_consumer(name: ConsumerPath, wish: OfEnvironment, sight: CurrentSight) -> None:
    """Remove a consumer: it gets no fact any more, and its open deliveries end as abandoned."""
    await sight.consumer(wish.environment, name)
    await sight.engine.remove_consumer(wish.environment, name, by=sight.identity.subject)


@_consumers.post("/{name}/replay", operation_id="replay_consumer", responses=CHANGES, dependencies=_CONSUMES)
async def replay_consumer(name: ConsumerPath, wish: ReplayFacts, sight: CurrentSight) -> ReplayView:
    """Give a consumer all its facts again from a moment on, in order; nothing newer overtakes them."""
    await sight.consumer(wish.environment, name)
    return ReplayView.of(
        await sight.engine.replay_consumer(wish.environment, name, since=wish.since, dry_run=wish.dry_run)
    )


# --- facts ---------------------------------------------------------------------------------------------------------


@_consumers.post("/{name}/receive", operation_id="receive_facts", response_model=Received, dependencies=_CONSUMES)
async def receive_facts(name: ConsumerPath, wish: Receive, request: Request, sight: CurrentSight) -> Any:
    """Take due facts; without any, wait for them. Each poll is a beat. A fact without an answer comes again."""
    await sight.consumer(wish.environment, name)
    settings: ServerSettings = request.app.state.settings
    wait = min(wish.wait, settings.stream_life)
    receiving = sight.engine.receive(wish.environment, name, most=wish.most, wait=wait)
    events = await (poll(request, sight.identity, receiving, []) if wait else receiving)
    return reply({"events": [_fact(event) for event in events]})


@_consumers.get(
    "/{name}/stream",
    operation_id="stream_facts",
    status_code=200,
    response_class=EventStream,
    responses=_SENT,
    dependencies=_CONSUMES,
)
async def stream_facts(
    name: ConsumerPath, environment: InEnvironment, request: Request, sight: CurrentSight
) -> EventStream:
    """Facts as they become due, at most `in_flight` of the consumer without an answer. A stream is a heartbeat."""
    check_pulls(await sight.consumer(environment, name))
    settings: ServerSettings = request.app.state.settings
    return EventStream(request, sight.identity, _told(sight, environment, name, settings.stream_life))


async def _told(sight: Sight, environment: str, name: str, life: float) -> AsyncGenerator[dict[str, Any]]:
    async for event in sight.engine.listen(environment, name, life=life):
        yield {"id": event.ack, "event": event.kind, "data": encoded(_fact(event)).decode()}


def _fact(event: ConsumerEvent) -> dict[str, Any]:
    return {
        "ack": event.ack,
        "attempt": event.attempt,
        "max_attempts": event.max_attempts,
        "body": msgspec.Raw(event.raw),
    }


@_consumers.post("/{name}/acks", operation_id="acknowledge_fact", responses=CHANGES, dependencies=_CONSUMES)
async def acknowledge_fact(name: ConsumerPath, wish: Acknowledge, sight: CurrentSight) -> Acknowledged:
    """Answer a fact: delivered, processed, failed or retry. The same answer again changes nothing.

    `processed` may bring `then`, the next event of the instance: it is decided in the same commit.
    """
    await sight.consumer(wish.environment, name)
    if wish.outcome in ("delivered", "retry"):
        _refuse_given(wish, ("verdict", "then", *(_WHEN if wish.outcome == "delivered" else ())))
        await sight.engine.settle_directly(wish.environment, name, wish.ack, wish.outcome, wish=_postponement(wish))
        return Acknowledged(answer=None)
    _refuse_given(wish, _WHEN if wish.outcome == "processed" else (*_WHEN, "verdict", "then"))
    told = await sight.engine.ack(
        wish.environment,
        name,
        wish.ack,
        wish.outcome,
        message=wish.message,
        verdict=wish.verdict,
        then=None if wish.then is None else (wish.then.event, wish.then.payload),
        by=sight.identity.subject,
        capabilities=() if wish.then is None else await sight.acting_on_fact(wish.ack),
    )
    return Acknowledged(answer=None if told is None else TriggerView.of(told))


_WHEN: Final = ("delay", "at")


def _refuse_given(wish: Acknowledge, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(wish, name) is not None:
            raise Refused(
                f"`{name}` does not go with the outcome {wish.outcome}.", code="ANSWER_INVALID", hint="Leave it out."
            )


def _postponement(wish: Acknowledge) -> Postpone | None:
    if wish.delay is None and wish.at is None:
        return None
    return Postpone(delay=wish.delay, at=wish.at, message=wish.message)


# --- deliveries ----------------------------------------------------------------------------------------------------


@_consumers.get("/{name}/deliveries", operation_id="list_consumer_deliveries", dependencies=[needs(Scope.READ)])
async def list_consumer_deliveries(
    name: ConsumerPath,
    environment: InEnvironment,
    sight: CurrentSight,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Listed[DeliveryView]:
    """The facts that are open for a consumer, oldest first."""
    await sight.consumer(environment, name)
    listing = Listing(sight.engine.org, "deliveries", environment=environment, consumer=name)
    page = await sight.engine.deliveries(consumer=(environment, name), after=listing.position(cursor), limit=limit)
    items, next = cut(page.items, page.next, lambda one: one.ack)
    return Listed(items=[DeliveryView.of(one) for one in items], next=listing.cursor(next))


@_instances.get("/{instance_id}/deliveries", operation_id="list_deliveries", dependencies=[needs(Scope.READ)])
async def list_deliveries(
    instance_id: UUID,
    sight: CurrentSight,
    closed: Annotated[Flag, Query(description="Those that are over, too.")] = False,
    cursor: Cursor = None,
    limit: Limit = USUAL_ITEMS,
) -> Listed[DeliveryView]:
    """The facts of an instance that consumers have not answered, oldest first; a page may be short."""
    tells = await sight.steps_of(await sight.instance(instance_id))
    listing = Listing(sight.engine.org, "deliveries of one", instance=instance_id, closed=closed)
    page = await sight.engine.deliveries(
        instance=instance_id, closed=closed, after=listing.position(cursor), limit=limit
    )
    items, next = cut(page.items, page.next, lambda one: one.ack)
    return Listed(items=[DeliveryView.of(one) for one in items if tells(one.state)], next=listing.cursor(next))


router = APIRouter()
router.routes += [*_consumers.routes, *_instances.routes]
