"""Looking at instances, and waiting for their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.core.model.status import TERMINAL
from holdfast.core.model.timestamps import from_datetime
from holdfast.errors import HoldfastError, Refused
from holdfast.runtime.commit.instance_cache import News, Outcome
from holdfast.runtime.engine.core import Base
from holdfast.runtime.people.descriptor import MOST_HISTORY, last_step
from holdfast.runtime.people.standing import Standing, heard, is_resting, standing_of, step_of
from holdfast.runtime.reads.search import InstanceFilter, find_instances
from holdfast.runtime.reads.statistics import FlowStatistics, by_flow
from holdfast.runtime.reads.unended import unended
from holdfast.runtime.reads.views import Page, current, newest, shown_id, unknown_instance
from holdfast.runtime.validation import Id, check_moment, check_text, check_version, take_id
from holdfast.store.pg.session import DatabaseError, Disconnected
from holdfast.store.reads import instances
from holdfast.store.reads.flows import (
    NEWEST,
    FlowDocument,
    FlowVersion,
    VersionPlace,
    list_flows,
    page_flows,
    page_versions,
    read_flow,
)
from holdfast.store.reads.instances import Event, Instance, Step
from holdfast.store.reads.positions import Whereabouts, read_past, read_whereabouts
from holdfast.store.reads.runtimes import Runtime, read_runtime
from holdfast.store.reads.statistics import read_statistics
from holdfast.store.reads.steps import BEGINNING, Place, check_page, late_events, page_events, page_steps

FIRST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 0.5
LAST_LOOK: Final = 1.0  # seconds that telling where an instance stands may take


class Reading(Base):
    async def get(self, instance_id: Id, *, conn: Any = None) -> Instance:
        if conn is not None:
            return await self._borrowed.get(conn, take_id(instance_id))
        found = await instances.read_instance(self._opened(), self.org, take_id(instance_id))
        if found is None:
            raise unknown_instance(instance_id)
        return found

    async def runtime(self, instance_id: Id) -> Runtime:
        """The state the engine would resume the instance from: version, waits, tokens, last signal, last error."""
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
        found = await instances.list_steps(session, self.org, id)
        return found if all else [step for step in found if step.behaviour not in ("end", "control")]

    async def events(
        self, instance_id: Id, *, after: Place | None = None, limit: int | None = None, late: bool = False
    ) -> list[Event]:
        """The audit trail of an instance, or a page of it: `after` is the `place_of` the last event before it.

        Lines beside the decisions, such as a delivery's, may be written behind a place that was read already. `late`
        lists those of the last seconds before `after`, for readers that follow a trail: some of them may be known.
        """
        await self.get(instance_id)
        session, id = self._opened(), take_id(instance_id)
        if late:
            return [] if after is None else await late_events(session, self.org, id, after)
        if limit is not None:
            return await page_events(session, self.org, id, after or BEGINNING, check_page(limit, "events"))
        return await instances.list_events(session, self.org, id)

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
        error: str | None = None,
        with_reason: str | None = None,
        step: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        ended_since: datetime | None = None,
        ended_until: datetime | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Instances, newest first; `after` is the `next` of the page before. `InstanceFilter` explains the filters.

        `parent` lists the sub-flows of an instance, in no order of time. `subject_id` is who started them; all
        `attributes` must be equal. Instances that failed, were cancelled or aborted in a period are listed by their
        end, the last one first. A page may hold less than `limit` although there are more: only `next` tells.
        """
        filter = InstanceFilter(
            flow=flow, status=status, key=key, business_key=business_key, subject_id=subject_id, attributes=attributes,
            parent=parent, error=error, with_reason=with_reason, step=step, since=since, until=until,
            ended_since=ended_since, ended_until=ended_until,
        )  # fmt: skip
        return await self.find(filter, after=after, limit=limit)

    async def find(self, filter: InstanceFilter, *, after: str | None = None, limit: int = 50) -> Page:
        """List instances with the filter that bulk verbs take."""
        check_page(limit, "instances")
        last = None if after is None else take_id(after)
        return await find_instances(self._opened(), self.org, filter, last, limit)

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
        """A published version of a flow, by default the newest: its source, and the graph that runs."""
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
        """Wait for the end of an instance: noticed at once in this process, by polling in others.

        A `TimeoutError` names the step of the instance and its wait.
        """
        if timeout is not None:
            clock = asyncio.timeout(timeout)
            try:
                async with clock:
                    return await self.wait(instance_id)
            except TimeoutError:
                if not clock.expired():
                    raise
            raise TimeoutError(await self._unended(take_id(instance_id), timeout))
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

    async def _unended(self, id: bytes, seconds: float) -> str:
        """Describe a wait that ran out of time. If the database does not answer either, only the id is named."""
        with contextlib.suppress(HoldfastError, Disconnected, DatabaseError, TimeoutError):
            async with asyncio.timeout(LAST_LOOK):
                return unended(await self._whereabouts(id), seconds)
        return f"Instance {shown_id(id)} was not seen to end within {seconds:g} s, and cannot be read now."

    async def settle(self, instance_id: Id, timeout: float | None = None) -> Instance:
        """The instance once it rests: on a person, an event or a moment, suspended, or over; as it is when time is up.

        While its steps run in this process nothing is read: their commits are heard of. Otherwise it is looked at now
        and then, with growing pauses.
        """
        id = take_id(instance_id)
        with self.committer.snapshots.watch(id) as news:
            return (await self._settled(id, news, timeout)).view

    async def standing(self, instance_id: Id, timeout: float | None = None) -> Standing:
        """Settle, and return the step where the instance rests or ended, too."""
        id = take_id(instance_id)
        with self.committer.snapshots.watch(id) as news:
            return await self._standing(id, news, timeout)

    async def _standing(
        self, id: bytes, news: News, timeout: float | None, view: Instance | None = None
    ) -> Standing:  # fmt: skip
        """Settle from a view of the instance: a change by this process needs no second read."""
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
