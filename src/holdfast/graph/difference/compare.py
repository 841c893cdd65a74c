"""Compare two graphs of a type of documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import DefinitionError
from holdfast.graph.compiled import Compiled
from holdfast.graph.difference.aspects import aspect_of
from holdfast.graph.difference.model import Difference, FieldChange, Kind, PartChange, SlotDifference
from holdfast.graph.difference.parts import (
    POLICIES,
    TABLES,
    Document,
    Key,
    Part,
    in_group,
    owners_of,
    read_document,
    read_parts,
)
from holdfast.graph.envelope import ENVELOPE
from holdfast.payloads import canonical

_ABSENT: Final = Part("", {})


def difference(before: Compiled, after: Compiled) -> Difference:
    """Compare two envelopes or effective graphs of a type of documents: what leads from the first to the second."""
    first, second = read_document(before), read_document(after)
    _require_one_type(first, second)
    owners = owners_of(first, second)
    old, new = read_parts(first, owners), read_parts(second, owners)
    changed = {key: found for key in {*old, *new} if (found := _compare(key, old.get(key), new.get(key))) is not None}

    def listed(*group: str) -> tuple[PartChange, ...]:
        return tuple(changed[key] for key in in_group(changed, (group[0], group[1] if len(group) > 1 else "")))

    slots = sorted({*first.config.envelope.slots, *second.config.envelope.slots})
    return Difference(
        before=first.side,
        after=second.side,
        envelope=listed(ENVELOPE),
        slots=tuple(
            SlotDifference(name=name, before=first.filling(name), after=second.filling(name), parts=parts)
            for name in slots
            if (parts := listed("slot", name))
        ),
        policies=listed(POLICIES),
        tables=listed(TABLES),
    )


def _require_one_type(first: Document, second: Document) -> None:
    types = first.config.envelope.type, second.config.envelope.type
    if types[0] != types[1]:
        raise DefinitionError(
            f"A graph of {types[0]!r} cannot be compared with one of {types[1]!r}.",
            code="NOT_COMPARABLE",
            hint="Compare two versions of one type of documents.",
        )


def _compare(key: Key, old: Part | None, new: Part | None) -> PartChange | None:
    fields = tuple(_fields(key, old or _ABSENT, new or _ABSENT))
    if old is not None and new is not None and old.provenance == new.provenance and not fields:
        return None
    change: Kind = "added" if old is None else "removed" if new is None else "changed"
    shown = new or old or _ABSENT
    return PartChange(
        change=change,
        noun=key.noun,
        id=key.id,
        provenance=shown.provenance,
        kind=shown.kind,
        source=key.source or None,
        target=key.target or None,
        on=key.on or None,
        fields=fields,
    )


def _fields(key: Key, old: Part, new: Part) -> Iterator[FieldChange]:
    handlers = frozenset(str(part.fields["handler"]) for part in (old, new) if "handler" in part.fields)
    for name in sorted({*old.fields, *new.fields}):
        before, after = old.fields.get(name, msgspec.UNSET), new.fields.get(name, msgspec.UNSET)
        if not _same(before, after):
            aspect = aspect_of(key.noun, handlers, name)
            yield FieldChange(field=name, aspect=aspect, before=before, after=after)


def _same(before: Any, after: Any) -> bool:
    """Compare two values as hashes do: 60 and 60.0 are the same, 1 and true are not."""
    if before is msgspec.UNSET or after is msgspec.UNSET:
        return before is after
    return canonical(before) == canonical(after)
