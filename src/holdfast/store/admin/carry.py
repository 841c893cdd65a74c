"""Carry instances that rest for years into the present month, so that older months can be dropped.

A pass walks the unfinished instances that need rows from before a moment: those that began before it and have not been
carried since. Each is decided on under its lock, like any change of it, and its revision rises; an instance that
is locked is left for the next pass. An instance is carried once per period of retention, however many months pass.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.core.model.program import Program, link
from holdfast.core.model.snapshot import read_state
from holdfast.core.model.state import Instance, encode_state
from holdfast.core.model.status import InstanceStatus
from holdfast.core.model.timestamps import from_datetime, to_datetime
from holdfast.core.replay.checkpoint import Carried, carry, hindrance
from holdfast.errors import HoldfastError
from holdfast.graph.loading import load_compiled
from holdfast.store.admin.connection import Errand

_FOLDER: Final = "upkeep"
TOGETHER: Final = 100  # instances in one transaction
VISITED: Final = 2_000  # at one look
NAMED: Final = 20  # reasons that are kept for the doctor
_CONTEXT: Final = b"{}"  # stays in the database: the statement copies it
UNREADABLE: Final = "its snapshot or its flow cannot be read"


class Left(msgspec.Struct):
    """Instances of one flow that keep their months for one reason."""

    flow: str
    why: str
    count: int
    example: str


class Place(msgspec.Struct, frozen=True):
    """The instance at which the last look ended."""

    org: str | None = None
    status: str | None = None
    id: str | None = None


class Mark(msgspec.Struct):
    """The progress of the present pass, and what the last whole pass left."""

    place: Place = Place()
    found: list[Left] = []
    left: list[Left] = []

    def note(self, flow: str, why: str, id: bytes) -> None:
        for known in self.found:
            if (known.flow, known.why) == (flow, why):
                known.count += 1
                return
        if len(self.found) < NAMED:
            self.found.append(Left(flow, why, 1, str(UUID(bytes=id))))

    def end(self) -> None:
        self.place, self.found, self.left = Place(), [], self.found


def read_mark(errand: Errand, task: str) -> Mark:
    [written] = errand.one(_FOLDER, "read_mark", task)
    return Mark() if written is None else msgspec.json.decode(written, type=Mark)


def save_mark(errand: Errand, task: str, mark: Mark) -> None:
    errand.run(_FOLDER, "save_mark", task, msgspec.json.encode(mark).decode())


def find_due(errand: Errand, older: datetime, mark: Mark) -> list[bytes]:
    """The next instances that need rows from before a moment; the mark moves behind them."""
    place = mark.place
    _, due, org, status, id = errand.one(_FOLDER, "find_long_lived", older, place.org, place.status, place.id, VISITED)
    mark.place = Place(org, status, None if id is None else str(id))
    return [found.bytes for found in due]


class Carrier:
    """Carry instances, and remember the flows they belong to."""

    def __init__(self) -> None:
        self._programs: dict[bytes, Program | None] = {}

    def carry(self, errand: Errand, ids: list[bytes], older: datetime, mark: Mark) -> list[bytes]:
        """Carry those of these instances that can be; note the others."""
        done: list[Carried] = []
        for row in errand.run(_FOLDER, "lock_long_lived", [UUID(bytes=id) for id in ids], older):
            id, flow = row[0].bytes, row[3]
            carried = self._carried(errand, row)
            if isinstance(carried, str):
                mark.note(flow, carried, id)
            else:
                done.append(carried)
        if done:
            _write(errand, done)
        return [carried.instance.id for carried in done]

    def _carried(self, errand: Errand, row: tuple[Any, ...]) -> Carried | str:
        id, org, definition, flow, flow_version, version, status, state, reason, entity_version, moment = row
        program = self._program(errand, definition.bytes)
        try:
            known = read_state(state.encode())
        except HoldfastError:
            return UNREADABLE
        if program is None:
            return UNREADABLE
        instance = Instance(
            id=id.bytes,
            org=org,
            definition=definition.bytes,
            flow=flow,
            flow_version=flow_version,
            version=version,
            status=InstanceStatus(status),
            state=known,
            data=_CONTEXT,
            reason=reason,
            entity_version=entity_version,
        )
        return hindrance(program, instance) or carry(instance, from_datetime(moment))

    def _program(self, errand: Errand, definition: bytes) -> Program | None:
        if definition not in self._programs:
            found = errand.run(_FOLDER, "read_compiled", definition)
            try:
                self._programs[definition] = link(load_compiled(*found[0]), definition) if found else None
            except HoldfastError:
                self._programs[definition] = None
        return self._programs[definition]


def _write(errand: Errand, done: list[Carried]) -> None:
    errand.one(_FOLDER, "carry_instances", *_instance_columns(done), *_step_columns(done))


def _instance_columns(done: list[Carried]) -> tuple[list[Any], ...]:
    whom = [carried.instance for carried in done]
    return (
        [UUID(bytes=i.id) for i in whom],
        [i.bucket for i in whom],
        [i.org for i in whom],
        [i.version for i in whom],
        [to_datetime(i.updated) for i in whom],
        [encode_state(i.state).decode() for i in whom],
        [UUID(bytes=carried.checkpoint) for carried in done],
        [carried.key for carried in done],
        [i.entity_version for i in whom],
        [carried.detail.decode() for carried in done],
    )


def _step_columns(done: list[Carried]) -> tuple[list[Any], ...]:
    steps = [(carried.instance, step) for carried in done for step in carried.steps]
    return (
        [UUID(bytes=i.id) for i, _ in steps],
        [i.bucket for i, _ in steps],
        [i.version for i, _ in steps],
        [to_datetime(i.updated) for i, _ in steps],
        [UUID(bytes=step.step) for _, step in steps],
        [to_datetime(step.at) for _, step in steps],
        [step.closed for _, step in steps],
        [step.opened for _, step in steps],
    )


def prune_receipts(errand: Errand, ids: list[bytes], window: float | None, most: int) -> int:
    """Remove receipts of what these instances have passed; without a window, none of signals."""
    [removed] = errand.one(_FOLDER, "prune_passed_receipts", [UUID(bytes=id) for id in ids], window, most)
    return removed
