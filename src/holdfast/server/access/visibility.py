"""The tenant through the eyes of one caller: the instances they may see, and the words with which they act.

The rule itself is `may_see` of `runtime/people/visibility.py`, the same for every route that answers with data of an
instance; `sees_step` selects the steps to show. Any other caller cannot tell an instance from one that does not exist.
Seeing is not acting: the kernel decides on that, by the capabilities that the flow names and the caller has.

Tasks are read only where no other rule lets the caller see, and for a whole page at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar, cast
from uuid import UUID

import msgspec
from fastapi import Depends, Request

from holdfast.core.model.ack_handles import decode_ack, unknown_ack
from holdfast.errors import Conflict, Forbidden, NotFound
from holdfast.runtime.consumers.receiving import unknown_consumer
from holdfast.runtime.effects.outbox import unknown_effect
from holdfast.runtime.engine import Engine
from holdfast.runtime.machines.triggers import TriggerResult, flow_of, unknown_reference
from holdfast.runtime.people.start_rules import PARTITION
from holdfast.runtime.people.summaries import Summary
from holdfast.runtime.people.tasks import unknown_task
from holdfast.runtime.people.visibility import Named, Person, is_asked, is_within, may_see, sees_step
from holdfast.runtime.reads.views import unknown_instance
from holdfast.server.access.identity import Identity, current_identity
from holdfast.server.access.named import NamedCapabilities
from holdfast.server.access.scopes import Scope, current_scopes
from holdfast.server.access.tenants import tenant_engine
from holdfast.server.auth.capabilities import ANY, granted
from holdfast.store.consumers import KnownConsumer
from holdfast.store.effects import Effect
from holdfast.store.machines import MachineInstance
from holdfast.store.notices import Notice
from holdfast.store.reads.instances import Instance
from holdfast.store.tasks import Task

Told = TypeVar("Told", bound=msgspec.Struct)


class Sight:
    """The tenant through the eyes of one caller."""

    def __init__(
        self, engine: Engine, identity: Identity, scopes: frozenset[str], capabilities: NamedCapabilities
    ) -> None:
        self.engine = engine
        self.identity = identity
        self.scopes = scopes
        self._capabilities = capabilities
        self._people: dict[tuple[str, int], tuple[Person, Named]] = {}

    @property
    def operates(self) -> bool:
        return Scope.OPERATE in self.scopes

    @property
    def partition(self) -> str | None:
        """The one that this caller is kept to; operators have the whole tenant."""
        return None if self.operates else self.identity.partition or None

    # --- instances -------------------------------------------------------------------------------------------------

    async def instance(self, id: UUID) -> Instance:
        found = await self.engine.get(id)
        if not await self.may_see(found):
            raise unknown_instance(id)
        return found

    async def may_see(self, instance: Instance) -> bool:
        return bool(await self.instances([instance]))

    async def instances(self, found: Sequence[Instance]) -> list[Instance]:
        """The visible instances of a page."""
        if self.operates:
            return list(found)
        doubtful = [one for one in found if not may_see(*await self._eyes(one), ())]
        about = await self.engine.tasks_about([one.id for one in doubtful], self.identity.subject)
        hidden: set[str] = set()
        for one in doubtful:
            person, view, named = await self._eyes(one)
            if not may_see(person, view, named, [task for task in about if task.instance_id == one.id]):
                hidden.add(one.id)
        return [one for one in found if one.id not in hidden]

    async def summaries(self, found: Sequence[Summary]) -> list[Summary]:
        """The same of a list of workflows."""
        seen = {one.id for one in await self.instances([_instance_of(one, self.engine.org) for one in found])}
        return [one for one in found if one.id in seen]

    def check_started(self, started: Instance) -> None:
        """Check that an instance found by an Idempotency-Key is the caller's own."""
        if started.created_by != self.identity.subject or not is_within(self._person(()), started):
            raise Conflict(
                "Somebody else has used this key.",
                code="IDEMPOTENCY_KEY_REUSED",
                hint="Make a new key for a new start.",
            )

    async def steps_of(self, instance: Instance) -> Callable[[str | None], bool]:
        """The filter, by name, of the steps of an instance that the caller may see."""
        person, _, named = await self._eyes(instance)
        return lambda step: sees_step(person, named, step)

    async def _eyes(self, instance: Instance) -> tuple[Person, Instance, Named]:
        key = instance.flow, instance.flow_version
        if key not in self._people:
            named = await self._capabilities.of(self.engine, *key)
            self._people[key] = self._person(await self.acting(*key)), named
        person, named = self._people[key]
        return person, instance, named

    def _person(self, words: Iterable[str]) -> Person:
        """The caller with plain words, as the engine compares them."""
        given = self.identity
        return Person(given.subject, frozenset(words), frozenset(given.roles), self.partition, self.operates)

    # --- tasks -----------------------------------------------------------------------------------------------------

    async def task(self, id: UUID) -> Task:
        found = await self.engine.task(id)
        if not await self.tasks([found]):
            raise unknown_task(id)
        return found

    async def tasks(self, found: Sequence[Task]) -> list[Task]:
        """One's own, and those of steps that one may see of instances that one may see."""
        if self.operates:
            return list(found)
        caller = self._person(())
        if self.partition is None and all(is_asked(task, caller) for task in found):
            return list(found)
        behind = await self.engine.instances_by_id([task.instance_id for task in found])
        seen = {one.id: await self.steps_of(one) for one in await self.instances(list(behind.values()))}
        return [
            task
            for task in found
            if task.instance_id in seen and (is_asked(task, caller) or seen[task.instance_id](task.node))
        ]

    # --- effects ---------------------------------------------------------------------------------------------------

    async def effect(self, id: UUID) -> Effect:
        found = await self.engine.get_effect(id)
        if not await self.effects([found]):
            raise unknown_effect(id)
        return found

    async def effects(self, found: Sequence[Effect]) -> list[Effect]:
        """The effects of visible instances."""
        if self.operates:
            return list(found)
        behind = await self.engine.instances_by_id({effect.instance_id for effect in found})
        seen = {one.id for one in await self.instances(list(behind.values()))}
        return [effect for effect in found if effect.instance_id in seen]

    # --- notices ---------------------------------------------------------------------------------------------------

    async def notices(self, found: Sequence[Notice]) -> list[Notice]:
        """The notices about visible instances and states; those about no instance are for operators."""
        if self.operates:
            return list(found)
        behind = await self.engine.instances_by_id({each.instance_id for each in found if each.instance_id})
        seen = {one.id: await self.steps_of(one) for one in await self.instances(list(behind.values()))}
        return [each for each in found if each.instance_id in seen and seen[each.instance_id](each.state)]

    # --- machines and consumers ------------------------------------------------------------------------------------

    async def machine_instance(self, environment: str, definition: str, external_ref: str) -> int | None:
        """Check that the instance of a reference is visible, if there is one; the version it runs, if that is read.

        For a caller who sees every instance of the machine, and acts with plain words, nothing is read.
        """
        flow = flow_of(environment, definition)
        is_everything_seen = self.partition is None and await self._is_open(flow)
        if is_everything_seen and not self._has_wildcards:
            return None
        try:
            found = await self.engine.machine(environment, definition, external_ref)
        except NotFound:
            return None
        await self.seen_machine(found)
        return found.flow_version

    async def seen_machine(self, found: MachineInstance) -> MachineInstance:
        """Check that an instance is visible, and leave out the state if that is not."""
        behind = await self.engine.get(found.id)
        if not await self.may_see(behind):
            raise unknown_reference(f"{found.environment}.{found.definition}", found.external_ref)
        tells = await self.steps_of(behind)
        return found if tells(found.state) else msgspec.structs.replace(found, state=None, last_event=None)

    async def answer(self, flow: str, told: TriggerResult) -> TriggerResult:
        """Leave out of the answer to a trigger the states that the caller may not see."""
        if await self._is_open(flow):
            return told
        tells = await self.steps_of(await self.engine.get(told.instance))
        return msgspec.structs.replace(
            told,
            from_state=told.from_state if tells(told.from_state) else None,
            to_state=told.to_state if tells(told.to_state) else None,
        )

    async def _is_open(self, flow: str) -> bool:
        """Check that the caller may see every instance of a machine, as far as capabilities go, and every state."""
        newest = await self._newest(flow)
        return self.operates or await self._capabilities.are_none(self.engine, flow, newest)

    def check_consumes(self) -> None:
        """Refuse callers of one partition: a consumer takes the facts of the whole tenant."""
        if self.partition is not None:
            raise Forbidden(
                "A consumer takes the facts of all partitions, and the caller belongs to one.",
                code="PARTITION_FORBIDDEN",
                hint="Register it with a key that has no partition.",
            )

    async def consumer(self, environment: str, name: str) -> KnownConsumer:
        """Read a consumer of the caller's own; operators have all of them."""
        known = await self.engine.known_consumer(environment, name)
        if not self.operates and (known.owner != self.identity.subject or self.partition is not None):
            raise unknown_consumer(environment, name)
        return known

    # --- words -----------------------------------------------------------------------------------------------------

    async def acting_on(self, instance: Instance) -> tuple[str, ...]:
        """The capabilities the caller acts with there, as the kernel compares them."""
        return await self.acting(instance.flow, instance.flow_version)

    async def acting_on_fact(self, ack: str) -> tuple[str, ...]:
        """The capabilities the caller acts with on the instance of a fact."""
        if not self._has_wildcards:
            return tuple(self.identity.capabilities)
        try:
            return await self.acting_on(await self.engine.get(UUID(bytes=decode_ack(ack).instance)))
        except NotFound:
            raise unknown_ack(ack) from None

    @property
    def _has_wildcards(self) -> bool:
        return any(ANY in grant for grant in self.identity.capabilities)

    async def acting(self, flow: str, version: int | None) -> tuple[str, ...]:
        """The words to act with. Grants without wildcards are such words already; the others are matched against the
        flow's.
        """
        if not self._has_wildcards:
            return tuple(self.identity.capabilities)
        if version is None:
            version = await self._newest(flow)
        named = await self._capabilities.of(self.engine, flow, version)
        return granted(self.identity, named.anywhere)

    async def _newest(self, flow: str) -> int:
        known = self.engine.catalog.cached(self.engine.org, flow, None)
        return known.version if known is not None else (await self.engine.flow(flow)).version

    def told(self, found: Told, *fields: str) -> Told:
        """Strip tracebacks, except for operators."""
        if self.operates:
            return found
        return msgspec.structs.replace(found, **{name: _without_traceback(getattr(found, name)) for name in fields})


async def sight_of(request: Request) -> Sight:
    """Make the caller's view in the route itself: a dependency costs a request as much as a small query."""
    state, identity = request.app.state, await current_identity(request)
    if not hasattr(state, "named_capabilities"):
        state.named_capabilities = NamedCapabilities()
    return Sight(
        tenant_engine(request, identity), identity, await current_scopes(request), state.named_capabilities
    )  # fmt: skip


def _without_traceback(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    known = cast("dict[str, Any]", value)
    return {name: _without_traceback(part) for name, part in known.items() if name != "traceback"}


CurrentSight = Annotated[Sight, Depends(sight_of)]


def _instance_of(one: Summary, org: str) -> Instance:
    """An instance with the fields of a list row, enough for the rule."""
    return Instance(
        one.id, one.workflow.id, one.workflow.version, one.status, one.version, None, None, org,
        created_by=one.subject_id, attributes={PARTITION: one.partition_id},
    )  # fmt: skip
