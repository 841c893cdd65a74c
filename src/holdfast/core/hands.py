"""In whose hands a task is, and who may put it into others: the rules, as pure functions over a task as it was read.

    open ──claim──▶ claimed ──release──▶ open
    open · assigned · claimed ──assign──▶ assigned ──claim──▶ claimed
    assigned · claimed ──delegate──▶ assigned

Each answers the change to make, or None when it is already so: a repeated request, also one whose first answer was
lost, has no second effect.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.decision import TaskFacts
from holdfast.errors import Conflict, Forbidden


class TaskStatus(StrEnum):
    OPEN = "open"  # nobody has it
    ASSIGNED = "assigned"  # somebody was given it
    CLAIMED = "claimed"  # somebody took it
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


OVER: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.CANCELLED, TaskStatus.EXPIRED})


class Held(msgspec.Struct, frozen=True):
    """What the rules need to know of a task."""

    status: TaskStatus
    assignee: str | None = None
    roles: tuple[str, ...] = ()
    decided_by: str | None = None
    reason: str | None = None


class Change(msgspec.Struct, frozen=True):
    status: TaskStatus
    assignee: str | None
    event: str
    reason: str | None = None


def claim(task: Held, by: str, roles: Collection[str] | None) -> Change | None:
    check_open(task)
    _refuse_others(task.assignee, by)
    if task.assignee is None:
        _check_roles(task.roles, roles)
    if task.status is TaskStatus.CLAIMED:
        return None
    return Change(TaskStatus.CLAIMED, by, "claimed")


def release(task: Held, by: str) -> Change | None:
    check_open(task)
    _refuse_others(task.assignee, by)
    return None if task.assignee is None else Change(TaskStatus.OPEN, None, "released")


def assign(task: Held, to: str, reason: str | None) -> Change | None:
    """Give it to somebody, out of whoever's hands: whether the one who asks may do so is not known here."""
    check_open(task)
    if task.assignee == to:
        return None
    return Change(TaskStatus.ASSIGNED, to, "assigned" if task.assignee is None else "reassigned", reason)


def delegate(task: Held, to: str, by: str, reason: str | None) -> Change | None:
    """Pass on what is in one's own hands."""
    check_open(task)
    if task.assignee == to:
        return None
    if task.assignee is None:
        raise Conflict(
            "The task is in nobody's hands, so nobody can pass it on.",
            code="TASK_NOT_HELD",
            hint="Claim it first, or assign it.",
        )
    _refuse_others(task.assignee, by)
    return Change(TaskStatus.ASSIGNED, to, "delegated", reason)


def check_decider(task: TaskFacts | None, by: str, roles: Collection[str] | None) -> None:
    """Whoever holds the task decides it; as long as nobody does, anybody with one of its roles may."""
    if task is None:
        return
    _refuse_others(task.assignee, by)
    if task.assignee is None:
        _check_roles(task.roles, roles)


def check_open(task: Held) -> None:
    if task.status not in OVER:
        return
    by = f" by {task.decided_by!r}" if task.decided_by is not None else ""
    why = f" ({task.reason})" if task.reason is not None else ""
    raise Conflict(
        f"The task is already {task.status}{by}{why}.",
        code="TASK_OVER",
        hint="Nothing more can be done with it; read it to see how it ended.",
        status=str(task.status),
        decided_by=task.decided_by,
        reason=task.reason,
    )


def _refuse_others(assignee: str | None, by: str) -> None:
    if assignee is not None and assignee != by:
        raise Conflict(
            f"The task is in the hands of {assignee!r}.",
            code="TASK_CLAIMED",
            hint="Only they can act on it, until they release it or it is assigned to somebody else.",
            assignee=assignee,
        )


def _check_roles(wanted: Collection[str], roles: Collection[str] | None) -> None:
    """Roles that were not given have been checked by the caller; none at all is an answer, too."""
    if roles is None or not wanted or set(wanted) & set(roles):
        return
    raise Forbidden(
        f"The task is for {', '.join(sorted(wanted))}.",
        code="TASK_ROLE_MISSING",
        hint="Act as somebody with one of these roles, or have it assigned.",
        roles=sorted(wanted),
    )
