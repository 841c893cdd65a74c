"""Routing: the first edge by (priority, id) whose `when` and `guard` hold; a default edge when no other does."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.kernel.builder import Turn, encode
from holdfast.core.model.program import Place, Way

MOST_VALUED: Final = 100  # evaluations of one choice that are recorded with the values they read

Records = list[dict[str, Any]]


# The edge taken, the evaluations that led to it and, without an edge, whether only a guard refused one that held.
Choice = tuple[Way | None, Records | None, bool]


def choose(turn: Turn, place: Place, on: str, raw: bytes) -> Choice:
    ways = place.ways.get(on)
    if not ways:
        return None, None, False
    first = ways[0]
    if first.when is None and first.guard is None:
        return first, None, False
    namespaces = turn.namespaces(place, raw)
    records: Records = []
    guarded = False
    for way in ways:
        is_passable = may_pass(turn, way)
        if not _holds(way, namespaces, records, is_passable):
            continue
        if is_passable:
            return way, records, False
        guarded = True
    return None, records, guarded


def choose_only(turn: Turn, place: Place, way: Way, raw: bytes) -> Choice:
    """Choose a way that is no edge of the node, as an edge would be chosen."""
    if way.when is None and way.guard is None:
        return way, None, False
    records: Records = []
    is_passable = may_pass(turn, way)
    holds = _holds(way, turn.namespaces(place, raw), records, is_passable)
    return way if holds and is_passable else None, records, holds and not is_passable


def choose_all(turn: Turn, place: Place, raw: bytes) -> tuple[list[Way], Records]:
    """Choose every edge of a split that holds and that the actor may pass."""
    namespaces = turn.namespaces(place, raw) if any(way.when is not None for way in place.ways["completed"]) else {}
    records: Records = []
    ways = place.ways["completed"]
    passable = [(way, may_pass(turn, way)) for way in ways]
    return [way for way, is_open in passable if _holds(way, namespaces, records, is_open) and is_open], records


def _holds(way: Way, namespaces: dict[str, Any], records: Records, is_passable: bool) -> bool:
    """Evaluate the condition of an edge and record it. The record names the edge only if the actor may pass it."""
    if way.when is None:
        return True
    result = way.when.evaluate(namespaces)
    chosen = [way.id] if result is True and is_passable else []
    records.append(way.when.record(namespaces, result, chosen, has_values=len(records) < MOST_VALUED))
    return result is True


def may_pass(turn: Turn, way: Way) -> bool:
    return way.guard is None or turn.unguarded or way.guard in turn.facts.actor.capabilities


def closing(records: Records | None, **facts: Any) -> bytes | None:
    """The closing record of a step row: the expressions evaluated, and facts such as the fate of the token."""
    if not records and not facts:
        return None
    return encode({"evaluated": records, **facts} if records else facts)
