"""The regions that an instance's tokens are in; held and dead tokens are in one, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from holdfast.core.model.program import Area, Place, Program
from holdfast.core.model.state import Token
from holdfast.core.model.status import Phase
from holdfast.graph.windows import Window, strictest


class Stay(msgspec.Struct, frozen=True, gc=False):
    """A token in a region."""

    path: str
    token: Token
    place: Place
    area: Area

    @property
    def window(self) -> Window:
        """The edit window at the node: a node may be stricter than its region."""
        return strictest(self.area.window, self.place.node.edit_window)


def stays(program: Program, tokens: Mapping[str, Token]) -> Iterator[Stay]:
    """Yield the tokens that are in a region, in the order of their paths."""
    for path, token in sorted(tokens.items()):
        place = program.places[token.node]
        if place.area is not None:
            yield Stay(path, token, place, place.area)


def rests_at_verb(stay: Stay, verb: str) -> bool:
    """Check if the token rests at a state that has an edge for a verb of its region."""
    is_offered = verb in stay.area.verbs and verb in stay.place.ways
    return is_offered and stay.place.traits.listens_to_edges and stay.token.phase is Phase.RESTING
