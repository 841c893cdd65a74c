"""A difference as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

Aspect = Literal["condition", "approvers", "timer", "window", "action", "policy", "table", "way", "text", "other"]
Noun = Literal["slot", "node", "edge", "region", "field", "verb", "action", "policy", "amendment", "table", "graph"]
Kind = Literal["added", "removed", "changed"]
Filling = Literal["absent", "empty", "filled"]


class FieldChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field of a part. A side that does not have the field has no value for it."""

    field: str  # with one level of names below it: `when`, `config.action`, `input.total`
    aspect: Aspect
    before: Any = msgspec.UNSET
    after: Any = msgspec.UNSET


class PartChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part that was added, removed or changed. A part with another id is another part: a rename is two of these."""

    change: Kind
    noun: Noun
    id: str
    provenance: str  # `envelope`, a slot, or `patch`
    kind: str | None = None  # of a node; of one that changed its kind the new one
    source: str | None = None  # of an edge
    target: str | None = None
    on: str | None = None
    fields: tuple[FieldChange, ...] = ()  # of an added or removed part all that it has


class SlotDifference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changes of one slot."""

    name: str
    before: Filling
    after: Filling
    parts: tuple[PartChange, ...] = ()


class Side(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the two graphs: the versions and the hash of what it was made of."""

    type: str  # of the documents
    envelope: int
    patch: int | None = None  # None: the bare envelope
    hash: str = ""


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The difference of two graphs of one type of documents, in an order that depends on nothing but them."""

    before: Side
    after: Side
    envelope: tuple[PartChange, ...] = ()  # what the contract changed outside of its slots
    slots: tuple[SlotDifference, ...] = ()  # those with changes, by name
    policies: tuple[PartChange, ...] = ()  # of the patch
    tables: tuple[PartChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Check if both graphs mean the same, in the same version or not."""
        return not (self.envelope or self.slots or self.policies or self.tables)

    @property
    def parts(self) -> Iterator[PartChange]:
        """List every change, by where it is."""
        yield from self.envelope
        for slot in self.slots:
            yield from slot.parts
        yield from self.policies
        yield from self.tables
