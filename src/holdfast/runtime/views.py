"""Instances as a user sees them, made from what was just committed: what a read would show, without the read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.core.moments import to_datetime
from holdfast.core.state import Instance as Snapshot
from holdfast.core.status import TERMINAL
from holdfast.errors import NotFound
from holdfast.runtime.edge import Id, check_key, check_text
from holdfast.runtime.starter import Start
from holdfast.store.commit import waiting_of
from holdfast.store.flows import FlowVersion
from holdfast.store.reads import Instance
from holdfast.store.windows import Wanted, check_value


class Page(msgspec.Struct, frozen=True):
    """Some instances and where the next page begins; None when this is the last one."""

    items: list[Instance]
    next: str | None


def page_of(found: list[Instance], limit: int, since: datetime | None) -> Page:
    """The page out of what was read, newest first: one more than fits says that there is a next one."""
    young = _since(found, since)
    more = len(young) > limit
    return Page(young[:limit], young[limit - 1].id if more else None)


def window_of(found: list[Instance], next: str | None, since: datetime | None) -> Page:
    """What was found on the way, which ends where the first one is too old."""
    young = _since(found, since)
    return Page(young, next if len(young) == len(found) else None)


def _since(found: list[Instance], since: datetime | None) -> list[Instance]:
    if since is None:
        return found
    moment = since.replace(tzinfo=UTC) if since.tzinfo is None else since
    return [i for i in found if i.created_at is None or i.created_at >= moment]


def take_wanted(wanted: Wanted, statuses: tuple[str, ...]) -> Wanted:
    check_text(wanted.flow, "name of the flow")
    check_text(wanted.starter, "person")
    check_key(wanted.business_key, "business key")
    for name, value in wanted.attributes.items():
        check_text(name, "name of an attribute")
        check_value(name, value)
    return msgspec.structs.replace(wanted, statuses=statuses)


def fits(found: Instance, wanted: Wanted) -> bool:
    """Who started it and what it carries; the rest was asked of the database."""
    carried: dict[str, Any] = found.attributes or {}
    return wanted.starter in (None, found.created_by) and wanted.attributes.items() <= carried.items()


def unknown_instance(id: Id) -> NotFound:
    return NotFound(f"There is no instance {id}.", code="INSTANCE_UNKNOWN", hint="Check the id and the organisation.")


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
        attributes=None if start.attributes is None else msgspec.json.decode(start.attributes),
    )


def current(view: Instance, snapshot: Snapshot, now: int) -> Instance:
    """What a read would show, made from what was just committed."""
    moment = to_datetime(now)
    waiting_for, until = waiting_of(snapshot)
    return msgspec.structs.replace(
        view,
        status=str(snapshot.status),
        version=snapshot.version,
        data=msgspec.json.decode(snapshot.data),
        reason=snapshot.reason,
        waiting_for=waiting_for,
        waiting_until=None if until is None else to_datetime(until),
        updated_at=moment,
        completed_at=moment if snapshot.status in TERMINAL else None,
    )
