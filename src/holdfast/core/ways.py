"""Which way on: the first edge by (priority, id) whose `when` and `guard` hold; a default edge when no other does."""

from __future__ import annotations

from typing import Any

from holdfast.core.program import Place, Way
from holdfast.core.turn import Turn, encode

Records = list[dict[str, Any]]


# The way taken, what was evaluated to find it, and whether only a guard stood in the way of one that held.
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
        may_pass = _may_pass(turn, way)
        if not _holds(way, namespaces, records, may_pass):
            continue
        if may_pass:
            return way, records, False
        guarded = True
    return None, records, guarded


def choose_all(turn: Turn, place: Place, raw: bytes) -> tuple[list[Way], Records]:
    """A split takes every edge that holds."""
    namespaces = turn.namespaces(place, raw) if any(way.when is not None for way in place.ways["completed"]) else {}
    records: Records = []
    ways = place.ways["completed"]
    passable = [(way, _may_pass(turn, way)) for way in ways]
    return [way for way, may_pass in passable if _holds(way, namespaces, records, may_pass) and may_pass], records


def _holds(way: Way, namespaces: dict[str, Any], records: Records, may_pass: bool) -> bool:
    """What its condition says; the record of it names the edge only where no guard keeps it from being taken."""
    if way.when is None:
        return True
    result = way.when.evaluate(namespaces)
    records.append(way.when.record(namespaces, result, [way.id] if result is True and may_pass else []))
    return result is True


def _may_pass(turn: Turn, way: Way) -> bool:
    return way.guard is None or way.guard in turn.facts.actor.capabilities


def closing(records: Records | None, **facts: Any) -> bytes | None:
    """What a step row keeps of its end beside the output: expressions evaluated, and what became of the token."""
    if not records and not facts:
        return None
    return encode({"evaluated": records, **facts} if records else facts)
