"""Who may see an instance, and who may act where it rests. The kernel has the last word on acting, under the lock;
here the same rules are asked beforehand, to show people what they can do and to refuse before looking at their data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from holdfast.compiler.graph import Node
from holdfast.core.program import Place, Program, Way
from holdfast.core.signals import SYSTEM
from holdfast.core.state import State, Token
from holdfast.errors import Forbidden
from holdfast.runtime.edge import check_text
from holdfast.store.tasks import Task


class Person(msgspec.Struct, frozen=True):
    """Who asks. Capabilities or roles that are None are not asked for: the caller vouches for the person."""

    id: str
    capabilities: frozenset[str] | None = None
    roles: frozenset[str] | None = None

    def has_all(self, wanted: Collection[str]) -> bool:
        return self.capabilities is None or self.capabilities.issuperset(wanted)

    def has_any(self, wanted: Collection[str]) -> bool:
        return self.capabilities is None or not self.capabilities.isdisjoint(wanted)

    def plays_any(self, roles: Collection[str]) -> bool:
        return self.roles is None or not self.roles.isdisjoint(roles)


def take_person(by: str, capabilities: Collection[str] | None, roles: Collection[str] | None) -> Person:
    check_text(by or "", "person")
    given = None if capabilities is None else frozenset(_several(capabilities))
    return Person(by, given, None if roles is None else frozenset(_several(roles)))


def _several(names: Collection[str]) -> Collection[str]:
    """One name may be given as it is; taken apart, its letters would be names."""
    return (names,) if isinstance(names, str) else names


# --- acting -------------------------------------------------------------------------------------------------------


def needed_to_act(place: Place) -> set[str]:
    return {*place.node.capabilities, *(() if place.node.guard is None else (place.node.guard,))}


def needed_anywhere(place: Place) -> set[str]:
    """All that acting here can ask for."""
    return needed_to_act(place) | {way.guard for ways in place.ways.values() for way in ways if way.guard is not None}


def require_right(place: Place, person: Person, starter: str | None) -> None:
    lacking = sorted(needed_to_act(place) - (person.capabilities or frozenset()))
    if lacking and person.capabilities is not None:
        raise Forbidden(
            f"Acting on {place.id!r} needs {', '.join(map(repr, lacking))}.",
            code="CAPABILITY_MISSING",
            hint="Act as somebody who has it, or grant it.",
            missing=lacking,
        )
    if is_self_approval(place.node, person, starter):
        raise Forbidden(
            f"Whoever started the instance may not decide on {place.id!r}.",
            code="SELF_APPROVAL",
            hint="Let somebody else decide, or allow it in the definition.",
        )


def is_self_approval(node: Node, person: Person, starter: str | None) -> bool:
    return not node.self_approval and starter == person.id and starter != SYSTEM.id


def may_act(place: Place, person: Person, starter: str | None, task: Task | None) -> bool:
    if not person.has_all(needed_to_act(place)) or is_self_approval(place.node, person, starter):
        return False
    if task is None:
        return True
    return task.assignee == person.id if task.assignee is not None else _is_for(task.roles, person)


def may_take(way: Way, person: Person) -> bool:
    return way.guard is None or person.has_all((way.guard,))


# --- seeing -------------------------------------------------------------------------------------------------------


def may_see(program: Program, state: State, person: Person, starter: str | None, tasks: Sequence[Task]) -> bool:
    """Any capability of the workflow or of a step it rests on will do; so does being the starter or being asked."""
    if starter == person.id or not program.policy.capabilities or person.has_any(program.policy.capabilities):
        return True
    if any(person.has_any(place.node.capabilities) for place in resting_places(program, state)):
        return True
    return any(_is_asked(task, person) for task in tasks if task.closed_at is None)


def resting_places(program: Program, state: State) -> Iterator[Place]:
    for token in state.tokens.values():
        if task_of(token) is not None:
            yield program.places[token.node]


def task_of(token: Token) -> bytes | None:
    return next((wait.ref for wait in token.waits if wait.kind == "task"), None)


def _is_asked(task: Task, person: Person) -> bool:
    if task.assignee is not None:
        return task.assignee == person.id
    return bool(task.roles) and person.roles is not None and _is_for(task.roles, person)


def _is_for(roles: Collection[str], person: Person) -> bool:
    return not roles or person.plays_any(roles)
