"""Publishing definitions and starting instances of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.model.signals import Actor, Started
from holdfast.core.model.state import EMPTY
from holdfast.core.model.state import Instance as Snapshot
from holdfast.core.model.status import InstanceStatus
from holdfast.core.model.timestamps import to_datetime
from holdfast.doors.registry import source_of
from holdfast.errors import Refused
from holdfast.runtime.commit.items import Item
from holdfast.runtime.commit.starter import Start, new_id, new_ids
from holdfast.runtime.engine.reading import Reading
from holdfast.runtime.people.standing import Standing
from holdfast.runtime.people.start_rules import Caller, attributes_of, caller_of, check_start, check_startable
from holdfast.runtime.publishing import Publishable, Published, publish
from holdfast.runtime.reads.views import current, pending
from holdfast.runtime.validation import check_key, check_text, check_version, take_payload
from holdfast.store.commit.rows import NewInstance
from holdfast.store.reads.instances import Instance


class Starting(Reading):
    async def publish(self, definition: Publishable, *, by: str | None = None) -> Published:
        """Compile, check and freeze a definition. The same version with the same content is left as it is."""
        [published] = await self.publish_many([definition], by=by)
        return published

    async def publish_many(
        self, definitions: Iterable[Publishable], *, by: str | None = None, dry_run: bool = False
    ) -> list[Published]:
        """Publish all of them in one transaction, or none. A dry run checks them and answers with their versions."""
        session, sources = self._opened(), [source_of(definition) for definition in definitions]
        check_text(by, "actor")
        if dry_run:
            return await publish(session, self.org, sources, by, self.app, dry_run=True)
        for source in sources:
            for name, function in source.calls.items():
                self.calls.register(name, function)
            for name, function in source.functions.items():
                self.register(name, function)
        published = await publish(session, self.org, sources, by, self.app)
        for one in published:
            self.catalog.forget(one.name)
        return published

    async def start(
        self,
        flow: str,
        input: Any = None,
        *,
        key: str | None = None,
        version: int | None = None,
        business_key: str | None = None,
        attributes: dict[str, Any] | None = None,
        by: str | None = None,
        caller: Caller | None = None,
        conn: Any = None,
    ) -> Instance:
        """Start an instance. The same key gives the same instance; `conn` starts it in the caller's own transaction.

        `by` names the starter; a `caller` has capabilities, a partition and the correlation of its request, too. The
        capabilities that the workflow asks for must be among those of the caller.
        """
        whose = caller_of(caller, by)
        start = await self._prepared(flow, input, key, version, business_key, attributes, whose)
        if conn is not None:
            with self.telemetry.start(flow):
                return await self._borrowed.start(
                    conn, start.definition, start.input, key, business_key, whose.id, start.attributes,
                    self.telemetry.current_trace(),
                )  # fmt: skip
        return await self._store(start, whose)

    async def start_and_settle(
        self,
        flow: str,
        input: Any = None,
        *,
        timeout: float,
        key: str | None = None,
        by: str | None = None,
        caller: Caller | None = None,
    ) -> Standing:
        """Start, and return once the workflow rests, or when the seconds of `timeout` are over."""
        whose = caller_of(caller, by)
        start = await self._prepared(flow, input, key, None, None, None, whose)
        with self.committer.snapshots.watch(start.id) as news:
            view = await self._store(start, whose)
            return await self._standing(start.instance, news, timeout, view)

    async def _prepared(
        self,
        flow: str,
        input: Any,
        key: str | None,
        version: int | None,
        business_key: str | None,
        attributes: dict[str, Any] | None,
        caller: Caller,
    ) -> Start:
        """A start that may be made, with all that is to be stored of it."""
        attributes = attributes_of(attributes, caller)
        session = self._opened()
        raw = take_payload({} if input is None else input, "the input", flow)
        check_key(key, "idempotency key")
        check_key(business_key, "business key")
        check_text(flow, "name of the flow")
        check_text(caller.id, "actor")
        check_version(version)
        if self.hooks.starts:
            await self.hooks.starting(flow, partial(msgspec.json.decode, raw))
        definition = self.catalog.cached(self.org, flow, version)
        if definition is None or definition.program.rules.needs_document:
            definition = await self.catalog.startable(session, self.org, flow, version)
        check_startable(definition.program)
        if caller.capabilities is not None or definition.program.rules.checks_input:
            await check_start(definition.program, raw, caller.capabilities)
        extra = None if attributes is None else take_payload(attributes, "the attributes", flow)
        id = new_id(self.org, key, business_key)
        return Start(
            id=id,
            org=self.org,
            definition=definition,
            input=raw,
            key=key,
            business_key=business_key,
            attributes=extra,
            created_by=caller.id,
            trace=None,
        )

    async def _store(self, start: Start, caller: Caller) -> Instance:
        with self.telemetry.start(start.definition.name):
            start.trace = self.telemetry.current_trace()
            if self._worker is not None and start.key is None:
                return await self._start_here(start, caller)
            await self._starter.start(start)
        self._announce()
        return pending(start) if start.is_new else await self.get(str(UUID(bytes=start.instance)))

    async def start_many(
        self,
        flow: str,
        inputs: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        version: int | None = None,
        by: str | None = None,
    ) -> list[Instance]:
        """Start many instances of one flow in few commits."""
        session = self._opened()
        values = [take_payload({} if value is None else value, "the input", flow) for value in inputs]
        for key in keys or ():
            check_key(key, "idempotency key")
        check_text(flow, "name of the flow")
        check_text(by, "actor")
        check_version(version)
        if keys is not None and len(keys) != len(values):
            raise Refused(
                f"There are {len(values)} inputs and {len(keys)} keys.",
                code="KEYS_MISMATCH",
                hint="Give one key per input.",
            )
        if self.hooks.starts:
            for raw in values:
                await self.hooks.starting(flow, partial(msgspec.json.decode, raw))
        definition = await self.catalog.startable(session, self.org, flow, version)
        check_startable(definition.program)
        if definition.program.rules.checks_input:
            for raw in values:
                await check_start(definition.program, raw)
        with self.telemetry.start(flow):
            trace = self.telemetry.current_trace()
            given = keys or [None] * len(values)
            starts = (
                Start(
                    id=id,
                    org=self.org,
                    definition=definition,
                    input=value,
                    key=key,
                    business_key=None,
                    attributes=None,
                    created_by=by,
                    trace=trace,
                )
                for id, value, key in zip(new_ids(self.org, given), values, given, strict=True)
            )
            stored = await self._starter.start_many(starts, pending)
        self._announce()
        return [view if start.is_new else await self.get(UUID(bytes=start.instance)) for start, view in stored]

    async def _start_here(self, start: Start, caller: Caller) -> Instance:
        """A worker runs in this process: the first step opens in the commit that stores the instance."""
        definition = start.definition
        data = start.input if start.input[:1] == b"{" else b"{}"
        fresh = Snapshot(
            id=start.id,
            org=start.org,
            definition=definition.id,
            flow=definition.name,
            flow_version=definition.version,
            version=0,
            status=InstanceStatus.PENDING,
            state=EMPTY,
            data=data,
            trace=start.trace,
            partition=caller.partition,
            correlation=caller.correlation,
        )
        item = Item(
            start.id,
            Started(start.input),
            Actor(start.created_by or "system"),
            fresh,
            NewInstance(start.input, start.business_key, start.attributes, start.created_by),
        )
        local = self.committer.snapshots.local
        view = local[start.id] = pending(start)
        try:
            outcome = await self.committer.apply(item)
        except BaseException:
            local.pop(start.id, None)
            raise
        stored = msgspec.structs.replace(view, created_at=to_datetime(outcome.now))
        if start.id in local:
            local[start.id] = stored
        return current(stored, outcome.instance or fresh, outcome.now)
