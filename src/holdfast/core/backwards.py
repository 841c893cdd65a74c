"""Which steps a rollback takes back, and in which order."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.ids import CONTROL, FORWARD
from holdfast.core.program import Program
from holdfast.core.renames import MIGRATE, names_today
from holdfast.core.signals import PastStep
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


def backwards(steps: list[PastStep], first: bytes) -> list[PastStep]:
    """The step that failed, then all others from the last to the first, branch by branch."""
    order = sorted(steps, key=_rank)
    failed = next((step for step in order if step.id == first), None)
    if failed is not None:
        order.remove(failed)
        order.insert(0, failed)
    return order


def _rank(step: PastStep) -> tuple[int, ...]:
    """Later hops first. What is inside a split at hop h comes before the split itself, branch after branch: `0/3.1` is
    the branch 1 of the split at hop 3."""
    rank: list[int] = []
    for scope in step.path.split("/")[1:]:
        hop, _, index = scope.partition(".")
        rank += (-int(hop), 0, int(index))
    return (*rank, -step.hop, 1, -step.version, -step.ordinal)


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
