"""The inbox of one person: what is in their hands, and what is open for their roles, as one list.

Each part is a list of its own that the engine keeps in order; a page of the whole is the beginning of all parts merged.
So its cost grows with the number of roles and the size of the page, never with the number of tasks.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from holdfast.errors import Refused
from holdfast.runtime.engine import Engine
from holdfast.server.identity import Identity
from holdfast.store.tasks import Task

MOST_ROLES: Final = 30
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


async def read_inbox(
    engine: Engine, identity: Identity, status: str | None, after: str | None, limit: int
) -> list[Task]:
    """Most urgent first; `after` is the id of the last task of the page before."""
    roles = dict.fromkeys(identity.roles)
    if len(roles) > MOST_ROLES:
        raise Refused(
            f"An inbox is made of at most {MOST_ROLES} roles.",
            code="ROLES_TOO_MANY",
            hint="Ask for one role at a time.",
        )
    found = await engine.tasks(assignee=identity.subject, status=status, after=after, limit=limit)
    if status in (None, "open"):
        for role in roles:
            found += await engine.tasks(role=role, status="open", after=after, limit=limit)
    return sorted({task.id: task for task in found}.values(), key=_urgency)[:limit]


def _urgency(task: Task) -> tuple[int, datetime, UUID]:
    """The order of the engine's own lists."""
    return -task.priority, task.due_at or _NEVER, UUID(task.id)
