"""Views of instances made from a commit: equal to a read, without the read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.core.model.state import Instance as Snapshot
from holdfast.core.model.status import TERMINAL
from holdfast.core.model.timestamps import to_datetime
from holdfast.errors import NotFound
from holdfast.runtime.commit.starter import Start
from holdfast.runtime.validation import Id, check_key, check_text
from holdfast.store.commit.rows import waiting_of
from holdfast.store.reads.flows import FlowVersion
from holdfast.store.reads.instances import Instance
from holdfast.store.reads.search import Wanted, check_value


class Page(msgspec.Struct, frozen=True):
    """Some instances and where the next page begins; None when this is the last one."""

    items: list[Instance]
    next: str | None


def take_wanted(wanted: Wanted, statuses: tuple[str, ...]) -> Wanted:
    check_text(wanted.flow, "name of the flow")
    check_text(wanted.starter, "person")
    check_key(wanted.business_key, "business key")
    for name, value in wanted.attributes.items():
        check_text(name, "name of an attribute")
        check_value(name, value)
    return msgspec.structs.replace(wanted, statuses=statuses)


def unknown_instance(id: Id) -> NotFound:
    return NotFound(f"There is no instance {id}.", code="INSTANCE_UNKNOWN", hint="Check the id and the organisation.")


def newest(versions: Iterable[FlowVersion]) -> list[FlowVersion]:
    """The version of each flow that a start would take; versions come newest first, an organisation's own before
    others.
    """
    found: dict[str, FlowVersion] = {}
    for flow in versions:
        if flow.status == "published":
            found.setdefault(flow.name, flow)
    return list(found.values())


def shown_id(id: bytes) -> str:
    """Format an id like `str(UUID(bytes=id))`, at a fifth of its cost."""
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
    """The view as a read would show it, made from the last commit."""
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
