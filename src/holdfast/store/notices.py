"""Notices for operators: written by commits, by the look for stale instances, and by background loops.

The id of a notice begins with the moment of its commit, so ids order notices by time. Commits become visible in another
order than they took their moments, which a reader that follows them must allow for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.core.model.timestamps import UNIX_OFFSET_MS, from_datetime, to_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

ACK_RETRY: Final = "ACK_RETRY"
ACK_SUSPEND: Final = "ACK_SUSPEND"
ACK_FAIL: Final = "ACK_FAIL"
STATE_STALE: Final = "STATE_STALE"
DEFAULT_STATE_STALE: Final = "DEFAULT_STATE_STALE"
MONITOR_ERROR: Final = "MONITOR_ERROR"
EVENT_HANDLER_ERROR: Final = "EVENT_HANDLER_ERROR"
TRIGGER_ERROR: Final = "TRIGGER_ERROR"
KIND_OF: Final[dict[str, str]] = {
    ACK_RETRY: "warn",
    ACK_SUSPEND: "warn",
    ACK_FAIL: "warn",
    STATE_STALE: "overdue",
    DEFAULT_STATE_STALE: "overdue",
    MONITOR_ERROR: "error",
    EVENT_HANDLER_ERROR: "error",
    TRIGGER_ERROR: "error",
}
KINDS: Final = ("info", "warn", "overdue", "error")
WINDOW: Final = 500  # notices that are looked at to find those that fit


class NewNotice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A notice to be written outside of a decision. `detail` is JSON."""

    org: str
    code: str
    message: str
    kind: str = ""  # empty: the usual one of the code
    instance: bytes | None = None
    consumer: str | None = None
    detail: bytes = b"{}"

    @property
    def kind_of_it(self) -> str:
        return self.kind or KIND_OF.get(self.code, "info")


class Notice(msgspec.Struct, frozen=True):
    """One message of the engine to operators."""

    id: str
    code: str
    kind: str
    message: str
    instance_id: str | None
    consumer: str | None
    detail: Any
    created_at: datetime

    @property
    def state(self) -> str | None:
        """The state that the message names; None if it names none."""
        return self.detail.get("state", self.detail.get("state_name"))


class NoticePage(msgspec.Struct, frozen=True):
    """Notices, and the start of the next page; None when this is the last one."""

    items: list[Notice]
    next: str | None


class WantedNotices(msgspec.Struct, frozen=True):
    """Filter for notices; a field that is None does not filter."""

    code: str | None = None
    kind: str | None = None
    instance: bytes | None = None
    consumer: str | None = None
    since: datetime | None = None

    def fits(self, notice: Notice) -> bool:
        """Compare a notice with all fields but the moment."""
        return (
            (self.code is None or notice.code == self.code)
            and (self.kind is None or notice.kind == self.kind)
            and (self.instance is None or notice.instance_id == str(UUID(bytes=self.instance)))
            and (self.consumer is None or notice.consumer == self.consumer)
        )


async def tell_notices(session: Session, notices: Sequence[NewNotice]) -> None:
    """Write notices in a transaction of their own."""
    batch = [(n.org, n.code, n.kind_of_it, n.message, n.instance, n.consumer, n.detail) for n in notices]
    await session.once(PIN, SQL.tell_notices.rows(batch))


async def list_notices(
    session: Session, org: str, wanted: WantedNotices, after: bytes | None, limit: int
) -> tuple[list[Notice], bytes | None]:
    """Up to `limit` notices, newest first, and the id behind which the next page begins."""
    window = max(limit, WINDOW) if (wanted.code, wanted.kind, wanted.consumer) != (None, None, None) else limit
    since = None if wanted.since is None else first_id(from_datetime(wanted.since))
    asked = org, after, since, wanted.code, wanted.kind, wanted.consumer, window
    query = (
        SQL.list_notices.one(*asked)
        if wanted.instance is None
        else SQL.list_notices_of_instance.one(*asked, wanted.instance)
    )
    found = await _read(session, org, query)
    fitting: list[Notice] = []
    for row in found:
        if row[1] == b"\1":
            fitting.append(_notice(row))
            if len(fitting) == limit:
                return fitting, row[0] if len(found) == window or row is not found[-1] else None
    return fitting, found[-1][0] if len(found) == window else None


async def follow_notices(session: Session, org: str, after: bytes, limit: int) -> list[Notice]:
    """Notices behind an id, oldest first."""
    return [_notice(row) for row in await _read(session, org, SQL.follow_notices.one(org, after, limit))]


async def read_now(session: Session) -> int:
    """The clock of the database."""
    [result] = await session.once(SQL.read_clock.one())
    return read_int(result.get_value(0, 0) or b"")


def first_id(moment: int) -> bytes:
    """The least id of a moment, in microseconds since 2000."""
    milliseconds = max(0, min(moment // 1000 + UNIX_OFFSET_MS, 2**48 - 1))
    return milliseconds.to_bytes(6, "big") + bytes(10)


def moment_of(id: bytes) -> int:
    """The moment in an id, in microseconds since 2000."""
    return (int.from_bytes(id[:6], "big") - UNIX_OFFSET_MS) * 1000


async def _read(session: Session, org: str, query: Query) -> list[list[Any]]:
    results = await session.once(SQL.use_tenant.one(org), query)
    return rows(results[1])


def _notice(row: list[Any]) -> Notice:
    id, _, created, code, kind, message, instance, consumer, detail = row
    return Notice(
        id=str(UUID(bytes=id)),
        code=code.decode(),
        kind=kind.decode(),
        message=message.decode(),
        instance_id=None if instance is None else str(UUID(bytes=instance)),
        consumer=None if consumer is None else consumer.decode(),
        detail=msgspec.json.decode(detail[1:]),
        created_at=to_datetime(read_int(created)),
    )
