"""Checkpoints: what an instance at rest takes along into the present month, so that the months before it can go.

A checkpoint is a control row with all that replay compares. Beside it, each open step gets a row in the present month:
the same visit with the same id, which the token names from then on. The row it takes the place of is closed as
superseded. Nothing of the instance changes: it waits for the same events, timers, tasks and effects as before.

Only an instance at rest is carried. Work under way, a dead letter or a rollback is a matter of days, and a graph that
takes steps back needs the inputs and outputs of all of them: such an instance keeps its months.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.kernel.builder import encode
from holdfast.core.model.control_rows import Checkpoint
from holdfast.core.model.ids import CONTROL, receipt_key, step_id, token_id
from holdfast.core.model.program import Program
from holdfast.core.model.state import Instance, encode_state
from holdfast.core.model.status import InstanceStatus, Phase

MOST_TOKENS: Final = 10_000  # ordinals of one revision are small numbers
_AT_REST: Final = frozenset({InstanceStatus.RUNNING, InstanceStatus.SUSPENDED})
_STAYS: Final = frozenset({Phase.RESTING, Phase.HELD})


class Standing(msgspec.Struct, frozen=True):
    """An open step that is carried: its row so far, and the places of both rows within the revision."""

    step: bytes
    at: int
    closed: int
    opened: int


class Carried(msgspec.Struct, frozen=True):
    """An instance after it was carried, and the rows that say so."""

    instance: Instance
    checkpoint: bytes  # the id of its row
    key: bytes
    detail: bytes
    steps: list[Standing]


def hindrance(program: Program, instance: Instance) -> str | None:
    """The reason why an instance cannot be carried now; None: it can be."""
    state = instance.state
    if program.undoes or program.save_points:
        return "its flow takes steps back, and needs them for that"
    if state.rollback is not None or state.stopping is not None or instance.status is InstanceStatus.ROLLING_BACK:
        return "it is going backwards or being cancelled"
    if instance.status is InstanceStatus.DLQ or any(token.phase is Phase.DEAD for token in state.tokens.values()):
        return "a failed step of it waits for a person"
    if instance.status not in _AT_REST or not instance.version or not state.tokens:
        return "it has not begun"
    if state.ghosts or any(token.phase not in _STAYS for token in state.tokens.values()):
        return "work of it is under way"
    if len(state.tokens) > MOST_TOKENS:
        return f"it has more than {MOST_TOKENS} open steps"
    return None


def carry(instance: Instance, now: int) -> Carried:
    """Carry an instance that nothing hinders into the month of `now`."""
    version, state = instance.version + 1, instance.state
    tokens, steps = dict(state.tokens), list[Standing]()
    for path, token in state.tokens.items():
        if token.step and token.phase is Phase.RESTING:
            tokens[path] = msgspec.structs.replace(token, at=now)
            place = 2 * len(steps) + 1
            steps.append(Standing(token.step, token.at, place, place + 1))
    after = msgspec.structs.replace(
        instance, version=version, state=msgspec.structs.replace(state, tokens=tokens), updated=now
    )
    row = Checkpoint(status=after.status, reason=after.reason, state=msgspec.Raw(encode_state(after.state)))
    token = token_id("", version)
    key = receipt_key(instance.id, row.node.encode(), token, instance.entity_version, CONTROL, 0)
    return Carried(after, step_id(now, key, instance.id[15]), key, encode(row), steps)
