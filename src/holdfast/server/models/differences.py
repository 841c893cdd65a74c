"""Models of the difference of two graphs of documents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from holdfast.server.models.base import Model

EnvelopeWord = Annotated[Literal["envelope"], WithJsonSchema({"type": "string", "enum": ["envelope"]})]
DraftWord = Annotated[Literal["draft"], WithJsonSchema({"type": "string", "enum": ["draft"]})]
Filling = Literal["absent", "empty", "filled"]


class FieldChangeView(Model):
    """One field of a part. A side that does not have the field has no value for it."""

    field: str
    aspect: Literal["condition", "approvers", "timer", "window", "action", "policy", "table", "way", "text", "other"]
    before: Any = None
    after: Any = None


class PartChangeView(Model):
    """A part that was added, removed or changed. A node has its `kind`, an edge its `source`, `target` and `on`."""

    change: Literal["added", "removed", "changed"]
    noun: Literal["slot", "node", "edge", "region", "field", "verb", "action", "policy", "amendment", "table", "graph"]
    id: str
    provenance: str = Field(description="`envelope`, the name of a slot, or `patch`.")
    kind: str | None = None
    source: str | None = None
    target: str | None = None
    on: str | None = None
    fields: list[FieldChangeView] = Field(default_factory=list[FieldChangeView])


class SlotDifferenceView(Model):
    """The changes of one slot."""

    name: str
    before: Filling
    after: Filling
    parts: list[PartChangeView] = Field(default_factory=list[PartChangeView])


class SideView(Model):
    """One of the graphs. Without `patch` it is the contract alone; a draft has the number it would get."""

    type: str
    envelope: int
    patch: int | None = None
    hash: str = ""


class ContractDifferenceView(Model):
    """Difference: the changes that lead from the first graph to the second."""

    before: SideView
    after: SideView
    envelope: list[PartChangeView] = Field(default_factory=list[PartChangeView])
    slots: list[SlotDifferenceView] = Field(default_factory=list[SlotDifferenceView])
    policies: list[PartChangeView] = Field(default_factory=list[PartChangeView])
    tables: list[PartChangeView] = Field(default_factory=list[PartChangeView])
