"""The past of an instance for decisions in the middle of a commit: rows of the table and rows not yet written."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import msgspec

from holdfast.core.model.decision import Decision, Opened
from holdfast.core.model.ids import FORWARD
from holdfast.core.model.renames import MIGRATE, names_today
from holdfast.core.model.signals import Failure, PastStep
from holdfast.core.model.status import StepStatus
from holdfast.core.rollback.pending import Undo, undo_of
from holdfast.store.commit.rows import Entry
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

_NUMBERS: Final = Struct("!qihqhq").unpack  # time of opening, hop, run, version, ordinal, fence


async def read_past(session: Session, entries: Sequence[Entry]) -> dict[bytes, list[PastStep]]:
    """Read every step of these instances and apply the decisions of the present commit, not yet in the table."""
    ids = [entry.before.id for entry in entries]
    [result] = await session.run([SQL.read_past.rows([(id, id[15]) for id in ids])])
    past: dict[bytes, list[PastStep]] = {id: [] for id in ids}
    for instance, id, *numbers, node, path, kind, status, input, output, detail in rows(result):
        at, hop, run, version, ordinal, fence = _NUMBERS(b"".join(numbers))
        past[instance].append(
            PastStep(
                id=id,
                at=at,
                hop=hop,
                run=run,
                version=version,
                ordinal=ordinal,
                fence=fence,
                node=node.decode(),
                path=path.decode(),
                kind=kind.decode(),
                status=status.decode(),
                input=_json(input),
                output=_json(output),
                detail=_json(detail),
            )
        )
    return {entry.before.id: with_decisions(past[entry.before.id], entry.decisions) for entry in entries}


def with_decisions(steps: Sequence[PastStep], decisions: Sequence[Decision]) -> list[PastStep]:
    """Apply decisions to the past: the steps as they will be after the commit."""
    past = {step.id: step for step in steps}
    for decision in decisions:
        for opened in decision.opened:
            past[opened.id] = past_step(opened, decision.instance.updated)
        for closed in decision.closed:
            past[closed.id] = msgspec.structs.replace(past[closed.id], status=closed.status, output=closed.output)
        for moved in decision.moved:
            past[moved.id] = msgspec.structs.replace(past[moved.id], status=moved.status)
        for id, _ in decision.superseded:
            past[id] = msgspec.structs.replace(past[id], status=StepStatus.SUPERSEDED)
    return list(past.values())


def past_step(step: Opened, at: int, status: str | None = None, output: bytes | None = None) -> PastStep:
    """Build a past step from its opening; `status` and `output` replace those of the opening."""
    return PastStep(
        id=step.id,
        at=at,
        hop=step.hop,
        run=step.run,
        version=step.version,
        ordinal=step.ordinal,
        fence=step.fence,
        node=step.node,
        path=step.path,
        kind=step.kind,
        status=status or step.status,
        input=step.input,
        output=step.output if output is None else output,
        detail=step.detail,
    )


async def was_taken_back(session: Session, instance: bytes) -> bool:
    """Check whether a rollback has ended the instance and undone all its steps."""
    [result] = await session.run([SQL.was_taken_back.one(instance, instance[15])])
    return bool(rows(result))


async def read_last_call(session: Session, instance: bytes, step: bytes, at: int) -> tuple[bytes | None, Failure]:
    """Read the input of an open step's last call and the failure it ended with."""
    [result] = await session.run([SQL.read_last_call.one(instance, instance[15], at, step)])
    [[input, error]] = rows(result)
    return _json(input), msgspec.json.decode(error[1:], type=Failure)


async def read_visited(
    session: Session, instance: bytes, decisions: Sequence[Decision] = (), *, inside: bool = False
) -> frozenset[str]:
    """Read the nodes an instance has visited, by the names they have today; `inside` the commit of these decisions."""
    query = SQL.read_visited.one(instance, instance[15])
    result = (await session.run([query]))[0] if inside else (await session.once(PIN, query))[1]
    steps = [
        (node.decode(), (read_int(version), read_int(ordinal)), kind.decode(), _json(detail))
        for node, version, ordinal, kind, detail in rows(result)
    ]
    steps += [(s.node, (s.version, s.ordinal), s.kind, s.detail) for made in decisions for s in made.opened]
    today = names_today((moment, detail) for node, moment, _, detail in steps if node == MIGRATE)
    return frozenset(today(node, moment) for node, moment, kind, _ in steps if kind == FORWARD)


async def read_compensation(
    session: Session, org: str, instance: bytes, step: bytes, at: int
) -> tuple[Undo, bytes] | None:
    """Read a compensation that ran out of calls, with its input."""
    query = SQL.read_compensation.one(instance, instance[15], at, step)
    found = rows((await session.once(SQL.use_tenant.one(org), query))[1])
    if not found:
        return None
    node, path, hop, id, created, fence, run, detail, input = found[0]
    undo = undo_of(
        node.decode(), path.decode(), read_int(hop), id, read_int(created), read_int(fence), read_int(run), detail[1:]
    )
    return undo, _json(input) or b"null"


async def open_letters(session: Session, letters: Sequence[bytes], org: str) -> set[bytes]:
    """Lock these dead letters of one instance and return the open ones; no other transaction settles them meanwhile."""
    [result] = await session.run([SQL.lock_letters.arrays([letters], org)])
    return {id for (id,) in rows(result)}


def _json(value: bytes | None) -> bytes | None:
    return None if value is None else value[1:]
