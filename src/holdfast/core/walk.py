"""How tokens walk: drain the moves of a turn.

A move may end in an open step (work, rest, timer), in a meeting (join), in the token's end, or in further moves; the
compiler has proved that automatic nodes alone never form a cycle.
"""

from __future__ import annotations

from typing import Final

from holdfast.compiler.graph import Behaviour
from holdfast.core.enter import enter
from holdfast.core.leave import hold
from holdfast.core.scopes import escape
from holdfast.core.status import SUSPENDED
from holdfast.core.turn import Turn

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
