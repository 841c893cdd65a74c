"""Inbox of one person, as one list: their own tasks, open tasks for their roles, and open tasks for anyone with the
right to act.

Each part is a list of its own that an index keeps in order; a page of the whole is the beginning of all parts merged.
So its cost grows with the number of roles and the size of the page, never with the number of tasks. The right to act on
a task without assignee and roles is in the definition, not in an index: a page examines a bounded number of these, and
the next page continues behind the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import msgspec

from holdfast.core.model.program import Program
from holdfast.core.model.signals import SYSTEM
from holdfast.errors import Refused
from holdfast.runtime.catalog import Catalog
from holdfast.runtime.people.tasks import Tasks
from holdfast.runtime.people.visibility import needed_to_act
from holdfast.runtime.validation import Id
from holdfast.store.pg.session import Session
from holdfast.store.tasks import FreeTask, Task, list_free_tasks

MOST_ROLES: Final = 30
MOST_ITEMS: Final = 500
LOOKED_AT: Final = 1000  # free tasks, for one page
AT_ONCE: Final = 200
_NEVER: Final = datetime.max.replace(tzinfo=UTC)

Holds = Callable[[str], bool]


class Inbox(msgspec.Struct, frozen=True):
    """Some tasks, most urgent first, and behind which the next page begins; None when this is the last one."""

    items: list[Task]
    next: str | None


class InboxReader:
    def __init__(self, session: Session, org: str, catalog: Catalog, tasks: Tasks) -> None:
        self._session = session
        self._org = org
        self._catalog = catalog
        self._tasks = tasks

    async def read(
        self, by: str, roles: Collection[str], holds: Holds, status: str | None, after: Id | None, limit: int
    ) -> Inbox:
        if type(limit) is not int or not 1 <= limit <= MOST_ITEMS:
            raise Refused(f"A page of an inbox holds 1 to {MOST_ITEMS} tasks.", code="LIMIT_INVALID")
        named = dict.fromkeys(roles)
        if len(named) > MOST_ROLES:
            raise Refused(
                f"An inbox is made of at most {MOST_ROLES} roles.",
                code="ROLES_TOO_MANY",
                hint="Ask for one role at a time.",
            )
        found = await self._listed(None, by, status, after, limit + 1)
        horizon: Task | None = None
        if status in (None, "open"):
            for role in named:
                found += await self._listed(role, None, "open", after, limit + 1)
            free, horizon = await self._free(by, holds, after, limit + 1)
            found += free
        merged = sorted({task.id: task for task in found}.values(), key=_urgency)
        if horizon is not None:  # tasks behind it come with the free ones not examined yet
            merged = [task for task in merged if _urgency(task) <= _urgency(horizon)]
        if len(merged) > limit:
            return Inbox(merged[:limit], merged[limit - 1].id)
        return Inbox(merged, None if horizon is None else horizon.id)

    async def _listed(
        self, role: str | None, assignee: str | None, status: str | None, after: Id | None, limit: int
    ) -> list[Task]:
        return await self._tasks.list(None, role=role, assignee=assignee, status=status, after=after, limit=limit)

    async def _free(self, by: str, holds: Holds, after: Id | None, most: int) -> tuple[list[Task], Task | None]:
        """Find tasks for everyone that this person may act on; and the last one examined, if there may be more."""
        found: list[Task] = []
        last: Task | None = None
        for _ in range(LOOKED_AT // AT_ONCE):
            position = await self._tasks.position(after if last is None else last.id)
            page = await list_free_tasks(self._session, self._org, position, AT_ONCE)
            found += [one.task for one in page if await self._may_act(one, by, holds)]
            if len(page) < AT_ONCE:
                return found, None
            last = page[-1].task
            if len(found) >= most:
                break
        return found, last

    async def _may_act(self, one: FreeTask, by: str, holds: Holds) -> bool:
        return _may_act(one, await self._catalog.program(self._session, one.definition), by, holds)


def _may_act(free: FreeTask, program: Program, by: str, holds: Holds) -> bool:
    """Check for the right to see the instance, by a capability of its flow or step, and for all the step asks for."""
    place = program.places.get(free.task.node)
    if place is None:
        return False
    needed, wanted_to_see = needed_to_act(place), program.policy.capabilities
    is_own = free.starter == by and by != SYSTEM.id
    if not all(map(holds, needed)) or (is_own and not place.node.self_approval):
        return False
    return is_own or not wanted_to_see or bool(place.node.capabilities) or any(map(holds, wanted_to_see))


def _urgency(task: Task) -> tuple[int, datetime, UUID]:
    """The order of the engine's own lists."""
    return -task.priority, task.due_at or _NEVER, UUID(task.id)
