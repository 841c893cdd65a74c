"""History of an instance: steps, events, the timeline, effects."""

from __future__ import annotations

from uuid import UUID

from holdfast.runtime.reads.timeline import read_timeline
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.visibility import CurrentSight
from holdfast.server.http.contract import api_router
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, shown_of
from holdfast.server.models.base import Listed
from holdfast.server.models.effects import EffectView
from holdfast.server.models.instances import EntryView, EventView, StepView, Timeline
from holdfast.server.routes.instances import view
from holdfast.store.effects import EffectPlace, place_of_effect
from holdfast.store.reads.steps import Place, place_of

router = api_router("instances")


@router.get("/{instance_id}/steps", operation_id="list_steps", dependencies=[needs(Scope.READ)])
async def list_steps(
    instance_id: UUID, sight: CurrentSight, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[StepView]:
    """The steps of an instance in the order they were opened, with what each got and answered.

    Those the caller may not see are left out, here and in events and timeline, so a page may be short.
    """
    tells = await sight.steps_of(await sight.instance(instance_id))
    listing = Listing(sight.engine.org, "steps", instance=instance_id)
    found = await sight.engine.steps(instance_id, after=listing.place(cursor, Place), limit=limit + 1)
    shown, last = shown_of(found, limit)
    return Listed(
        items=[StepView.of(sight.told(step, "error")) for step in shown if tells(step.name)],
        next=listing.cursor_behind(last and place_of(last)),
    )


@router.get("/{instance_id}/events", operation_id="list_events", dependencies=[needs(Scope.READ)])
async def list_events(
    instance_id: UUID, sight: CurrentSight, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[EventView]:
    """The audit trail of an instance, oldest first: what happened, when, and who did it."""
    tells = await sight.steps_of(await sight.instance(instance_id))
    listing = Listing(sight.engine.org, "events", instance=instance_id)
    found = await sight.engine.events(instance_id, after=listing.place(cursor, Place), limit=limit + 1)
    shown, last = shown_of(found, limit)
    return Listed(
        items=[EventView.of(sight.told(event, "detail")) for event in shown if tells(event.node)],
        next=listing.cursor_behind(last and place_of(last)),
    )


@router.get("/{instance_id}/timeline", operation_id="get_timeline", dependencies=[needs(Scope.READ)])
async def get_timeline(instance_id: UUID, sight: CurrentSight) -> Timeline:
    """Steps, tasks and events of an instance as one story; of a very long one its beginning."""
    instance = await sight.instance(instance_id)
    entries, truncated = await read_timeline(sight.engine, instance_id, await sight.steps_of(instance))
    shown = [EntryView.of(sight.told(entry, "detail")) for entry in entries]
    return Timeline(instance=view(sight, instance), entries=shown, truncated=truncated)


@router.get("/{instance_id}/effects", operation_id="list_instance_effects", dependencies=[needs(Scope.READ)])
async def list_instance_effects(
    instance_id: UUID, sight: CurrentSight, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[EffectView]:
    """The effects of an instance, oldest first, each with the evidence of its last attempt."""
    await sight.instance(instance_id)
    listing = Listing(sight.engine.org, "effects of one", instance=instance_id)
    found = await sight.engine.effects(instance_id, after=listing.place(cursor, EffectPlace), limit=limit + 1)
    shown, last = shown_of(found, limit)
    return Listed(
        items=[EffectView.of(sight.told(effect, "error")) for effect in shown],
        next=listing.cursor_behind(last and place_of_effect(last)),
    )
