"""The lifecycle of a machine as one document: its instance, its entries into states, and the activities in each."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.store.activities import Activity
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL

ALL: Final = 2**40  # entries of one instance
MOST_BYTES: Final = (
    8 * 1024 * 1024
)  # of the payloads of a document, and of its activities; the latest ones are always there


class LifecycleInstance(msgspec.Struct, frozen=True):
    """The instance of a lifecycle. `definition` is the machine's name, `flow` that of the published graph."""

    id: str
    guid: str
    external_ref: str | None
    definition: str
    environment: str | None
    flow: str
    definition_version: int
    blueprint_version: int | None
    status: str
    current_state: str | None
    last_event: str | None
    created_at: datetime
    modified_at: datetime


class LifecycleEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry into a state. The first one, number 0, has no event: it is the start."""

    number: int
    id: str
    from_state: str | None
    to_state: str
    event: str | None
    event_code: int | None
    actor: str | None
    payload: Any
    occurred_at: datetime
    created_at: datetime
    activities: list[Activity]


class Lifecycle(msgspec.Struct, frozen=True):
    """The lifecycle of one instance; `truncated`: there are earlier entries, or activities."""

    instance: LifecycleInstance
    entries: list[LifecycleEntry]
    other_activities: list[Activity]
    truncated: bool = False


_decode = msgspec.json.Decoder(Lifecycle).decode


async def read_lifecycle(session: Session, org: str, id: bytes, last: int | None = None) -> Lifecycle | None:
    """Read the document in one statement: the latest entries, `last` of them and `MOST_BYTES` at most."""
    query = SQL.read_lifecycle.one(id, id[15], org, ALL if last is None else last, MOST_BYTES)
    results = await session.once(SQL.use_tenant.one(org), query)
    found = rows(results[1])
    return _numbered(_decode(found[0][0])) if found else None


def _numbered(document: Lifecycle) -> Lifecycle:
    """Give activities the number of an entry whose row was carried elsewhere: their own key leads nowhere then."""
    for entry in document.entries:
        for n, activity in enumerate(entry.activities):
            if activity.entry is None:
                entry.activities[n] = msgspec.structs.replace(activity, entry=entry.number)
    return document
