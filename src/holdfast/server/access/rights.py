"""Rights of a caller over workflows, in the plain words that the engine compares.

A grant may hold wildcards, and the engine does not read them: they are matched against the words that the definition at
hand names. A caller without wildcards skips that lookup.
"""

from __future__ import annotations

from uuid import UUID

from holdfast.errors import Forbidden
from holdfast.runtime.engine import Engine
from holdfast.runtime.people.descriptor import Descriptor
from holdfast.server.access.identity import Identity
from holdfast.server.access.visibility import Sight
from holdfast.server.auth.capabilities import ANY, granted, has_all


def has_wildcards(identity: Identity) -> bool:
    return any(ANY in grant for grant in identity.capabilities)


async def starting_words(engine: Engine, identity: Identity, workflow_id: str) -> tuple[str, ...]:
    """The engine compares plain words: wildcards are looked up in the version that a start takes."""
    if not has_wildcards(identity):
        return tuple(identity.capabilities)
    newest = await engine.flow(workflow_id)
    return granted(identity, newest.graph.policy.capabilities)


async def acting_words(sight: Sight, instance_id: UUID) -> tuple[str, ...]:
    if not has_wildcards(sight.identity):
        return tuple(sight.identity.capabilities)
    return await sight.acting_on(await sight.engine.get(instance_id))


async def descriptor_for(sight: Sight, instance_id: UUID) -> Descriptor:
    return await sight.engine.descriptor(
        instance_id,
        by=sight.identity.subject,
        roles=sight.identity.roles,
        capabilities=await acting_words(sight, instance_id),
        partition=sight.partition,
        sees_all=sight.operates,
    )


async def check_may_cancel(sight: Sight, instance_id: UUID) -> None:
    """Check the right to cancel.

    Allowed: the starter, holders of the flow's start capabilities, operators. If the caller cannot see the instance:
    404.
    """
    found = await sight.instance(instance_id)
    if sight.operates or found.created_by == sight.identity.subject:
        return
    flow = await sight.engine.flow(found.flow, found.flow_version)
    if not has_all(sight.identity.capabilities, flow.graph.policy.capabilities):
        raise Forbidden(
            "Only who started a workflow, or could have started it, may cancel it.",
            code="CAPABILITY_MISSING",
            hint="Ask one of them, or somebody who operates the server.",
        )
