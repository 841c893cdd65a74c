"""A published flow as the builder code that would write it again: `exec` of it builds an equal definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from holdfast.doors.layout import INDENT, Chain, Group, Layout, shown, value_layout
from holdfast.doors.saga.model import (
    Call,
    Called,
    Compensation,
    Condition,
    Definition,
    Fork,
    Item,
    Items,
    Join,
    Named,
    Parallel,
    Rejoin,
    Sent,
    Step,
    SubFlow,
    WaitEvent,
    Webhook,
    every_item,
    inner_paths,
    undo_of,
)
from holdfast.doors.saga.source import read_source

_NOT_OPTIONS: Final = frozenset({"name", "metadata", "handler", "undo", "branches", "expression", "otherwise"})
_RETRY: Final = {  # a stored field → the option of `Retry`
    "retries": "attempts",
    "retry_delay": "delay",
    "backoff": "backoff",
    "max_delay": "max_delay",
    "jitter": "jitter",
}


def code_of(source: Mapping[str, Any] | Definition) -> str:
    """Python that assigns the built definition to `flow`."""
    definition = source if isinstance(source, Definition) else read_source(source)
    calls = Chain((_flow(definition), *_calls(definition.items), Group(".build(", ())))
    lines = (" " * INDENT + shown(call, INDENT) for call in calls.calls)
    return f"from holdfast import {', '.join(_imports(definition))}\n\nflow = (\n" + "\n".join(lines) + "\n)\n"


def _imports(definition: Definition) -> Iterator[str]:
    items = list(every_item(definition.items))
    undos = [undo for item in items if (undo := undo_of(item))]
    if any(inner_paths(item) for item in items):
        yield "Branch"
    yield "Flow"
    if any(_retries(item) for item in (*items, *undos)):
        yield "Retry"
    if any(not isinstance(_undo(undo), str) for undo in undos):
        yield "Undo"


def _flow(definition: Definition) -> Group:
    options = {
        "version": definition.version,
        **({"dlq": True} if definition.dlq else {}),
        **({"attempts": definition.retries} if definition.retries != 1 else {}),
        **({"timeout": _number(definition.timeout)} if definition.timeout is not None else {}),
        **({"data": definition.data} if definition.data != "value" else {}),
    }
    return Group(
        "Flow(", (("", value_layout(definition.name)), *((f"{key}=", value_layout(v)) for key, v in options.items()))
    )


def _calls(items: Items) -> Iterator[Group]:
    for item in items:
        yield _call(item)


def _call(item: Item) -> Group:
    if isinstance(item, Rejoin):
        return Group(".rejoin(", ())
    verb = type(item).__struct_config__.tag
    undo = undo_of(item)
    undone = (("undo=", _undo(undo)),) if undo else ()
    return Group(f".{verb}(", (("", value_layout(item.name)), *_positional(item), *undone, *_named(item)))


def _undo(undo: Compensation) -> Layout:
    name = () if undo.name == undo.handler else (("name=", value_layout(undo.name)),)
    options = (*name, *_named(undo))
    handler = value_layout(undo.handler)
    return Group("Undo(", (("", handler), *options)) if options else handler


def _named(item: Named) -> Iterator[tuple[str, Layout]]:
    if retry := _retries(item):
        yield "retry=", Group("Retry(", tuple((f"{name}=", value_layout(value)) for name, value in retry.items()))
    for name, value in _options(item):
        yield f"{name}=", value_layout(value)


def _retries(item: object) -> dict[str, Any]:
    """The options of the item's `Retry` that differ from the defaults."""
    if not isinstance(item, Called | Call | Sent):
        return {}
    defaults = {field.name: field.default for field in msgspec.structs.fields(item)}
    said = {written: getattr(item, name) for name, written in _RETRY.items() if getattr(item, name) != defaults[name]}
    return {name: _number(value) for name, value in said.items()}


def _positional(item: Named) -> Iterator[tuple[str, Layout]]:
    match item:
        case Step() | Call():
            yield "", value_layout(item.handler)
        case WaitEvent() if item.event != item.name:
            yield "", value_layout(item.event)
        case Webhook():
            yield "", value_layout(item.url)
        case SubFlow():
            yield "", value_layout(item.flow)
        case Join():
            yield "", value_layout(item.mode)
        case Condition():
            yield "", value_layout(item.expression)
            if item.otherwise is not None:
                yield "otherwise=", _branch(item.otherwise)
        case Fork() | Parallel():
            yield from (("", _branch(branch)) for branch in item.branches)
        case _:
            pass


def _branch(items: Items) -> Chain:
    return Chain((Group("Branch(", ()), *_calls(items)))


def _options(item: Named) -> Iterator[tuple[str, Any]]:
    """The options that differ from the defaults, in the order of the builder's own arguments; metadata last."""
    said = {"event", "flow", "mode", "url", *_RETRY} | _NOT_OPTIONS
    for field in msgspec.structs.fields(item):
        value = getattr(item, field.name)
        if field.name not in said and value != field.default:
            yield field.name, _number(value)
    if item.metadata:
        yield "metadata", item.metadata


def _number(value: Any) -> Any:
    """Print a number: seconds are stored as floats, and printed without a needless fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
