"""Human work: a step that waits for a person opens a task, and however the token leaves, the task ends with it.

The token waits for its task as it would wait for a child or a receipt, so the snapshot knows the task and every way of
leaving passes the same place. How the task ended is read off the step's own end.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.kernel.builder import Move, Turn, encode
from holdfast.core.kernel.failure import fail_visit
from holdfast.core.kernel.scopes import cancel_children
from holdfast.core.model.control_rows import TaskOverdue
from holdfast.core.model.decision import Closed, TaskClosed, TaskOpened
from holdfast.core.model.ids import task_id, token_id, wait_id
from holdfast.core.model.program import Place
from holdfast.core.model.signals import Failure
from holdfast.core.model.state import Token, Wait
from holdfast.core.model.status import StepStatus
from holdfast.core.model.timestamps import seconds

_REJECTIONS: Final = frozenset({"rejected", "reject"})
_CONFIRMATIONS: Final = frozenset({"confirmed", "confirm", "approved", "approve"})
_DECIDED: Final = frozenset({StepStatus.COMPLETED, StepStatus.CONFIRMED, StepStatus.REJECTED})
MOST_ASSIGNEE_BYTES: Final = 2000
_OUT_OF_TIME: Final = frozenset({"timeout", "expired"})


class _Closing(msgspec.Struct):
    comment: str | None = None


_closing = msgspec.json.Decoder(_Closing).decode


def is_rejection(decision: str) -> bool:
    return decision in _REJECTIONS


def is_approval(decision: str) -> bool:
    return decision in _CONFIRMATIONS


def is_confirmation(decision: str) -> bool:
    return decision in _CONFIRMATIONS or decision == "completed"


def answer_status(decision: str) -> StepStatus:
    """The status of a step that waited for a person, after their decision."""
    if decision in _REJECTIONS:
        return StepStatus.REJECTED
    return StepStatus.CONFIRMED if decision in _CONFIRMATIONS else StepStatus.COMPLETED


def task_waits(turn: Turn, place: Place, move: Move) -> list[Wait]:
    """The waits of a token for a person: the task, and the moment it is due."""
    token = token_id(move.path, move.hop)
    task = task_id(turn.now, turn.instance.id, token, move.run)
    waits = [Wait(wait_id(token, move.run, "task"), "task", ref=task)]
    due = place.node.due
    if due is not None:
        waits.append(turn.timer(move.path, wait_id(token, move.run, "due"), "due", turn.now + seconds(due)))
    return waits


def assignee_of(turn: Turn, place: Place, raw: bytes) -> str | Failure | None:
    """The person that the task is assigned to when it opens; None for no assignee.

    An expression without a value is accepted only if roles or capabilities limit the task: else it would open to
    everyone.
    """
    if place.assignee is None:
        return None
    node = place.node
    found = place.assignee.evaluate(turn.namespaces(place, raw))
    if isinstance(found, str) and 0 < len(found.encode()) <= MOST_ASSIGNEE_BYTES:
        return found
    if found is None and (node.roles or node.capabilities):
        return None
    message = f"The assignee {node.assignee!r} of {place.id!r} gave no person's name."
    return Failure("ASSIGNEE_INVALID", message)


def open_task(
    turn: Turn, place: Place, token: str, step: bytes, waits: list[Wait], payload: bytes, assignee: str | None
) -> None:
    node = place.node
    limit = node.due if node.due is not None else node.deadline
    turn.tasks = [
        *turn.tasks,
        TaskOpened(
            id=waits[0].ref or b"",
            step=step,
            node=place.id,
            token=token,
            roles=node.roles,
            priority=node.priority,
            due=None if limit is None else turn.now + seconds(limit),
            form=None if node.form is None else encode(node.form),
            payload=payload,
            assignee=assignee,
        ),
    ]


def settle_tasks(turn: Turn) -> None:
    """Complete the ends of tasks from the ends of their steps."""
    ends = {closed.id: closed for closed in turn.closed}
    turn.tasks = [_ended(t, ends[t.step]) if isinstance(t, TaskClosed) else t for t in turn.tasks]


def _ended(task: TaskClosed, step: Closed) -> TaskClosed:
    if step.status in _DECIDED:
        comment = None if step.closing is None else _closing(step.closing).comment
        return TaskClosed(task.id, task.step, "completed", step.outcome, comment, step.output)
    status = "expired" if step.outcome in _OUT_OF_TIME else "cancelled"
    return TaskClosed(task.id, task.step, status, reason=step.outcome)


def pass_due(turn: Turn, path: str, token: Token, place: Place, wait: str) -> None:
    """Handle a task that is due and undecided: take the `timeout` edge, or keep the task open and note it as overdue.

    A node with a deadline of its own keeps its `timeout` edge for the deadline.
    """
    if place.node.deadline is None and "timeout" in place.ways:
        turn.chain = 0
        cancel_children(turn, token, "due")
        message = f"Nobody decided on {place.id!r} within {place.node.due:g} s."
        fail_visit(turn, path, token, place, Failure("TASK_EXPIRED", message), 0, on="timeout")
        return
    name = token_id(path, token.hop)
    turn.control(TaskOverdue(path=path, wait=wait))
    turn.note("task_overdue", place.id, name, {"task": _task_of(token)})
    turn.tokens[path] = msgspec.structs.replace(token, waits=tuple(w for w in token.waits if w.id != wait))


def _task_of(token: Token) -> str | None:
    return next((w.ref.hex() for w in token.waits if w.kind == "task" and w.ref is not None), None)
