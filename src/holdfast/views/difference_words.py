"""The words of a difference: the names of its parts, and a line for each field that changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from holdfast.graph.difference.model import Difference, FieldChange, PartChange, Side, SlotDifference
from holdfast.graph.envelope import ENVELOPE, NEVER, short_name
from holdfast.views.spans import in_words

SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}
ARROW: Final = "→"
_DURATIONS: Final = frozenset({"due", "delay", "deadline", "timeout"})
# In the heading of a part, or a consequence of the fields that are shown.
_IMPLIED: Final = frozenset({"kind", "handler", "config.port", "config.output_keys", "config.hash", "hash", "stable"})
_LABELS: Final = {
    "roles": "role",
    "due": "due in",
    "delay": "wait",
    "when": "",
    "edit_window": "",
    "window": "",
    "window.contract": "by the contract",
    "window.patch": "by the patch",
    "assignee": "person",
    "config.when": "",
    "config.action": "",
    "config.run_as": "as",
    "config.table": "",
    "config.version": "version",
    "config.capability": "capability",
    "config.approvals": "approvals",
    "guard": "capability",
    "metadata.name": "name",
    "metadata.description": "about",
}
_MAPPINGS: Final = {
    "input.": "{} =",
    "conditions.": "of {}",
    "guards.": "capability of {}",
    "verbs.": "verb {}",
    **dict.fromkeys(("config.", "metadata.", "table.", "policy."), "{}"),
}


class Section(msgspec.Struct, frozen=True):
    """A part of the report: the envelope, a slot, the policies or the tables, with its changes."""

    title: str
    parts: tuple[PartChange, ...]


def sections_of(found: Difference) -> Iterator[Section]:
    if found.envelope:
        yield Section("envelope", found.envelope)
    for slot in found.slots:
        filling = slot.before if slot.before == slot.after else f"{slot.before} {ARROW} {slot.after}"
        yield Section(f"slot {slot.name}: {filling}", tuple(_told(slot)))
    if found.policies:
        yield Section("policies", found.policies)
    if found.tables:
        yield Section("tables", found.tables)


def _told(slot: SlotDifference) -> Iterator[PartChange]:
    """Leave out the ports, and the ways of the envelope through a slot now filled or past one now empty."""
    for part in slot.parts:
        is_port = part.noun == "node" and part.provenance == ENVELOPE
        is_way = part.noun == "edge" and part.provenance == ENVELOPE and slot.before != slot.after
        if not is_port and not is_way and part.on != NEVER:
            yield part


def side_words(side: Side) -> str:
    return f"envelope {side.envelope}" if side.patch is None else f"patch {side.patch} of envelope {side.envelope}"


def names_of(found: Difference, *, is_draft: bool) -> tuple[str, str]:
    """Name both sides by their versions. A draft has none yet: the number it may get is no name."""
    after = f"draft for envelope {found.after.envelope}" if is_draft else side_words(found.after)
    return side_words(found.before), after


def heading(part: PartChange) -> str:
    """Name a part: a node by its kind and name, an edge by its ends."""
    if part.noun == "node":
        return f"{(part.kind or 'node').replace('_', ' ')} {short_name(part.id)}"
    if part.noun == "edge":
        event = "" if part.on in (None, "completed") else f" on {part.on}"
        return f"{short_name(part.source or '')} {ARROW} {short_name(part.target or '')}{event}"
    if part.noun == "region":
        return f"state {short_name(part.id)}"
    return part.noun if part.noun == part.id else f"{part.noun} {part.id}"


def lines_of(part: PartChange) -> Iterator[tuple[str, str]]:
    """Write each changed field: its aspect, and what it was and is."""
    for field in part.fields:
        if part.change == "changed":
            yield _aspect(field), _changed(field)
        elif field.field not in _IMPLIED and (value := _shown(field)) is not None:
            yield _aspect(field), _labelled(field.field, _value(field.field, value))


def _aspect(field: FieldChange) -> str:
    return "" if field.aspect == "other" else field.aspect


def _changed(field: FieldChange) -> str:
    before, after = _apart(field.before, field.after)
    return _labelled(field.field, f"{_value(field.field, before)} {ARROW} {_value(field.field, after)}")


def _apart(before: Any, after: Any) -> tuple[Any, Any]:
    """Leave out of two lists what both have; lists that differ in their order only stay whole."""
    if not (isinstance(before, list) and isinstance(after, list)):
        return cast(tuple[Any, Any], (before, after))
    old, new = cast("list[Any]", before), cast("list[Any]", after)
    gone, came = [each for each in old if each not in new], [each for each in new if each not in old]
    return (gone, came) if gone or came else (old, new)


def _shown(field: FieldChange) -> Any:
    """Find the value of an added or removed field; None: there is nothing to show."""
    value = field.before if field.after is msgspec.UNSET else field.after
    return None if value in ({}, []) else value


def _labelled(field: str, text: str) -> str:
    return f"{_label(field)} {text}".strip()


def _label(field: str) -> str:
    if field in _LABELS:
        return _LABELS[field]
    outer, dot, name = field.partition(".")
    written = _MAPPINGS.get(f"{outer}{dot}")
    return field.replace("_", " ") if written is None else written.replace("{}", name)


def _value(field: str, value: Any) -> str:
    if value is msgspec.UNSET or value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and field in _DURATIONS:
        return in_words(value)
    if isinstance(value, list):
        return ", ".join(_value("", each) for each in cast("list[Any]", value)) or "none"
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
