"""Looking at instances, and waiting for their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.core.moments import from_datetime
from holdfast.core.status import TERMINAL, InstanceStatus
from holdfast.errors import NotFound, Refused
from holdfast.runtime.edge import Id, check_key, check_text, take_id
from holdfast.runtime.engine.base import Base
from holdfast.runtime.snapshots import Outcome
from holdfast.runtime.statistics import FlowStatistics, by_flow
from holdfast.runtime.views import Page, current, newest, page_of
from holdfast.store import reads
from holdfast.store.flows import FlowDocument, FlowVersion, list_flows, read_flow
from holdfast.store.reads import Event, Instance, Step
from holdfast.store.runtimes import Runtime, read_runtime
from holdfast.store.statistics import read_statistics


class Reading(Base):
    async def get(self, instance_id: Id, *, conn: Any = None) -> Instance:
        if conn is not None:
            return await self._borrowed.get(conn, take_id(instance_id))
        found = await reads.read_instance(self._opened(), self.org, take_id(instance_id))
        if found is None:
            raise NotFound(
                f"There is no instance {instance_id}.",
                code="INSTANCE_UNKNOWN",
                hint="Check the id and the organisation.",
            )
        return found

    async def runtime(self, instance_id: Id) -> Runtime:
        """What the engine would resume the instance from: version, waits, tokens, last signal, last error."""
        await self.get(instance_id)
        found = await read_runtime(self._opened(), self.org, take_id(instance_id))
        assert found is not None
        return found

    async def steps(self, instance_id: Id, *, all: bool = False) -> list[Step]:
        """The steps of an instance in the order they happened; `all` adds the rows of ends and of interventions."""
        await self.get(instance_id)
        found = await reads.list_steps(self._opened(), self.org, take_id(instance_id))
        return found if all else [step for step in found if step.behaviour not in ("end", "control")]

    async def events(self, instance_id: Id) -> list[Event]:
        """The audit trail of an instance."""
        await self.get(instance_id)
        return await reads.list_events(self._opened(), self.org, take_id(instance_id))

    async def list(
        self,
        *,
        flow: str | None = None,
        status: str | None = None,
        key: str | None = None,
        business_key: str | None = None,
        since: datetime | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Instances, newest first, started at or after `since`; `after` is the `next` of the page before."""
        if status is not None and status not in tuple(InstanceStatus):
            raise Refused(
                f"There is no status {status!r}.", code="STATUS_UNKNOWN", hint=f"One of {', '.join(InstanceStatus)}."
            )
        if not 1 <= limit <= 1000:
            raise Refused("A page holds 1 to 1000 instances.", code="LIMIT_INVALID")
        check_text(flow, "name of the flow")
        check_key(key, "idempotency key")
        check_key(business_key, "business key")
        found = await reads.list_instances(
            self._opened(),
            self.org,
            flow=flow,
            status=status,
            key=key,
            business_key=business_key,
            after=None if after is None else take_id(after),
            limit=limit + 1,
        )
        return page_of(found, limit, since)

    async def flows(self, name: str | None = None) -> Sequence[FlowVersion]:
        """The newest version of every flow that may be started here, by name; of one flow, all versions."""
        check_text(name, "name of the flow")
        found = await list_flows(self._opened(), self.org, name)
        return found if name is not None else newest(found)

    async def flow(self, name: str, version: int | None = None) -> FlowDocument:
        """A published version of a flow, by default the newest: what was written, and the graph that runs."""
        check_text(name, "name of the flow")
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
        if id in self.committer.snapshots.local:
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
