"""The rules of the shape: the order of items, and the items allowed inside a branch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.doors.saga.branch_merges import comes_back, match_rejoins
from holdfast.doors.saga.model import Condition, Fork, Human, Item, Items, Join, Parallel, Rejoin, SavePoint, SubFlow
from holdfast.doors.saga.problems import Problem, problem

DEEPEST: Final = 16  # branches inside each other; the stored definition must not nest deeper than JSON may
_DECIDES: Final = (Condition, Human)  # what may keep a flow from starting itself once more

Found = Iterator[Problem]


class _Place(msgspec.Struct, frozen=True):
    """The surroundings of a path."""

    flow: str
    version: int
    owner: str = ""  # the fork or condition it belongs to; empty: it is the flow's own
    is_otherwise: bool = False
    leads_on: bool = False  # something comes after its last item
    joins: bool = False  # it stands in a branch that meets others at a join
    is_certain: bool = True  # nothing decides whether it is reached

    @property
    def name(self) -> str:
        if not self.owner:
            return f"the flow {self.flow!r}"
        return f"the `otherwise` of {self.owner!r}" if self.is_otherwise else f"a branch of {self.owner!r}"


def check_depth(depth: int) -> Found:
    if depth > DEEPEST:
        yield problem("FLOW_TOO_DEEP", f"{depth} branches stand inside each other; at most {DEEPEST} may.", "steps")


def check_shape(flow: str, version: int, items: Items) -> Found:
    if not items:
        yield problem("FLOW_EMPTY", "The flow has no steps.", "steps")
    yield from _check_path(items, _Place(flow, version))


def _check_path(items: Items, place: _Place) -> Found:
    if place.owner and all(isinstance(item, Rejoin) for item in items):
        yield problem("BRANCH_EMPTY", f"There is no step in {place.name}.", f"steps.{place.owner}")
    yield from _check_rejoins(items, place)
    closed = match_rejoins(items).closed
    for position, item in enumerate(items):
        before = items[position - 1] if position else None
        after = items[position + 1] if position + 1 < len(items) else None
        if isinstance(item, SavePoint) and place.owner:
            message = f"The save point {item.name!r} stands in {place.name}."
            yield problem("SAVE_POINT_IN_BRANCH", message, f"steps.{item.name}")
        if isinstance(item, Join) and not isinstance(before, Fork | Parallel):
            found = f"{_described(before)} comes" if before else "nothing comes"
            message = f"No fork comes right before the join {item.name!r}: {found} there."
            yield problem("JOIN_WITHOUT_FORK", message, f"steps.{item.name}")
        if isinstance(item, Fork | Parallel):
            yield from _check_fork(item, after, place)
        if isinstance(item, Condition) and item.otherwise is not None:
            yield from _check_path(item.otherwise, _otherwise(item, place, is_closed=position in closed))
        if isinstance(item, SubFlow) and place.is_certain and _is_itself(item, place):
            message = f"The step {item.name!r} starts the flow it stands in, and no condition comes before it."
            yield problem("FLOW_CYCLE", message, f"steps.{item.name}")
        if isinstance(item, _DECIDES):
            place = msgspec.structs.replace(place, is_certain=False)


def certain_sub_flows(items: Items) -> Iterator[SubFlow]:
    """The sub-flows that every run reaches unless it fails: no condition comes before them."""
    for item in items:
        if isinstance(item, SubFlow):
            yield item
        elif isinstance(item, Fork | Parallel):
            for branch in item.branches:
                yield from certain_sub_flows(branch)
        elif isinstance(item, _DECIDES):
            return


def _is_itself(item: SubFlow, place: _Place) -> bool:
    return item.flow == place.flow and item.version in (None, place.version)


def _otherwise(condition: Condition, place: _Place, *, is_closed: bool) -> _Place:
    leads_on = place.joins or is_closed or comes_back(condition.otherwise)
    return msgspec.structs.replace(place, owner=condition.name, is_otherwise=True, leads_on=leads_on, is_certain=False)


def _check_fork(fork: Fork | Parallel, after: Item | None, place: _Place) -> Found:
    if len(fork.branches) < 2:
        message = f"{_described(fork).capitalize()} has {len(fork.branches)} of the two or more branches it needs."
        yield problem("FORK_TOO_NARROW", message, f"steps.{fork.name}")
    joins = isinstance(fork, Parallel) or isinstance(after, Join)
    if not joins and (after is not None or place.leads_on):
        follows = f"{_described(after)} comes next" if after else f"{place.name} goes on behind it"
        yield problem("FORK_WITHOUT_JOIN", f"The fork {fork.name!r} has no join: {follows}.", f"steps.{fork.name}")
    inside = msgspec.structs.replace(
        place,
        owner=fork.name,
        is_otherwise=False,
        leads_on=joins or place.leads_on,
        joins=joins or place.joins,
    )
    for branch in fork.branches:
        yield from _check_path(branch, inside)


def _check_rejoins(items: Items, place: _Place) -> Found:
    for position in match_rejoins(items).loose:
        if not place.is_otherwise:
            message = f"A rejoin() in {place.name} finds no open condition."
        elif position < len(items) - 1:
            message = f"The rejoin() of {place.name} is not the last thing there."
        else:
            continue
        yield problem("REJOIN_WITHOUT_CONDITION", message, f"steps.{place.owner}" if place.owner else "steps")


def _described(item: Item) -> str:
    if isinstance(item, Rejoin):
        return "a rejoin()"
    word = type(item).__name__.lower() if isinstance(item, Join | Fork | Parallel | Condition) else "step"
    return f"the {word} {item.name!r}"
