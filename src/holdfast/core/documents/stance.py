"""The stance of an instance: the edit window and the verbs of its document now. Derived: replay gives the same one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.core.documents.regions import Stay, stays
from holdfast.core.model.program import Place, Program
from holdfast.core.model.state import ROOT, Instance, Token
from holdfast.core.model.status import TERMINAL, InstanceStatus, Phase
from holdfast.core.signals.early import names_taken
from holdfast.graph.windows import strictest

_TAKES_VERBS: Final = frozenset({InstanceStatus.PENDING, InstanceStatus.RUNNING, InstanceStatus.DLQ})


class Stance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    window: str  # editable | amend_only | locked: the strictest of all tokens
    verbs: tuple[str, ...] = ()  # offered now, sorted
    stable: bool = False  # a material edit amends the document, or is refused
    asks: bool = False  # somebody is asked to decide on the document as it is
    listens: tuple[str, ...] = ()  # the events that its steps wait for, sorted


def stance(program: Program, instance: Instance) -> Stance | None:
    """The stance of an instance of a document's graph; None for any other, and when it is over."""
    if not program.areas or instance.status in TERMINAL:
        return None
    tokens = instance.state.tokens if instance.version else _first(program)
    found = list(stays(program, tokens))
    stands_still = instance.state.stopping is not None or instance.state.rollback is not None
    takes_verbs = instance.status in _TAKES_VERBS and not stands_still
    return Stance(
        window=strictest(*(stay.window for stay in found)),
        verbs=verbs_offered(program, tokens) if takes_verbs else (),
        stable=any(stay.area.stable for stay in found),
        asks=any(_asks(stay) for stay in found),
        listens=tuple(sorted({name for token in tokens.values() for name in _heard(program, token)})),
    )


def verbs_offered(program: Program, tokens: Mapping[str, Token]) -> tuple[str, ...]:
    return tuple(sorted({verb for stay in stays(program, tokens) for verb in stay.area.verbs}))


def _first(program: Program) -> dict[str, Token]:
    """The token of an instance that is stored and not yet decided on: before long it is at the first region."""
    place = program.places[program.entry]
    seen: set[str] = set()
    while place.area is None and place.id not in seen:
        seen.add(place.id)
        place = _next(program, place)
    return {ROOT: Token(hop=0, node=place.id, phase=Phase.HELD)}


def _next(program: Program, place: Place) -> Place:
    ways = place.ways.get("completed", ())
    return program.places[ways[0].target] if len(ways) == 1 else place


def _asks(stay: Stay) -> bool:
    return stay.place.traits.asks_person and stay.token.phase is Phase.RESTING


def _heard(program: Program, token: Token) -> list[str]:
    place = program.places[token.node]
    return names_taken(program, place) if token.phase is Phase.RESTING else []
