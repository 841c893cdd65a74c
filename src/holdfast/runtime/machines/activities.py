"""Activities as the engine's facade offers them: checked, then written. No decision reads them."""

from __future__ import annotations

from typing import Any, Final, Literal

from holdfast.errors import Conflict, NotFound, Refused
from holdfast.runtime.commit.starter import new_id
from holdfast.runtime.validation import Id, check_version, take_id, take_payload
from holdfast.store import activities
from holdfast.store.activities import Activity, EntryKey, NewActivity
from holdfast.store.pg.session import Session

PRESENT: Final = "present"
NONE: Final = "none"
MOST_NAME_BYTES: Final = 200
Entry = int | Literal["present", "none"]


async def write_activity(
    session: Session, org: str, instance: bytes, name: str, status: str, by: str, entry: Entry, data: Any
) -> Activity:
    for text, what in ((name, "name of an activity"), (status, "status of an activity"), (by, "actor")):
        check_name(text, what)
    raw = None if data is None else take_payload(data, "the data of an activity", f"{name!r}")
    key = await _entry(session, org, instance, entry)
    id = _row_id(instance)
    found = await activities.upsert_activity(
        session, org, instance, id, key, NewActivity(name, by, status, raw)
    )  # fmt: skip
    if found is None:
        raise _frozen(name)
    return found


async def change_activity(
    session: Session,
    org: str,
    instance: bytes,
    activity: Id,
    *,
    status: str | None = None,
    data: Any = None,
    frozen: bool | None = None,
) -> tuple[Activity, bool]:
    """Change one activity; the answer tells, too, if it was changed. Freezing a frozen one changes nothing."""
    if status is not None:
        check_name(status, "status of an activity")
    raw = None if data is None else take_payload(data, "the data of an activity")
    id = take_id(activity)
    before = await get_activity(session, org, instance, activity)
    if frozen is not None and before.frozen == frozen:
        return before, False
    if not await activities.change_activity(session, org, instance, id, status=status, data=raw, frozen=frozen):
        if frozen:
            return await get_activity(session, org, instance, activity), False
        raise _frozen(before.name)
    return await get_activity(session, org, instance, activity), True


async def get_activity(session: Session, org: str, instance: bytes, activity: Id) -> Activity:
    found = await activities.list_activities(session, org, instance, id=take_id(activity), limit=1)
    if not found:
        raise NotFound(
            f"The instance has no activity {activity}.", code="ACTIVITY_UNKNOWN", hint="Check the id and the instance."
        )
    return found[0]


def check_name(text: Any, what: str) -> None:
    """Check a text that is stored beside an activity, where it has little room."""
    if not isinstance(text, str) or not 1 <= len(text.encode("utf-8", "replace")) <= MOST_NAME_BYTES or not _fits(text):
        raise Refused(
            f"The {what} must have 1 to {MOST_NAME_BYTES} bytes of valid text.",
            code="TEXT_INVALID",
            hint="Use a short text without NUL and half characters; put more into the data.",
        )


def _fits(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _row_id(instance: bytes) -> bytes:
    """An id beside its instance: the bucket is that of the instance."""
    return new_id("", None, None)[:15] + instance[15:]


async def _entry(session: Session, org: str, instance: bytes, entry: Any) -> EntryKey | None:
    if entry == NONE:
        return None
    if entry != PRESENT:
        check_version(entry, "number of an entry", 0)
    found = await activities.read_entry(session, org, instance, None if entry == PRESENT else entry)
    if found is None:
        raise NotFound(
            "The instance has not entered a state yet." if entry == PRESENT else f"There is no entry {entry}.",
            code="ENTRY_UNKNOWN",
            hint='Entries are numbered from 0 in the instance\'s lifecycle; "none" belongs to no entry.',
        )
    return found


def _frozen(name: str) -> Conflict:
    return Conflict(
        f"The activity {name!r} is frozen.",
        code="ACTIVITY_FROZEN",
        hint="Unfreeze it first, or tell of another one.",
    )
