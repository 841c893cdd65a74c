"""Rebuild: an instance's snapshot made anew from its step rows, under its lock (WF-15).

It repairs snapshots that cannot be read or contradict the rows. The rows are the truth, so they win, unless some are
missing or work in flight would be lost: then the rebuild writes nothing and gives the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.kernel.scopes import OUT
from holdfast.core.model.control_rows import Checkpoint
from holdfast.core.model.program import Program
from holdfast.core.model.rows import StepRow
from holdfast.core.model.state import Instance, State, rollback_summary, scope_view, token_view, value_of
from holdfast.core.model.status import INSTANCE_TRANSITIONS, TERMINAL, Phase
from holdfast.core.model.timestamps import to_datetime
from holdfast.core.replay.replay import replay
from holdfast.errors import Conflict, NotFound
from holdfast.store.admin import repair
from holdfast.store.admin.connection import WORKER, Desk, Errand
from holdfast.store.admin.repair import Missing, Stored


class Difference(msgspec.Struct, frozen=True):
    """One thing the snapshot tells otherwise than the rows."""

    what: str
    stored: Any
    rebuilt: Any


class Rebuilt(msgspec.Struct, frozen=True):
    """Result of a rebuild. `missing`: the pieces a re-enqueue would set in motion."""

    id: str
    written: bool
    version: int
    differences: list[Difference]
    missing: list[Missing]


def unknown(id: bytes) -> NotFound:
    return NotFound(
        f"There is no instance {id.hex()}.", code="INSTANCE_UNKNOWN", hint="Check the id and the organisation."
    )


async def rebuild(
    dsn: str,
    org: str,
    program: Program,
    id: bytes,
    by: str,
    reason: str | None,
    *,
    dry_run: bool,
    earlier: Mapping[bytes, Program],
) -> Rebuilt:
    """`earlier`: the graphs the instance was migrated from."""
    return await asyncio.to_thread(_rebuild, dsn, org, program, id, by, reason, dry_run=dry_run, earlier=earlier)


def _rebuild(
    dsn: str,
    org: str,
    program: Program,
    id: bytes,
    by: str,
    reason: str | None,
    *,
    dry_run: bool,
    earlier: Mapping[bytes, Program],
) -> Rebuilt:
    with Desk(dsn) as desk, desk.transaction(WORKER) as errand:
        stored = repair.lock_instance(errand, org, id)
        if stored is None:
            raise unknown(id)
        work = repair.list_work(errand, id)
        rows = repair.read_rows(errand, stored)
        folded = fold(program, stored, rows, repair.count_receipts(errand, stored), earlier)
        rebuilt = with_fences(folded, rows, stored.state, work)
        found = list(differences(stored, rebuilt))
        if not found:
            return Rebuilt(str_id(id), False, stored.version, [], repair.find_missing(errand, id))
        _refuse_loss(stored, rebuilt, work)
        if dry_run:
            return Rebuilt(str_id(id), False, stored.version, found, [])
        return _write(errand, stored, rebuilt, found, by, reason)


def _write(
    errand: Errand, stored: Stored, rebuilt: Instance, found: list[Difference], by: str, reason: str | None
) -> Rebuilt:
    version = max(stored.version, rebuilt.version) + 1
    after = msgspec.structs.replace(rebuilt, version=version)
    repair.write_snapshot(errand, stored, after, waiting_summary(after.state))
    about = {"by": by, "reason": reason, "changed": [difference.what for difference in found]}
    repair.note(errand, stored, version, "instance_rebuilt", by, about)
    repair.hint(errand)
    missing = [] if after.status in TERMINAL else repair.find_missing(errand, after.id)
    return Rebuilt(str_id(after.id), True, version, found, missing)


def fold(
    program: Program, stored: Stored, rows: list[StepRow], receipts: int, earlier: Mapping[bytes, Program]
) -> Instance:
    """The instance the rows tell of; refused when they are not all there or tell nothing that makes sense."""
    if len(rows) < receipts or not has_beginning(stored, rows):
        raise Conflict(
            f"{max(receipts, 1) - len(rows)} of the instance's steps are gone, so it cannot be rebuilt from the rest.",
            code="REBUILD_INCOMPLETE",
            hint="Retention has dropped their month, or they are in a backup; the snapshot stays as it is.",
        )
    try:
        return replay(program, rows, instance=stored.identity, programs=earlier)
    except Exception as failure:  # rows that contradict each other can break the fold anywhere
        raise Conflict(
            f"The instance's steps cannot be folded: {failure!r}.",
            code="REBUILD_IMPOSSIBLE",
            hint="Look at its steps and events; force_fail ends it if nothing else helps.",
        ) from failure


def has_beginning(stored: Stored, rows: list[StepRow]) -> bool:
    """Check if the rows begin where the instance did, or at the checkpoint with which it was carried last."""
    if stored.carried is not None:
        return any(row.node == Checkpoint.node for row in rows)
    return any(row.cause == "started" for row in rows)


def with_fences(rebuilt: Instance, rows: list[StepRow], known: State | None, work: dict[str, int]) -> Instance:
    """Fences live as long as the path and only rise: the highest anybody has written counts."""
    highest: dict[str, int] = {}
    for path, fence in (*((row.path, row.fence) for row in rows), *_fences(known)):
        highest[path] = max(fence, highest.get(path, 0))
    state = rebuilt.state
    tokens = {
        # A result counts from the token's fence upwards, so it must not lie above the fence of work under way.
        path: msgspec.structs.replace(token, fence=min(highest.get(path, 0), work.get(path, 1 << 62)))
        for path, token in state.tokens.items()
    }
    scopes = {
        id: msgspec.structs.replace(scope, fence=highest.get(scope.parent, 0)) for id, scope in state.scopes.items()
    }
    return msgspec.structs.replace(rebuilt, state=msgspec.structs.replace(state, tokens=tokens, scopes=scopes))


def _fences(known: State | None) -> Iterator[tuple[str, int]]:
    if known is not None:
        yield from ((path, token.fence) for path, token in known.tokens.items())
        yield from ((scope.parent, scope.fence) for scope in known.scopes.values())


def differences(stored: Stored, rebuilt: Instance) -> Iterator[Difference]:
    """Leases, fences and moments are not compared: the rows do not tell them."""
    if stored.status != rebuilt.status:
        yield Difference("status", str(stored.status), str(rebuilt.status))
    if stored.reason != rebuilt.reason:
        yield Difference("reason", stored.reason, rebuilt.reason)
    was, now = msgspec.json.decode(stored.data), msgspec.json.decode(rebuilt.data)
    if was != now:
        yield Difference("data", was, now)
    if stored.state is None:
        yield Difference("state", stored.problem, sorted(rebuilt.state.tokens))
        return
    for name, view in (("tokens", _tokens), ("scopes", scope_view)):
        left, right = view(stored.state), view(rebuilt.state)
        for path in sorted(left.keys() | right.keys()):
            if left.get(path) != right.get(path):
                yield Difference(f"{name}.{path}", left.get(path), right.get(path))
    for name in ("early", "parked", "stopping", "expires"):
        left, right = getattr(stored.state, name), getattr(rebuilt.state, name)
        if left != right:
            yield Difference(name, msgspec.to_builtins(left), msgspec.to_builtins(right))
    left, right = rollback_summary(stored.state), rollback_summary(rebuilt.state)
    if left != right:
        yield Difference("rollback", left, right)


def _tokens(state: State) -> dict[str, Any]:
    values = {path: msgspec.json.decode(value_of(token) or b"null") for path, token in state.tokens.items()}
    return {path: (view, values[path]) for path, view in token_view(state).items()}


def _refuse_loss(stored: Stored, rebuilt: Instance, work: dict[str, int]) -> None:
    """Refuse a rebuild that would drop state the rows do not explain."""
    moved = stored.status != rebuilt.status
    if stored.status in TERMINAL or (moved and rebuilt.status not in INSTANCE_TRANSITIONS[stored.status]):
        raise Conflict(
            f"The instance is {stored.status}, its steps tell {rebuilt.status}: a status never goes back.",
            code="REBUILD_REFUSED",
            hint="What is over stays over; start a new instance if it should run again.",
        )
    tokens = rebuilt.state.tokens
    lost = sorted(path for path in work if path not in tokens or tokens[path].phase not in OUT)
    if lost:
        raise Conflict(
            f"Work is under way on {', '.join(lost)}, which the steps know nothing of: its result would be lost.",
            code="REBUILD_REFUSED",
            hint="Wait until it is done, or abort the instance.",
        )


def waiting_summary(state: State) -> tuple[str | None, datetime | None]:
    """Summary for lists: the first kind of wait, and the earliest due time."""
    waits = [wait for token in state.tokens.values() for wait in token.waits]
    resting = any(token.phase is Phase.RESTING for token in state.tokens.values())
    kind = waits[0].kind if waits else "event" if resting else None
    dues = [wait.due for wait in waits if wait.due is not None]
    return kind, to_datetime(min(dues)) if dues else None


def str_id(id: bytes) -> str:
    return str(UUID(bytes=id))
