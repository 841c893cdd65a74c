"""Looking at instances, and waiting for their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.core.moments import from_datetime
from holdfast.core.status import TERMINAL, InstanceStatus
from holdfast.errors import Refused
from holdfast.runtime.edge import Id, check_key, check_moment, check_text, check_version, take_id
from holdfast.runtime.engine.base import Base
from holdfast.runtime.snapshots import News, Outcome
from holdfast.runtime.statistics import FlowStatistics, by_flow
from holdfast.runtime.steps.descriptor import MOST_HISTORY, last_step
from holdfast.runtime.steps.standing import Standing, heard, is_resting, standing_of, step_of
from holdfast.runtime.views import (
    Page,
    current,
    fits,
    newest,
    page_of,
    shown_id,
    take_wanted,
    unknown_instance,
    window_of,
)
from holdfast.store import reads
from holdfast.store.flows import (
    NEWEST,
    FlowDocument,
    FlowVersion,
    VersionPlace,
    list_flows,
    page_flows,
    page_versions,
    read_flow,
)
from holdfast.store.reads import Event, Instance, Step
from holdfast.store.runtimes import Runtime, read_runtime
from holdfast.store.statistics import read_statistics
from holdfast.store.trail import BEGINNING, Place, check_page, page_events, page_steps
from holdfast.store.whereabouts import Whereabouts, read_past, read_whereabouts
from holdfast.store.windows import Wanted, list_window

FIRST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 0.5


class Reading(Base):
    async def get(self, instance_id: Id, *, conn: Any = None) -> Instance:
        if conn is not None:
            return await self._borrowed.get(conn, take_id(instance_id))
        found = await reads.read_instance(self._opened(), self.org, take_id(instance_id))
        if found is None:
            raise unknown_instance(instance_id)
        return found

    async def runtime(self, instance_id: Id) -> Runtime:
        """What the engine would resume the instance from: version, waits, tokens, last signal, last error."""
        await self.get(instance_id)
        found = await read_runtime(self._opened(), self.org, take_id(instance_id))
        assert found is not None
        return found

    async def steps(
        self, instance_id: Id, *, all: bool = False, after: Place | None = None, limit: int | None = None
    ) -> list[Step]:
        """The steps of an instance in the order they happened; `all` adds the rows of ends and of interventions.

        With `limit` a page of them, of all kinds; `after` is the `place_of` the last one of the page before.
        """
        await self.get(instance_id)
        session, id = self._opened(), take_id(instance_id)
        if limit is not None:
            return await page_steps(session, self.org, id, after or BEGINNING, check_page(limit, "steps"))
        found = await reads.list_steps(session, self.org, id)
        return found if all else [step for step in found if step.behaviour not in ("end", "control")]

    async def events(self, instance_id: Id, *, after: Place | None = None, limit: int | None = None) -> list[Event]:
        """The audit trail of an instance, or a page of it: `after` is the `place_of` the last event before it."""
        await self.get(instance_id)
        session, id = self._opened(), take_id(instance_id)
        if limit is not None:
            return await page_events(session, self.org, id, after or BEGINNING, check_page(limit, "events"))
        return await reads.list_events(session, self.org, id)

    async def list(
        self,
        *,
        flow: str | None = None,
        status: str | None = None,
        key: str | None = None,
        business_key: str | None = None,
        subject_id: str | None = None,
        attributes: dict[str, Any] | None = None,
        parent: Id | None = None,
        since: datetime | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Instances, newest first, started at or after `since`; `after` is the `next` of the page before.

        `parent` lists the sub-flows of an instance, in no order of time. `subject_id` is who started them; all
        `attributes` must be equal. By these, a page may hold less than `limit`
        although there are more: only `next` tells.
        """
        if status is not None and status not in tuple(InstanceStatus):
            raise Refused(
                f"There is no status {status!r}.", code="STATUS_UNKNOWN", hint=f"One of {', '.join(InstanceStatus)}."
            )
        check_page(limit, "instances")
        check_moment(since, "since")
        check_text(flow, "name of the flow")
        check_key(key, "idempotency key")
        check_key(business_key, "business key")
        wanted = take_wanted(
            Wanted((), flow, subject_id, business_key, attributes or {}), () if status is None else (status,)
        )
        if wanted.is_selective and key is None and parent is None:
            last = None if after is None else take_id(after)
            found, next = await list_window(self._opened(), self.org, wanted, last, limit)
            return window_of([one.view for one in found], None if next is None else shown_id(next), since)
        found = await reads.list_instances(
            self._opened(),
            self.org,
            flow=flow,
            status=status,
            key=key,
            business_key=business_key,
            parent=None if parent is None else take_id(parent),
            after=None if after is None else take_id(after),
            limit=limit + 1,
        )
        fitting = [one for one in found[: limit + (parent is None)] if fits(one, wanted)]
        page = page_of(fitting, limit, since)
        if parent is not None:  # without an order of time, what does not fit may stand before what does
            return Page(page.items, found[limit - 1].id if len(found) > limit else None)
        return page

    async def flows(self, name: str | None = None) -> Sequence[FlowVersion]:
        """The newest version of every flow that may be started here, by name; of one flow, all versions."""
        check_text(name, "name of the flow")
        found = await list_flows(self._opened(), self.org, name)
        return found if name is not None else newest(found)

    async def page_flows(self, *, after: str | None = None, limit: int = 50) -> Sequence[FlowVersion]:
        """A page of the newest versions of all flows, by name; `after` is the name at the end of the page before."""
        check_text(after, "name of the flow")
        return await page_flows(self._opened(), self.org, after or "", check_page(limit, "flows"))

    async def page_versions(
        self, name: str, *, after: VersionPlace | None = None, limit: int = 50
    ) -> Sequence[FlowVersion]:
        """A page of the versions of a flow; `after` is the `place_of_version` the last one of the page before."""
        check_text(name, "name of the flow")
        return await page_versions(self._opened(), self.org, name, after or NEWEST, check_page(limit, "versions"))

    async def flow(self, name: str, version: int | None = None) -> FlowDocument:
        """A published version of a flow, by default the newest: what was written, and the graph that runs."""
        check_text(name, "name of the flow")
        check_version(version)
        found = await read_flow(self._opened(), self.org, name, version)
        if found is None:
            raise await self.catalog.unknown(self._opened(), self.org, name, version)
        return found

    async def statistics(
        self,
        flow: str | None = None,
        *,
        version: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Sequence[FlowStatistics]:
        """Counts and durations per flow, version and step: of all times, or of the hours between two moments."""
        check_text(flow, "name of the flow")
        check_version(version)
        check_moment(since, "since")
        check_moment(until, "until")
        if since is not None and until is not None and from_datetime(since) >= from_datetime(until):
            raise Refused(
                f"{until} is not after {since}.",
                code="PERIOD_INVALID",
                hint="Give `since` before `until`, or only one.",
            )
        return by_flow(await read_statistics(self._opened(), self.org, flow, version, since, until))

    async def wait(self, instance_id: Id, timeout: float | None = None) -> Instance:
        """The instance once it is over: at once when it ends in this process, by looking now and then elsewhere."""
        if timeout is not None:
            async with asyncio.timeout(timeout):
                return await self.wait(instance_id)
        id = take_id(instance_id)
        started = self.committer.snapshots.local.get(id)
        if started is not None and started.org == self.org:
            outcome = await self._end_of(id)
            if outcome.instance is not None:
                return current(outcome.started, outcome.instance, outcome.now)
        pause = 0.05
        while (found := await self.get(instance_id)).status not in TERMINAL:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._end_of(id)
            pause = min(pause * 1.5, 1.0)
        return found

    async def settle(self, instance_id: Id, timeout: float | None = None) -> Instance:
        """The instance once it rests: on a person, an event or a moment, suspended, or over; as it is when time is up.

        While its steps run in this process nothing is read: their commits are heard of. Otherwise it is looked at now
        and then, with growing pauses.
        """
        id = take_id(instance_id)
        with self.committer.snapshots.watch(id) as news:
            return (await self._settled(id, news, timeout)).view

    async def standing(self, instance_id: Id, timeout: float | None = None) -> Standing:
        """As `settle`, with the step where it rests or ended."""
        id = take_id(instance_id)
        with self.committer.snapshots.watch(id) as news:
            return await self._standing(id, news, timeout)

    async def _standing(
        self, id: bytes, news: News, timeout: float | None, view: Instance | None = None
    ) -> Standing:  # fmt: skip
        """With a view of the instance, a change that this process made itself is told without reading it again."""
        found = await self._settled(id, news, timeout, view)
        program = await self.catalog.program(self._opened(), found.definition)
        step = step_of(found, program, news.latest)
        if step is None:
            past = await read_past(self._opened(), self.org, id, MOST_HISTORY)
            step = None if past is None else last_step(past[1], program)
        return standing_of(found, step)

    async def _settled(
        self, id: bytes, news: News, timeout: float | None, view: Instance | None = None
    ) -> Whereabouts:  # fmt: skip
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        snapshots, pause = self.committer.snapshots, FIRST_PAUSE
        while True:
            news.clear()
            found = None if view is None else heard(view, news.latest)
            if found is not None and is_resting(found):
                return found
            left = pause if deadline is None else min(pause, deadline - loop.time())
            if left <= 0 or not snapshots.is_working(id, self.org):
                found = await self._whereabouts(id)
                if left <= 0 or is_resting(found):
                    return found
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await news.wait()
            pause = min(pause * 1.5, LONGEST_PAUSE)

    async def _whereabouts(self, id: bytes) -> Whereabouts:
        found = await read_whereabouts(self._opened(), self.org, id)
        if found is None:
            raise unknown_instance(shown_id(id))
        return found

    async def _end_of(self, id: bytes) -> Outcome:
        """Resolves when the instance ends in this process, or goes elsewhere."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        waiting = self.committer.snapshots.waiters.setdefault(id, [])
        waiting.append(done)
        try:
            return await done
        finally:
            waiting.remove(done)
            if not waiting and self.committer.snapshots.waiters.get(id) is waiting:
                del self.committer.snapshots.waiters[id]
