"""The walk of tokens: drain the moves of a turn.

A move may end in an open step (work, rest, timer), in a meeting (join), in the token's end, or in further moves; the
compiler has proved that automatic nodes alone never form a cycle.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.kernel.builder import Turn
from holdfast.core.kernel.enter import enter
from holdfast.core.kernel.leave import hold
from holdfast.core.kernel.scopes import escape
from holdfast.core.model.status import SUSPENDED
from holdfast.graph.model import Behaviour

_JOIN: Final = Behaviour.JOIN


def walk(turn: Turn) -> None:
    moves, places = turn.moves, turn.program.places
    while moves:
        move = moves.pop()
        if turn.status is SUSPENDED:
            hold(turn, move)
            continue
        place = places[move.node]
        inside = place.depth + 1 if place.behaviour is _JOIN else place.depth
        if move.path.count("/") > inside:
            move = escape(turn, move, inside)
        enter(turn, place, move)
