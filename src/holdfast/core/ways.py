"""Which way on: the first edge by (priority, id) whose `when` and `guard` hold."""

from __future__ import annotations

from typing import Any

from holdfast.core.program import Place, Way
from holdfast.core.turn import Turn, encode


def choose(turn: Turn, place: Place, on: str, raw: bytes) -> tuple[Way | None, bytes | None, bool]:
    """The first way by (priority, id) whose `when` and `guard` hold, the record of what was evaluated, and whether a
    guard stood in the way."""
    ways = place.ways.get(on)
    if not ways:
        return None, None, False
    first = ways[0]
    if first.when is None and first.guard is None:
        return first, None, False
    scope = turn.scope(raw)
    records: list[dict[str, Any]] = []
    taken: Way | None = None
    guarded = False
    for way in ways:
        if way.when is not None:
            result = way.when.evaluate(scope)
            records.append(way.when.record(scope, result, [way.id] if result is True else []))
            if result is not True:
                continue
        if way.guard is not None and way.guard not in turn.facts.actor.capabilities:
            guarded = True
            continue
        taken = way
        break
    return taken, encode({"evaluated": records}) if records else None, guarded
