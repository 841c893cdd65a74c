"""Hand-made decisions: what the core would answer, reduced to what a test is about."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.core.model.decision import Closed, Decision, Dispatch, Event, Opened, Release
from holdfast.core.model.ids import FORWARD, receipt_key, step_id, token_id
from holdfast.core.model.state import EMPTY, Instance
from holdfast.core.model.status import InstanceStatus, StepStatus
from holdfast.store.commit.batch import Batch, writes
from holdfast.store.commit.locks import CLOCK
from holdfast.store.commit.rows import Entry, NewInstance
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, DatabaseError, Session, rows
from holdfast.store.pg.statements import SQL, Query, base_name
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

ME = b"\x11" * 16
OTHER = b"\x22" * 16
_MOMENT = 848_000_000_000_000  # some time in 2026, in the kernel's microseconds; only its order matters


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Session]:
    session = await Session.open(dsn)
    try:
        yield session
    finally:
        await session.close()


def new_id(bucket: int = 7) -> bytes:
    noise = os.urandom(9)
    return b"\x01\x9a\xb0\x00\x00\x00\x70" + noise[:1] + b"\x80" + noise[1:7] + bytes([bucket])


def instance(id: bytes | None = None, version: int = 1, **changes: Any) -> Instance:
    base = Instance(id or new_id(), "acme", b"\x33" * 16, "order", 1, version, InstanceStatus.RUNNING, EMPTY, b"{}")
    return msgspec.structs.replace(base, **changes)


def later(before: Instance, **changes: Any) -> Instance:
    """The same instance one decision on."""
    return msgspec.structs.replace(before, version=before.version + 1, **changes)


def decision(after: Instance, **parts: Any) -> Decision:
    """A decision with these parts; all others are empty."""
    lists = {
        f.name: [] for f in msgspec.structs.fields(Decision) if f.name not in ("instance", "keep", "error", "plain")
    }
    return Decision(**{**lists, "instance": after, "keep": False, "error": None, **parts})


def visit(of: Instance, hop: int = 1, path: str = "0", **changes: Any) -> Opened:
    """A step that opens at this hop of this path."""
    token = token_id(path, hop)
    key = receipt_key(of.id, b"reserve", token, 0, FORWARD, 0)
    return msgspec.structs.replace(
        Opened(
            step_id(_MOMENT, key, of.id[15]), "reserve", "work", path, hop, token, key, 0, of.version, 0, "started",
            StepStatus.RUNNING, b'{"amount": 5}', fence=1, calls=1,
        ),
        **changes,
    )  # fmt: skip


def end(step: Opened, now: int, version: int, **changes: Any) -> Closed:
    closed = Closed(step.id, now, StepStatus.COMPLETED, "completed", version, 1, output=b'{"ok": true}')
    return msgspec.structs.replace(closed, **changes)


def dispatch(step: Opened, now: int, *, held: int = 0, fence: int = 1, **changes: Any) -> Dispatch:
    base = Dispatch(step.path, step.id, now, "main", "reserve", fence, held, 1, b"{}", 50)
    return msgspec.structs.replace(base, **changes)


def release(path: str = "0", fence: int = 1) -> Release:
    return Release(path, fence)


def happened(version: int, ordinal: int = 0, type: str = "opened") -> Event:
    return Event(version, ordinal, type, "reserve", "0@1", "ann")


def new() -> NewInstance:
    return NewInstance(b'{"amount": 5}')


def batch(now: int, *entries: Entry, leases: Callable[[Dispatch], bool] = lambda _: True, **parts: Any) -> Batch:
    lists: dict[str, Any] = {"consumed": [], "receipts": [], "kept": [], "children": []}
    return Batch(**{**lists, "now": now, "worker": ME, "leases": leases, "entries": list(entries), **parts})


async def read_now(session: Session) -> int:
    [result] = await session.once(CLOCK)
    return read_int(result.get_value(0, 0) or b"")


async def run(session: Session, queries: Sequence[Query]) -> list[Any]:
    """One transaction; what failed is rolled back and raised."""
    try:
        return await session.run([BEGIN, PIN, *queries, COMMIT])
    except DatabaseError:
        await session.run([ROLLBACK])
        raise


async def commit(session: Session, what: Batch) -> None:
    await run(session, writes(what))


async def refused(session: Session, what: Batch, state: str, statement: str) -> None:
    """The guard of this statement refuses the batch."""
    with pytest.raises(DatabaseError) as caught:
        await commit(session, what)
    assert (caught.value.sqlstate, base_name(caught.value.statement)) == (state, statement)


async def start(session: Session, **changes: Any) -> tuple[Instance, Opened, int]:
    """A stored instance with one open step whose work is leased to us under fence 1."""
    now = await read_now(session)
    first = instance(**changes)
    step = visit(first)
    opening = decision(first, opened=[step], dispatches=[dispatch(step, now)], events=[happened(1)])
    await commit(session, batch(now, Entry(first, [opening], new())))
    return first, step, now


async def read(session: Session, statement: str, *values: Any) -> list[list[Any]]:
    results = await run(session, [SQL.all[statement].one(*values)])
    return rows(results[2])
