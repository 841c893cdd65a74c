"""Instances as a user sees them, made from what was just committed: what a read would show, without the read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from holdfast.core.moments import to_datetime
from holdfast.core.state import Instance as Snapshot
from holdfast.core.status import TERMINAL
from holdfast.runtime.starter import Start
from holdfast.store.flows import FlowVersion
from holdfast.store.reads import Instance


class Page(msgspec.Struct, frozen=True):
    """Some instances and where the next page begins; None when this is the last one."""

    items: list[Instance]
    next: str | None


def page_of(found: list[Instance], limit: int, since: datetime | None) -> Page:
    """The page out of what was read, newest first: one more than fits says that there is a next one."""
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    young = [i for i in found if since is None or i.created_at is None or i.created_at >= since]
    more = len(young) > limit
    return Page(young[:limit], young[limit - 1].id if more else None)


def newest(versions: Iterable[FlowVersion]) -> list[FlowVersion]:
    """Of each flow the version a start would take; versions come newest first, an organisation's own before others."""
    found: dict[str, FlowVersion] = {}
    for flow in versions:
        if flow.status == "published":
            found.setdefault(flow.name, flow)
    return list(found.values())


def shown_id(id: bytes) -> str:
    """As `str(UUID(bytes=id))`, at a fifth of its cost."""
    digits = id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def pending(start: Start) -> Instance:
    input = msgspec.json.decode(start.input)
    return Instance(
        id=shown_id(start.id),
        flow=start.definition.name,
        flow_version=start.definition.version,
        status="pending",
        version=0,
        data=input if isinstance(input, dict) else {},
        input=input,
        org=start.org,
        key=start.key,
        business_key=start.business_key,
        created_by=start.created_by,
    )


def current(view: Instance, snapshot: Snapshot, now: int) -> Instance:
    """What a read would show, made from what was just committed."""
    moment = to_datetime(now)
    return msgspec.structs.replace(
        view,
        status=str(snapshot.status),
        version=snapshot.version,
        data=msgspec.json.decode(snapshot.data),
        reason=snapshot.reason,
        updated_at=moment,
        completed_at=moment if snapshot.status in TERMINAL else None,
    )
