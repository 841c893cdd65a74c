"""Inputs of a simulation: what people do, what arrives, and time that passes, in this order."""

from __future__ import annotations

from typing import Any

import msgspec

Names = tuple[str, ...]


class CallVerb(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="verb", tag_field="do"):
    """A person calls a verb of the document."""

    verb: str
    by: str = "ann"
    capabilities: Names | None = None  # None: every capability that the graph knows
    payload: dict[str, Any] | None = None


class Decide(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="decide", tag_field="do"):
    """An approver decides: approved or rejected."""

    node: str  # its name, alone or in full
    decision: str = "approved"
    by: str = "ben"
    data: dict[str, Any] | None = None


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="edit", tag_field="do"):
    """A person changes fields of the document."""

    fields: dict[str, Any]
    by: str = "ann"
    capabilities: Names | None = None


class Arrive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="event", tag_field="do"):
    """An event arrives, by name or addressed by key."""

    event: str
    key: str | None = None
    data: dict[str, Any] | None = None


class Elapse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="wait", tag_field="do"):
    """Time passes; timers that fall due are fired at their moment."""

    seconds: float


Input = CallVerb | Decide | Edit | Arrive | Elapse
