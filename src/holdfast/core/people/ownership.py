"""Ownership of tasks: the rules of claim, release, assign and delegate, as pure functions over a task as it was read.

    open ──claim──▶ claimed ──release──▶ open
    open · assigned · claimed ──assign──▶ assigned ──claim──▶ claimed
    assigned · claimed ──delegate──▶ assigned

Each returns the change to make, or None when it is already so: a repeated request, also one whose first answer was
lost, has no second effect.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.core.model.decision import TaskFacts
from holdfast.errors import Conflict, Forbidden


class TaskStatus(StrEnum):
    OPEN = "open"  # no person has it
    ASSIGNED = "assigned"  # given to a person
    CLAIMED = "claimed"  # taken by a person
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


OVER: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.CANCELLED, TaskStatus.EXPIRED})


class Held(msgspec.Struct, frozen=True):
    """The facts of a task that the rules need."""

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
    """Assign the task to a person, even if another one holds it. The caller has checked the right to assign."""
    check_open(task)
    if task.assignee == to:
        return None
    return Change(TaskStatus.ASSIGNED, to, "assigned" if task.assignee is None else "reassigned", reason)


def delegate(task: Held, to: str, by: str, reason: str | None) -> Change | None:
    """Pass the task on from its holder to another person."""
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
    """Check that the decider holds the task or, while no person does, has one of its roles."""
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
    """Check that the actor has one of the wanted roles. None: the caller has checked; empty: the actor has none."""
    if roles is None or not wanted or set(wanted) & set(roles):
        return
    raise Forbidden(
        f"The task is for {', '.join(sorted(wanted))}.",
        code="TASK_ROLE_MISSING",
        hint="Act as somebody with one of these roles, or have it assigned.",
        roles=sorted(wanted),
    )
