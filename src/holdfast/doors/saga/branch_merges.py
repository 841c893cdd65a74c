"""Merges of the branches of a condition.

`rejoin()` closes the innermost condition of its own path that is still open, like a bracket: what ran since the
condition and what ran otherwise both continue from there. One that finds no open condition speaks for the branch it
ends: this `otherwise` comes back to the path of its condition.

So a false condition leads, after its `otherwise`,
- to the marker that closes the condition, if there is one;
- else right behind the condition, if the `otherwise` ends with a marker of its own;
- else nowhere: that way is over, in a branch of a fork at its join.
"""

from __future__ import annotations

import msgspec

from holdfast.doors.saga.model import Condition, Items, Rejoin


class Rejoins(msgspec.Struct, frozen=True):
    closes: dict[int, int]  # position of a marker → position of the condition it closes
    closed: frozenset[int]  # positions of the conditions some marker closes
    loose: tuple[int, ...]  # positions of the markers that found no open condition


def match_rejoins(items: Items) -> Rejoins:
    open_conditions: list[int] = []
    closes: dict[int, int] = {}
    loose: list[int] = []
    for position, item in enumerate(items):
        if isinstance(item, Condition):
            open_conditions.append(position)
        elif isinstance(item, Rejoin) and open_conditions:
            closes[position] = open_conditions.pop()
        elif isinstance(item, Rejoin):
            loose.append(position)
    return Rejoins(closes, frozenset(closes.values()), tuple(loose))


def comes_back(otherwise: Items | None) -> bool:
    """Check whether the branch ends with a marker that returns to its condition's path."""
    return bool(otherwise) and bool(match_rejoins(otherwise).loose)
