"""Who may see what. One rule for every route that answers with data of an instance:

- whoever has one of the capabilities that its flow names, or anybody of the tenant where it names none;
- whoever started it;
- whoever has a task of it in hand or might take one that is open, by role or by a capability of its step;
- operators.

Nobody else can tell it from an instance that does not exist. Seeing is not acting: that the kernel decides, with the
capabilities that the flow names and the caller has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar, cast
from uuid import UUID

import msgspec
from fastapi import Depends, Request

from holdfast.compiler.compiled import Compiled
from holdfast.core.hands import OVER
from holdfast.errors import DefinitionError, NotFound
from holdfast.runtime.engine import Engine
from holdfast.runtime.tasks import unknown_task
from holdfast.runtime.views import unknown_instance
from holdfast.server.auth.capabilities import ANY, granted, has_any
from holdfast.server.identity import Identity, current_identity
from holdfast.server.scopes import Scope, current_scopes
from holdfast.server.tenants import tenant_engine
from holdfast.store.reads import Instance
from holdfast.store.tasks import Task

Told = TypeVar("Told", bound=msgspec.Struct)

KEPT: Final = 2000
TASKS_LOOKED_AT: Final = 100


class Named(msgspec.Struct, frozen=True):
    """The capabilities a published version names: for its instances, and anywhere in it."""

    to_see: tuple[str, ...]
    by_step: dict[str, tuple[str, ...]]
    anywhere: tuple[str, ...]


class NamedCapabilities:
    """Kept per version, because a published one never changes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], Named] = OrderedDict()

    async def of(self, engine: Engine, flow: str, version: int) -> Named | None:
        """None: the definition is gone or cannot be read, so nobody knows whom it would let see."""
        key = engine.org, flow, version
        found = self._kept.get(key)
        if found is not None:
            return found
        try:
            found = _named((await engine.flow(flow, version)).graph)
        except (NotFound, DefinitionError):
            return None
        self._kept[key] = found
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found


class Sight:
    """The tenant through the eyes of one caller."""

    def __init__(
        self, engine: Engine, identity: Identity, scopes: frozenset[str], capabilities: NamedCapabilities
    ) -> None:
        self.engine = engine
        self.identity = identity
        self.scopes = scopes
        self._capabilities = capabilities

    async def instance(self, id: UUID) -> Instance:
        found = await self.engine.get(id)
        if not await self.may_see(found):
            raise unknown_instance(id)
        return found

    async def task(self, id: UUID) -> Task:
        found = await self.engine.task(id)
        if not self.is_mine(found) and not await self._may_see_instance_of(found):
            raise unknown_task(id)
        return found

    async def instances(self, found: Sequence[Instance]) -> list[Instance]:
        """Those of a page that may be seen."""
        return [one for one in found if await self.may_see(one)]

    async def tasks(self, found: Sequence[Task]) -> list[Task]:
        return [one for one in found if self.is_mine(one) or await self._may_see_instance_of(one)]

    async def may_see(self, instance: Instance) -> bool:
        if Scope.OPERATE in self.scopes or instance.created_by == self.identity.subject:
            return True
        named = await self._capabilities.of(self.engine, instance.flow, instance.flow_version)
        if named is not None and has_any(self.identity.capabilities, named.to_see):
            return True
        tasks = await self.engine.tasks(UUID(instance.id), limit=TASKS_LOOKED_AT)
        return any(self.is_mine(task) or self._may_act_at(task, named) for task in tasks)

    def is_mine(self, task: Task) -> bool:
        """In this person's hands, or free for them to take; of what is over, what they decided."""
        if task.status in OVER:
            return self.identity.subject in (task.decided_by, task.assignee)
        if task.assignee is not None:
            return task.assignee == self.identity.subject
        return bool(set(task.roles) & set(self.identity.roles))

    def _may_act_at(self, task: Task, named: Named | None) -> bool:
        wanted = () if named is None or task.status in OVER else named.by_step.get(task.node, ())
        return bool(wanted) and has_any(self.identity.capabilities, wanted)

    async def acting_on(self, instance: Instance) -> tuple[str, ...]:
        """The capabilities the caller acts with there, as the kernel compares them."""
        return await self.acting(instance.flow, instance.flow_version)

    async def acting(self, flow: str, version: int | None) -> tuple[str, ...]:
        """Grants without wildcards are such words already; the others are looked up in what the flow names."""
        if not any(ANY in grant for grant in self.identity.capabilities):
            return tuple(self.identity.capabilities)
        if version is None:
            version = await self._newest(flow)
        named = await self._capabilities.of(self.engine, flow, version)
        return () if named is None else granted(self.identity, named.anywhere)

    async def _newest(self, flow: str) -> int:
        known = self.engine.catalog.cached(self.engine.org, flow, None)
        return known.version if known is not None else (await self.engine.flow(flow)).version

    def told(self, found: Told, *fields: str) -> Told:
        """As it may be shown: where in the code an error arose is for operators."""
        if Scope.OPERATE in self.scopes:
            return found
        return msgspec.structs.replace(found, **{name: _without_traceback(getattr(found, name)) for name in fields})

    async def _may_see_instance_of(self, task: Task) -> bool:
        return Scope.OPERATE in self.scopes or await self.may_see(await self.engine.get(task.instance_id))


async def sight_of(request: Request) -> Sight:
    """What the routes most in use call themselves: a dependency costs a request as much as a small query."""
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


def _named(graph: Compiled) -> Named:
    by_step = {id: node.capabilities for id, node in graph.nodes.items() if node.capabilities}
    return Named(graph.policy.capabilities, by_step, tuple(dict.fromkeys(_mentioned(graph))))


def _mentioned(graph: Compiled) -> list[str]:
    found = [*graph.policy.capabilities]
    for node in graph.nodes.values():
        found += [*node.capabilities, *([node.guard] if node.guard else [])]
    return [*found, *(edge.guard for edge in graph.edges.values() if edge.guard)]
