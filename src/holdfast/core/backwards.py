"""Which steps a rollback takes back, and in which order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.core.ids import CONTROL, FORWARD
from holdfast.core.program import Program
from holdfast.core.renames import MIGRATE, names_today
from holdfast.core.signals import PastStep
from holdfast.core.state import ROOT
from holdfast.core.status import StepStatus

LATE: Final = "@late"  # the control row of a handler that succeeded after its branch had lost the race
_DONE: Final = frozenset({StepStatus.COMPLETED, StepStatus.CONFIRMED, StepStatus.FAILED})


class Past(msgspec.Struct, frozen=True):
    steps: list[PastStep]
    save_point: str | None


class _Late(msgspec.Struct):
    step: str
    done: bool = False


_late = msgspec.json.Decoder(_Late).decode


def executed(program: Program, steps: list[PastStep], *, to_root: bool) -> Past:
    """What was done since the nearest save point, evidence of late successes included."""
    steps = _in_todays_names(steps)
    point = None if to_root else max((s for s in steps if _is_save_point(program, s)), key=_moment, default=None)
    late = {id: output for id, output in map(_evidence, steps) if id}
    done: list[PastStep] = []
    for step in steps:
        if step.kind != FORWARD or (point is not None and _moment(step) <= _moment(point)):
            continue
        if step.status in _DONE:
            done.append(step)
        elif step.id in late:
            done.append(msgspec.structs.replace(step, output=late[step.id]))
    return Past(done, None if point is None else point.node)


def backwards(program: Program, steps: list[PastStep], first: bytes) -> Iterator[PastStep]:
    """The step that failed, then all others from the last to the first, branch by branch."""
    by_path: defaultdict[str, list[PastStep]] = defaultdict(list)
    branches: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for step in steps:
        by_path[step.path].append(step)
        _add_branches(branches, step.path)
    failed = next((step for step in steps if step.id == first), None)
    if failed is not None:
        yield failed
    for step in _from_the_end(ROOT, by_path, branches):
        if step.id != first:
            yield step


def _from_the_end(
    path: str, by_path: dict[str, list[PastStep]], branches: dict[tuple[str, int], set[int]]
) -> Iterator[PastStep]:
    own = by_path.get(path, [])
    hops = {step.hop for step in own} | {hop for parent, hop in branches if parent == path}
    for hop in sorted(hops, reverse=True):
        for index in sorted(branches.get((path, hop), ())):
            yield from _from_the_end(f"{path}/{hop}.{index}", by_path, branches)
        yield from sorted((step for step in own if step.hop == hop), key=_moment, reverse=True)


def _add_branches(branches: dict[tuple[str, int], set[int]], path: str) -> None:
    """Every scope the path lies in: a branch may have nothing to take back itself and hold one that has."""
    while "/" in path:
        parent, _, last = path.rpartition("/")
        hop, _, index = last.partition(".")
        branches[parent, int(hop)].add(int(index))
        path = parent


def _in_todays_names(steps: list[PastStep]) -> list[PastStep]:
    migrations = [(_moment(step), step.detail) for step in steps if step.node == MIGRATE]
    if not migrations:
        return steps
    today = names_today(migrations)
    return [msgspec.structs.replace(step, node=today(step.node, _moment(step))) for step in steps]


def _is_save_point(program: Program, step: PastStep) -> bool:
    if step.kind != FORWARD or step.status != StepStatus.COMPLETED:
        return False
    place = program.places.get(step.node)
    return place is not None and place.node.kind == "save_point"


def _evidence(step: PastStep) -> tuple[bytes, bytes | None]:
    if step.kind != CONTROL or step.node != LATE or step.detail is None:
        return b"", None
    late = _late(step.detail)
    return (bytes.fromhex(late.step), step.input) if late.done else (b"", None)


def _moment(step: PastStep) -> tuple[int, int]:
    return step.version, step.ordinal
