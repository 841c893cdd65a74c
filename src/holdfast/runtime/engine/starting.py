"""Publishing definitions and starting instances of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from holdfast.compiler.graph import Graph
from holdfast.core.signals import Actor, Started
from holdfast.core.state import EMPTY
from holdfast.core.state import Instance as Snapshot
from holdfast.core.status import InstanceStatus
from holdfast.definitions.model import Definition as FlowDefinition
from holdfast.errors import Refused
from holdfast.runtime.edge import check_key, check_text, take_payload
from holdfast.runtime.engine.reading import Reading
from holdfast.runtime.items import Item
from holdfast.runtime.publishing import Published, publish
from holdfast.runtime.starter import Start, new_id
from holdfast.runtime.views import current, pending
from holdfast.store.commit import NewInstance
from holdfast.store.reads import Instance


class Starting(Reading):
    async def publish(self, definition: FlowDefinition | Graph | dict[str, Any], *, by: str | None = None) -> Published:
        """Compile, check and freeze a definition. The same version with the same content is left as it is."""
        session = self._opened()
        check_text(by, "actor")
        if isinstance(definition, FlowDefinition):
            for name, function in definition.handlers.items():
                self.register(name, function)
        published = await publish(session, self.org, definition, by)
        self.catalog.forget(published.name)
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
        conn: Any = None,
    ) -> Instance:
        """Start an instance. The same key gives the same instance; `conn` starts it in the caller's own transaction."""
        session = self._opened()
        raw = take_payload({} if input is None else input, "the input", flow)
        check_key(key, "idempotency key")
        check_key(business_key, "business key")
        check_text(flow, "name of the flow")
        check_text(by, "actor")
        if self.hooks.starts:
            await self.hooks.starting(flow, partial(msgspec.json.decode, raw))
        definition = self.catalog.cached(self.org, flow, version)
        if definition is None:
            definition = await self.catalog.find(session, self.org, flow, version)
        if conn is not None:
            return await self._borrowed.start(conn, definition, raw, key, business_key, by)
        extra = None if attributes is None else take_payload(attributes, "the attributes", flow)
        with self.telemetry.start(flow):
            start = Start(
                new_id(self.org, key, business_key), self.org, definition, raw, key, business_key, extra, by,
                self.telemetry.current_trace(),
            )  # fmt: skip
            if self._worker is not None and key is None:
                return await self._start_here(start)
            await self._starter.start(start)
        self._announce()
        return pending(start) if start.fresh else await self.get(str(UUID(bytes=start.id)))

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
        if keys is not None and len(keys) != len(values):
            raise Refused(
                f"There are {len(values)} inputs and {len(keys)} keys.",
                code="KEYS_MISMATCH",
                hint="Give one key per input.",
            )
        if self.hooks.starts:
            for raw in values:
                await self.hooks.starting(flow, partial(msgspec.json.decode, raw))
        definition = await self.catalog.find(session, self.org, flow, version)
        with self.telemetry.start(flow):
            trace = self.telemetry.current_trace()
            starts = (
                Start(new_id(self.org, key, None), self.org, definition, value, key, None, None, by, trace)
                for value, key in zip(values, keys or [None] * len(values), strict=True)
            )
            stored = await self._starter.start_many(starts, pending)
        self._announce()
        return [view if start.fresh else await self.get(UUID(bytes=start.id)) for start, view in stored]

    async def _start_here(self, start: Start) -> Instance:
        """A worker runs in this process: the first step opens in the commit that stores the instance."""
        definition = start.definition
        data = start.input if start.input[:1] == b"{" else b"{}"
        fresh = Snapshot(
            start.id, start.org, definition.id, definition.name, definition.version, 0, InstanceStatus.PENDING, EMPTY,
            data, trace=start.trace,
        )  # fmt: skip
        item = Item(
            start.id,
            Started(start.input),
            Actor(start.created_by or "system"),
            fresh,
            NewInstance(start.input, start.business_key, start.attributes, start.created_by),
        )
        view = self.committer.snapshots.local[start.id] = pending(start)
        try:
            outcome = await self.committer.apply(item)
        except BaseException:
            self.committer.snapshots.local.pop(start.id, None)
            raise
        return current(view, outcome.instance or fresh, outcome.now)
