"""The node each item of a written saga becomes."""

from __future__ import annotations

from typing import Final

from holdfast.compiler.graph import Child, Node, Retry, Wait
from holdfast.definitions.model import (
    Called,
    Compensation,
    Condition,
    Fork,
    Human,
    NamedItem,
    Parallel,
    SavePoint,
    Sleep,
    Step,
    SubFlow,
    WaitEvent,
)

_PASSES: Final[dict[type, str]] = {Condition: "condition", SavePoint: "save_point", Fork: "split", Parallel: "split"}


def node_of(item: NamedItem, calls: int) -> Node:
    """`calls` is the number of calls for a step that says nothing."""
    match item:
        case Step():
            return _task(item, calls)
        case Human():
            return _human(item)
        case WaitEvent():
            return _wait(item)
        case Sleep():
            return _timer(item)
        case SubFlow():
            return _sub_flow(item)
        case _:
            return Node(id=item.name, kind=_PASSES[type(item)], metadata=item.metadata)


def compensation_of(undo: Compensation, calls: int) -> Node:
    return Node(
        id=undo.name,
        kind="compensation",
        handler=undo.handler,
        queue=undo.queue,
        retry=_retry(undo, calls),
        timeout=undo.timeout,
        idempotent=undo.idempotent,
        priority=undo.priority,
        metadata=undo.metadata,
    )


def _task(step: Step, calls: int) -> Node:
    return Node(
        id=step.name,
        kind="task",
        handler=step.handler,
        queue=step.queue,
        retry=_retry(step, calls),
        timeout=step.timeout,
        deadline=step.deadline,
        delay=step.delay or None,
        idempotent=step.idempotent,
        undo=_undo(step),
        priority=step.priority,
        metadata=step.metadata,
    )


def _retry(step: Called, calls: int) -> Retry | None:
    """A call that may not be repeated is made once, whatever the flow says for the others."""
    calls = (calls if step.retries is None else step.retries) if step.idempotent else 1
    if calls <= 1:
        return None
    return Retry(
        calls=calls,
        delay=step.retry_delay,
        backoff=step.backoff,
        max_delay=step.max_delay,
        jitter=step.jitter,
    )


def _human(asked: Human) -> Node:
    return Node(
        id=asked.name,
        kind="human",
        form=asked.form,
        roles=asked.roles,
        due=asked.due,
        undo=_undo(asked),
        priority=asked.priority,
        metadata=asked.metadata,
    )


def _wait(item: WaitEvent) -> Node:
    return Node(
        id=item.name,
        kind="wait_event",
        wait=Wait(event=item.event, key=item.key, early=item.early),
        deadline=item.deadline,
        undo=_undo(item),
        metadata=item.metadata,
    )


def _timer(item: Sleep) -> Node:
    return Node(
        id=item.name,
        kind="wait_timer",
        delay=item.seconds,
        after=item.after,
        until=item.until,
        cron=item.cron,
        timezone=item.timezone,
        metadata=item.metadata,
    )


def _sub_flow(item: SubFlow) -> Node:
    return Node(
        id=item.name,
        kind="sub_flow",
        child=Child(flow=item.flow, version=item.version),
        input=item.input,
        deadline=item.deadline,
        undo=_undo(item),
        metadata=item.metadata,
    )


def _undo(item: Step | Human | WaitEvent | SubFlow) -> str | None:
    return None if item.undo is None else item.undo.name
