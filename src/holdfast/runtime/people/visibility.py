"""Rights to see an instance, and to act where it rests.

The kernel has the last word on acting, under the lock. The same rules are checked here beforehand, to show people the
actions open to them and to refuse before reading their data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from holdfast.core.model.program import Place, Program, Way
from holdfast.core.model.signals import SYSTEM
from holdfast.core.model.state import Token
from holdfast.errors import Forbidden
from holdfast.graph.model import Node, Policy
from holdfast.runtime.people.start_rules import PARTITION
from holdfast.runtime.validation import check_text, several
from holdfast.store.reads.instances import Instance
from holdfast.store.tasks import Task


class Person(msgspec.Struct, frozen=True):
    """The caller. With capabilities or roles of None the application vouches for the person."""

    id: str
    capabilities: frozenset[str] | None = None
    roles: frozenset[str] | None = None
    partition: str | None = None  # the part of the tenant they belong to; None: all of it
    sees_all: bool = False  # they operate the tenant

    def has_all(self, wanted: Collection[str]) -> bool:
        return self.capabilities is None or self.capabilities.issuperset(wanted)

    def has_any(self, wanted: Collection[str]) -> bool:
        return self.capabilities is None or not self.capabilities.isdisjoint(wanted)

    def plays_any(self, roles: Collection[str]) -> bool:
        return self.roles is None or not self.roles.isdisjoint(roles)


def take_person(
    by: str,
    capabilities: Collection[str] | None,
    roles: Collection[str] | None,
    partition: str | None = None,
    sees_all: bool = False,
) -> Person:
    check_text(by or "", "person")
    held = None if capabilities is None else frozenset(several(capabilities, "capability"))
    played = None if roles is None else frozenset(several(roles, "role"))
    return Person(by, held, played, partition or None, sees_all)


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


class Named(msgspec.Struct, frozen=True):
    """The capabilities that a published version names: for its instances, by step, and anywhere in it."""

    to_see: tuple[str, ...] = ()
    by_step: Mapping[str, tuple[str, ...]] = {}
    anywhere: tuple[str, ...] = ()
    is_known: bool = True


UNREADABLE: Final = Named(is_known=False)  # the rights that the definition would give are unknown


def named_in(policy: Policy, nodes: Iterable[Node], guards: Iterable[str | None] = ()) -> Named:
    by_step: dict[str, tuple[str, ...]] = {}
    anywhere = [*policy.capabilities]
    for node in nodes:
        anywhere += [*node.capabilities, *([node.guard] if node.guard else [])]
        if node.capabilities:
            by_step[node.id] = node.capabilities
            if node.undo is not None:  # what takes a step back is given what the step got and answered
                by_step[node.undo] = node.capabilities
    anywhere += [guard for guard in guards if guard]
    return Named(policy.capabilities, by_step, tuple(dict.fromkeys(anywhere)))


def named_by(program: Program) -> Named:
    return named_in(program.policy, (place.node for place in program.places.values()))


def may_see(person: Person, view: Instance, named: Named, tasks: Iterable[Task]) -> bool:
    """The one rule for every way to look at an instance.

    Allowed: operators; within the partition also the starter, holders of a capability of its flow (anyone, where it
    names none), and people involved in one of these tasks.
    """
    if person.sees_all:
        return True
    if not is_within(person, view):
        return False
    if view.created_by == person.id or (named.is_known and _any_of(person, named.to_see)):
        return True
    return any(_has_to_do_with(task, person, named) for task in tasks)


def is_within(person: Person, view: Instance) -> bool:
    """Check the partition. A person without one sees all partitions; an instance without one belongs to the whole
    tenant.
    """
    attributes: Mapping[str, Any] = view.attributes or {}
    own = attributes.get(PARTITION)
    return person.sees_all or not person.partition or not own or own == person.partition


def sees_step(person: Person, named: Named, step: str | None) -> bool:
    """Check a step of a visible instance: one without capabilities is visible to all, another needs any of them."""
    if person.sees_all or step is None:
        return True
    return named.is_known and _any_of(person, named.by_step.get(step, ()))


def is_asked(task: Task, person: Person) -> bool:
    """Check whether a task is this person's or free for them to claim; of a closed task, whether it was theirs."""
    if task.closed_at is not None:
        return person.id in (task.decided_by, task.assignee)
    if task.assignee is not None:
        return task.assignee == person.id
    return bool(task.roles) and person.roles is not None and _is_for(task.roles, person)


def _has_to_do_with(task: Task, person: Person, named: Named) -> bool:
    wanted = named.by_step.get(task.node, ())
    return is_asked(task, person) or (task.closed_at is None and bool(wanted) and person.has_any(wanted))


def _any_of(person: Person, wanted: Collection[str]) -> bool:
    return not wanted or person.has_any(wanted)


def task_of(token: Token) -> bytes | None:
    return next((wait.ref for wait in token.waits if wait.kind == "task"), None)


def _is_for(roles: Collection[str], person: Person) -> bool:
    return not roles or person.plays_any(roles)
