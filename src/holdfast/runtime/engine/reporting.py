"""Verbs about notices, activities and the lifecycle of an instance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any, TypeVar, overload
from uuid import UUID

from holdfast.errors import Refused
from holdfast.runtime.engine.reading import Reading
from holdfast.runtime.machines.activities import PRESENT, Entry, change_activity, check_name, write_activity
from holdfast.runtime.machines.board import Subscriber
from holdfast.runtime.machines.following import Follower, follow
from holdfast.runtime.reads.views import unknown_instance
from holdfast.runtime.validation import Id, check_text, take_id, take_utc
from holdfast.store.activities import Activity, list_activities
from holdfast.store.notices import KINDS, Notice, NoticePage, WantedNotices, first_id, list_notices, read_now
from holdfast.store.queue.notes import note_event
from holdfast.store.reads.lifecycle import Lifecycle, read_lifecycle
from holdfast.store.reads.steps import check_page

S = TypeVar("S", bound=Subscriber)


class Reporting(Reading):
    # --- notices ---------------------------------------------------------------------------------------------------

    async def notices(
        self,
        *,
        code: str | None = None,
        kind: str | None = None,
        instance: Id | None = None,
        consumer: str | None = None,
        since: datetime | None = None,
        after: Id | None = None,
        limit: int = 50,
    ) -> NoticePage:
        """List notices, newest first; `after` is the `next` of the page before.

        With a filter, a page may hold less than `limit` although there are more: only `next` tells.
        """
        wanted = take_notices(code, kind, instance, consumer, since)
        start = None if after is None else take_id(after)
        found, end = await list_notices(self._opened(), self.org, wanted, start, check_page(limit, "notices"))
        return NoticePage(found, None if end is None else str(UUID(bytes=end)))

    async def notice_place(self) -> str:
        """The place of this moment among notices, as an `after` of `follow_notices`."""
        return str(UUID(bytes=first_id(await read_now(self._opened()))))

    def follow_notices(
        self,
        *,
        after: Id | None = None,
        code: str | None = None,
        kind: str | None = None,
        instance: Id | None = None,
        consumer: str | None = None,
        life: float | None = None,
    ) -> AsyncIterator[Notice]:
        """Follow notices as they are committed, from now on or from behind `after`, for ever or for `life` seconds.

        None is missed. Notices of the last seconds before `after` may come again: compare ids where that matters.
        """
        wanted = take_notices(code, kind, instance, consumer, None)
        follower = Follower(self._opened, self.org, None if after is None else take_id(after))
        return follow(follower, self.board.news, wanted, life)

    @overload
    def on_notice(self, function: S) -> S: ...
    @overload
    def on_notice(self, function: None = None, *, codes: tuple[str, ...] = ()) -> Callable[[S], S]: ...
    def on_notice(self, function: S | None = None, *, codes: tuple[str, ...] = ()) -> S | Callable[[S], S]:
        """Decorate a function that is called with each notice of this organisation while a worker runs here.

        At best effort: one that raises is logged and not called again for that notice.
        """
        for code in codes:
            check_text(code, "code of a notice")

        def subscribe(function: S) -> S:
            self.board.subscribe(self.org, frozenset(codes), function)
            return function

        return subscribe if function is None else subscribe(function)

    # --- activities ------------------------------------------------------------------------------------------------

    async def activity(
        self,
        instance_id: Id,
        name: str,
        *,
        status: str,
        by: str,
        entry: Entry = PRESENT,
        data: Any = None,
    ) -> Activity:
        """Write the status of an application's work under (entry, name, actor), over the one before.

        `entry` is the number of an entry of the lifecycle, `"present"`, or `"none"` for work that belongs to no entry.
        Without `data` the earlier data stays. It decides nothing: no step reads it.
        """
        await self.get(instance_id)
        return await write_activity(self._opened(), self.org, take_id(instance_id), name, status, by, entry, data)

    async def set_activity(self, instance_id: Id, activity_id: Id, *, status: str, data: Any = None) -> Activity:
        """Change the status of one activity by its id."""
        await self.get(instance_id)
        changed, _ = await change_activity(
            self._opened(), self.org, take_id(instance_id), activity_id, status=status, data=data
        )
        return changed

    async def freeze_activity(self, instance_id: Id, activity_id: Id, *, by: str) -> Activity:
        """Refuse changes of an activity until it is unfrozen; done again, it changes nothing."""
        return await self._freeze(instance_id, activity_id, by, frozen=True)

    async def unfreeze_activity(self, instance_id: Id, activity_id: Id, *, by: str) -> Activity:
        return await self._freeze(instance_id, activity_id, by, frozen=False)

    async def _freeze(self, instance_id: Id, activity_id: Id, by: str, *, frozen: bool) -> Activity:
        check_name(by, "actor")
        await self.get(instance_id)
        id = take_id(instance_id)
        found, is_changed = await change_activity(self._opened(), self.org, id, activity_id, frozen=frozen)
        if is_changed:
            detail = {"activity": found.id, "name": found.name}
            await note_event(self._opened(), id, "activity_frozen" if frozen else "activity_unfrozen", by, detail)
        return found

    async def activities(self, instance_id: Id, *, after: Id | None = None, limit: int = 1000) -> list[Activity]:
        """List the activities of an instance, oldest first; `after` is the last one of the page before."""
        await self.get(instance_id)
        start = None if after is None else take_id(after)
        return await list_activities(
            self._opened(), self.org, take_id(instance_id), after=start, limit=check_page(limit, "activities")
        )

    # --- lifecycle -------------------------------------------------------------------------------------------------

    async def lifecycle(self, instance_id: Id, *, last: int | None = None) -> Lifecycle:
        """Read the lifecycle of a machine as one document; with `last`, that many of its latest entries.

        It ends at 8 MiB of payloads, and of activities; then it is `truncated`.
        """
        if last is not None and (type(last) is not int or last < 1):
            raise Refused("At least one entry must be wanted.", code="LIMIT_INVALID", hint="Leave out `last` for all.")
        found = await read_lifecycle(self._opened(), self.org, take_id(instance_id), last)
        if found is None:
            raise unknown_instance(instance_id)
        return found


def take_notices(
    code: str | None, kind: str | None, instance: Id | None, consumer: str | None, since: datetime | None
) -> WantedNotices:
    check_text(code, "code of notices")
    check_text(consumer, "name of the consumer")
    if kind is not None and kind not in KINDS:
        raise Refused(
            f"There is no kind {ascii(kind)[:80]} of notices.", code="KIND_UNKNOWN", hint=f"One of {', '.join(KINDS)}."
        )
    return WantedNotices(
        code, kind, None if instance is None else take_id(instance), consumer, take_utc(since, "since")
    )  # fmt: skip
