"""The node each item of a written saga becomes."""

from __future__ import annotations

from typing import Any, Final

from holdfast.doors.saga.model import (
    Call,
    Called,
    Compensation,
    Condition,
    Fork,
    Human,
    Mail,
    NamedItem,
    Parallel,
    SavePoint,
    Sent,
    Sleep,
    Step,
    SubFlow,
    WaitEvent,
    Webhook,
)
from holdfast.graph.model import Child, Node, Retry, Wait

_PASSES: Final[dict[type, str]] = {Condition: "condition", SavePoint: "save_point", Fork: "split", Parallel: "split"}


def node_of(item: NamedItem, calls: int) -> Node:
    """Make the node of an item. `calls` is the default number of attempts."""
    match item:
        case Step():
            return _task(item, calls)
        case Call():
            return _call(item, calls)
        case Webhook():
            return _sent(item, "webhook", _webhook_config(item))
        case Mail():
            return _sent(item, "email", _mail_config(item))
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
        input=step.input,
        output=step.output,
        idempotent=step.idempotent,
        undo=_undo(step),
        priority=step.priority,
        metadata=step.metadata,
    )


def _call(call: Call, calls: int) -> Node:
    return Node(
        id=call.name,
        kind="action",
        handler=call.handler,
        retry=_retry(call, calls),
        timeout=call.timeout,
        deadline=call.deadline,
        input=call.input,
        output=call.output,
        undo=_undo(call),
        metadata=call.metadata,
    )


def _sent(item: Sent, kind: str, config: dict[str, Any]) -> Node:
    return Node(
        id=item.name,
        kind="effect",
        handler=kind,
        config=config,
        awaits=item.awaits,
        retry=None if item.retries is None else _again(item, max(1, item.retries)),
        timeout=item.timeout,
        deadline=item.deadline,
        input=item.input,
        metadata=item.metadata,
    )


def _webhook_config(item: Webhook) -> dict[str, Any]:
    said = {"type": item.type, "secret": item.secret, "headers": item.headers}
    flags = {name: False for name, is_on in (("signed", item.signed), ("envelope", item.envelope)) if not is_on}
    return {"url": item.url, **{name: value for name, value in said.items() if value is not None}, **flags}


def _mail_config(item: Mail) -> dict[str, Any]:
    said = {
        "to": item.to, "cc": item.cc, "bcc": item.bcc, "reply_to": item.reply_to, "from": item.sender,
        "subject": item.subject, "text": item.text, "html": item.html,
    }  # fmt: skip
    return {name: value for name, value in said.items() if value is not None}


def _again(item: Called | Call | Sent, calls: int) -> Retry:
    return Retry(
        calls=calls,
        delay=item.retry_delay,
        backoff=item.backoff,
        max_delay=item.max_delay,
        jitter=item.jitter,
    )


def _retry(step: Called | Call, calls: int) -> Retry | None:
    """The retry of a node: one attempt for a step that is not idempotent, despite the flow's default. A call in a
    transaction may be repeated."""
    is_repeatable = isinstance(step, Call) or step.idempotent
    calls = (calls if step.retries is None else step.retries) if is_repeatable else 1
    return None if calls <= 1 else _again(step, calls)


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


def _undo(item: Step | Call | Human | WaitEvent | SubFlow) -> str | None:
    return None if item.undo is None else item.undo.name
