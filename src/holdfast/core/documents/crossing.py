"""Migrations of documents: a token stays where it is, and no approval of the new version lies behind it unasked.

Approvals in front of a node are those from which edges lead to it without a gate or a state in between. In the new
version they must be among those of the old one, which the token has passed or been led around.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.core.documents.gates import passed_over
from holdfast.core.model.control_rows import Standing
from holdfast.core.model.program import Place, Program
from holdfast.core.model.state import Scope
from holdfast.errors import Conflict


def check_crossing(
    old: Program, new: Program, stood: Iterable[Standing], scopes: Mapping[str, tuple[Scope, str]]
) -> None:
    """Check a migration of a document; `scopes` has each open one with the name of its split in the new version."""
    if not (old.rules.keeps_gates or new.rules.keeps_gates):
        return
    if old.rules is not new.rules:
        raise Conflict(
            f"{old.name!r} is of a document in only one of the two versions.",
            code="MIGRATION_KIND_CHANGED",
            hint="Let it end on its version.",
        )
    for standing in stood:
        _check_place(old.places[standing.was], new.places[standing.now])
        _check_behind(approvals_before(old, standing.was), approvals_before(new, standing.now), standing.now)
    for scope, split in scopes.values():
        if scope.done:
            _check_branches(old, new, scope.split, split)


def _check_place(before: Place, place: Place) -> None:
    areas = [None if area is None else area.id for area in (before.area, place.area)]
    keeps_name = any(p.area is None or p.traits.asks_person or p.traits.is_gate for p in (before, place))
    if areas[0] != areas[1] or (keeps_name and before.id != place.id):
        raise passed_over(f"A token at {before.id!r} cannot go on at {place.id!r}.")


def _check_behind(known: frozenset[str], needed: frozenset[str], node: str) -> None:
    if unasked := sorted(needed - known):
        raise passed_over(f"In the new version {', '.join(map(repr, unasked))} comes before {node!r}.")


def _check_branches(old: Program, new: Program, was: str, now: str) -> None:
    """Check a split with a branch that is done: the new version has no approval in it that the old one lacks."""
    if unasked := sorted(_approvals_in(new, now) - _approvals_in(old, was)):
        names = ", ".join(map(repr, unasked))
        raise passed_over(f"A branch of {was!r} is done, and in the new version {names} may be in it.")


def approvals_before(program: Program, node: str) -> frozenset[str]:
    """The approvals from which edges lead to the node, back to the last gate or state."""
    sources: dict[str, list[str]] = {}
    for place in program.places.values():
        for ways in place.ways.values():
            for way in ways:
                sources.setdefault(way.target, []).append(place.id)
    seen: set[str] = set()
    ahead = list(sources.get(node, ()))
    while ahead:
        found = ahead.pop()
        traits = program.places[found].traits
        if found not in seen and not (traits.is_gate or traits.listens_to_edges):
            seen.add(found)
            ahead += sources.get(found, ())
    return _asking(program, seen)


def _approvals_in(program: Program, split: str) -> frozenset[str]:
    """The approvals in the branches of a split."""
    place = program.places[split]
    seen: set[str] = set()
    ahead = [way.target for way in place.ways["completed"]]
    while ahead:
        found = ahead.pop()
        if found not in seen and program.places[found].depth > place.depth:
            seen.add(found)
            ahead += [way.target for ways in program.places[found].ways.values() for way in ways]
    return _asking(program, seen)


def _asking(program: Program, nodes: Iterable[str]) -> frozenset[str]:
    return frozenset(node for node in nodes if program.places[node].traits.asks_person)
