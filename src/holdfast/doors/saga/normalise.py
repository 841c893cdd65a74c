"""The form in which a built definition is kept: numbers as they are stored, JSON as a private copy."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.doors.saga.model import Called, Compensation, Condition, Fork, Item, Items, Parallel, undo_of
from holdfast.payloads import canonical

_SECONDS: Final = ("retry_delay", "max_delay", "jitter", "timeout", "deadline", "delay", "due", "seconds")
_JSON: Final = ("metadata", "form", "input", "output")


def settled_path(items: Items) -> Items:
    return tuple(_settled(item) for item in items)


def _settled(item: Item) -> Item:
    changes = _own_fields(item)
    undo = undo_of(item)
    if undo is not None:
        changes["undo"] = _settled_undo(undo)
    if isinstance(item, Fork | Parallel):
        changes["branches"] = tuple(settled_path(branch) for branch in item.branches)
    if isinstance(item, Condition) and item.otherwise is not None:
        changes["otherwise"] = settled_path(item.otherwise)
    return msgspec.structs.replace(item, **changes) if changes else item


def _settled_undo(undo: Compensation) -> Compensation:
    return msgspec.structs.replace(undo, **_own_fields(undo))


def _own_fields(item: Item | Compensation) -> dict[str, Any]:
    given = {name: getattr(item, name) for name in type(item).__struct_fields__}
    changes: dict[str, Any] = {name: float(given[name]) for name in _SECONDS if given.get(name) is not None}
    changes |= {name: msgspec.json.decode(canonical(given[name])) for name in _JSON if given.get(name) is not None}
    if isinstance(item, Called):
        changes["retries"] = _calls(item)
    return changes


def _calls(item: Called) -> int | None:
    """A call whose outcome may not be repeated is made once, whatever the flow says for the others."""
    if not item.idempotent:
        return 1
    return None if item.retries is None else max(1, item.retries)
