"""Machines: import them, send them events, read their states."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import uuid4

from holdfast.core.machine.triggers import TERMINAL_REASON, event_of
from holdfast.core.model.signals import Actor, Backfilled, Triggered
from holdfast.core.model.status import TERMINAL
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.runtime.catalog import Definition
from holdfast.runtime.commit.items import Item, Overtaken, request_key
from holdfast.runtime.commit.starter import new_id
from holdfast.runtime.engine.starting import Starting
from holdfast.runtime.machines.description import MachineDescription, describe, machine_of, no_machine
from holdfast.runtime.machines.history import take_history, try_history
from holdfast.runtime.machines.machine import Loadable, Machine
from holdfast.runtime.machines.refs import Ref
from holdfast.runtime.machines.triggers import (
    TriggerResult,
    Wanted,
    flow_of,
    result_of,
    sent,
    take_event,
    take_number,
    take_occurred,
    take_raw,
    take_request,
    unknown_reference,
)
from holdfast.runtime.publishing import COUNTED_TRIES, Published
from holdfast.runtime.validation import check_flag, check_key, check_text, check_version, take_names
from holdfast.store.commit.ensuring import Ensure
from holdfast.store.machines import (
    Found,
    MachineInstance,
    find_blueprint,
    find_machine_instance,
    list_machine_names,
    read_answer,
    read_machine_instance,
)
from holdfast.store.reads.flows import FlowVersion, page_machines, read_flow
from holdfast.store.reads.steps import check_page


class Triggering(Starting):
    async def import_machine(
        self,
        machine: Machine | Loadable | None = None,
        policy: Loadable | None = None,
        *,
        environment: str | None = None,
        by: str | None = None,
        dry_run: bool = False,
    ) -> Published:
        """Publish a machine; the same content as the newest version is left as it is.

        A policy alone is for the newest blueprint: `import_machine(policy="vendor.policy.json")`; name the environment
        if there is more than one. Instances keep what they began with. A dry run checks all of it and stores nothing.
        """
        if machine is not None:
            loaded = machine if isinstance(machine, Machine) else await asyncio.to_thread(Machine.load, machine, policy)
            return await self._import(loaded, by, dry_run=dry_run)
        if policy is None:
            raise Refused("There is nothing to import.", code="MACHINE_MISSING", hint="Pass a machine, or a policy.")
        for _ in range(COUNTED_TRIES):
            try:
                loaded = await self.load_machine(policy, environment=environment)
                return await self._import(loaded, by, dry_run=dry_run)
            except Conflict as conflict:
                if conflict.code != "BLUEPRINT_OUTDATED":
                    raise  # else a newer blueprint was imported meanwhile
        return await self._import(await self.load_machine(policy, environment=environment), by, dry_run=dry_run)

    async def _import(self, machine: Machine, by: str | None, *, dry_run: bool) -> Published:
        [published] = await self.publish_many([machine], by=by, dry_run=dry_run)
        return published

    async def load_machine(self, policy: Loadable, *, environment: str | None = None) -> Machine:
        """Read a policy together with the newest blueprint it is for; nothing is published."""
        definition = Machine.target_of(policy)
        names = await list_machine_names(self._opened(), self.org, definition)
        names = [name for name in names if environment is None or name == flow_of(environment, definition)]
        if len(names) > 1:
            raise Refused(
                f"{definition!r} is a machine in several environments: {', '.join(names)}.",
                code="ENVIRONMENT_AMBIGUOUS",
                hint="Name the environment.",
            )
        found = await read_flow(self._opened(), self.org, names[0], None) if names else None
        if found is None:
            raise NotFound(
                f"There is no machine {definition!r}.", code="FLOW_UNKNOWN", hint="Import its blueprint first."
            )
        # In a thread: a large one takes seconds to check, and the loop has other things to do.
        return await asyncio.to_thread(Machine.load, found.source["blueprint"], policy)

    async def page_machines(
        self, environment: str | None = None, *, after: str | None = None, limit: int = 50
    ) -> list[FlowVersion]:
        """A page of the newest versions of all machines, by name; `after` is the name at the end of the page before."""
        check_text(environment, "environment")
        check_text(after, "name of the machine")
        limit = check_page(limit, "machines")
        return await page_machines(self._opened(), self.org, environment, after or "", limit)

    async def describe_machine(
        self, environment: str, definition: str, version: int | None = None
    ) -> MachineDescription:
        """Describe one effective version of a machine, by default the newest: its states, events and source."""
        return describe(await self.flow(flow_of(environment, definition), version))

    async def machine_of(self, environment: str, definition: str, version: int | None = None) -> Machine:
        """Read one effective version of a machine as it was imported, by default the newest."""
        return await asyncio.to_thread(machine_of, await self.flow(flow_of(environment, definition), version))

    # --- events ----------------------------------------------------------------------------------------------------

    async def trigger(
        self,
        environment: str,
        definition: str,
        external_ref: str,
        event: str | int,
        payload: Any = None,
        *,
        request_id: str | None = None,
        by: str | None = None,
        capabilities: Sequence[str] = (),
        expected: int | None = None,
        version: int | None = None,
        ack_required: bool = True,
        occurred_at: datetime | None = None,
        conn: Any = None,
    ) -> TriggerResult:
        """Send an event to the instance of a reference, which is made if it is not there yet: one commit.

        An event that cannot be applied is an answer with its reason. The same request id gets the same answer.
        `expected` is the `lifecycle` of an earlier answer, `version` that of a blueprint. With `conn` nothing is
        decided yet: the answer is read by its request id after your commit (`trigger_answer`).
        """
        check_key(external_ref, "external reference")
        check_text(by, "actor")
        check_version(version)
        check_flag(ack_required, "ack_required")
        wanted = Wanted(
            flow=flow_of(environment, definition),
            ref=external_ref,
            event=take_event(event),
            raw=take_raw(payload, event),
            request=take_request(request_id),
            by=by,
            capabilities=take_names(capabilities, "capability"),
            expected=take_number(expected, "expectation"),
            version=version,
            needs_ack=ack_required,
            occurred_at=take_occurred(occurred_at),
        )
        if not external_ref:
            raise Refused("The external reference is empty.", code="KEY_INVALID", hint="Name the business object.")
        with self.telemetry.start(wanted.flow):
            if conn is not None:
                return await self._trigger_there(conn, wanted)
            return await self._trigger(wanted)

    async def _trigger_there(self, conn: Any, wanted: Wanted) -> TriggerResult:
        id = await self._borrowed.trigger(conn, wanted, self.telemetry.current_trace())
        return sent(wanted.event, id)

    async def _trigger(self, wanted: Wanted) -> TriggerResult:
        ref: Ref = (self.org, wanted.flow, wanted.ref)
        definition = await self._machine_of(wanted)
        known = self.refs.get(ref, has_request=wanted.request is not None) if wanted.version is None else None
        if known is not None:
            with suppress(Overtaken):
                return await self._send(wanted, known, None)
            self.refs.forget(ref)
        key = f"{_blueprint(definition)}:{wanted.ref}"
        found = await self._find(wanted, key)
        if found.id is not None:
            return await self._send(wanted, found.id, found)
        event_of(definition.program, wanted.event)  # refused before anything is stored
        id = self.refs.making(ref, new_id(self.org, key, None))
        ensure = self._ensure(id, definition, key, wanted)
        try:
            return await self._send(wanted, id, found, ensure)
        finally:
            self.refs.made(ref)

    async def _machine_of(self, wanted: Wanted) -> Definition:
        """The newest effective version, or that of the blueprint that was asked for."""
        newest = self.catalog.cached(self.org, wanted.flow, None)
        if newest is None:
            newest = await self.catalog.find(self._opened(), self.org, wanted.flow, None)
        _blueprint(newest)
        if wanted.version in (None, _blueprint(newest)):
            return newest
        version = await find_blueprint(self._opened(), self.org, wanted.flow, wanted.version)
        if version is not None:
            return await self.catalog.find(self._opened(), self.org, wanted.flow, version)
        raise NotFound(
            f"The machine {wanted.flow!r} has no blueprint of version {wanted.version}.",
            code="VERSION_UNKNOWN",
            hint="Import it, or leave the version out.",
        )

    async def _find(self, wanted: Wanted, key: str) -> Found:
        request = None if wanted.request is None else request_key(wanted.request)
        only_key = wanted.version is not None
        return await find_machine_instance(
            self._opened(), self.org, wanted.flow, wanted.ref, request, key, only_key=only_key
        )

    async def _send(
        self, wanted: Wanted, id: bytes, found: Found | None, ensure: Ensure | None = None
    ) -> TriggerResult:
        """Send a trigger to an instance that was looked up, or without `found` to one that is remembered."""
        signal = Triggered(wanted.event, wanted.raw, wanted.expected, wanted.needs_ack, wanted.occurred_at)
        item = Item(id, signal, Actor(wanted.by or "system", wanted.capabilities), ensure=ensure)
        item.receipt = request_key(wanted.request or uuid4().hex)
        item.remembered = found is None
        outcome = await self.committer.apply(item)
        assert outcome.answer is not None
        result = result_of(outcome.answer)
        ref: Ref = (self.org, wanted.flow, wanted.ref)
        if (outcome.instance is not None and outcome.instance.status in TERMINAL) or result.reason == TERMINAL_REASON:
            self.refs.forget(ref)
        elif found is not None:
            self.refs.remember(ref, item.instance, is_sole=found.together + (ensure is not None) <= 1)
        self._announce()
        return result

    def _stale_after(self, definition: Definition) -> float | None:
        machine = definition.program.machine
        assert machine is not None
        return machine.stale if machine.stale is not None else self.options.stale_after

    async def trigger_answer(
        self, environment: str, definition: str, external_ref: str, request_id: str
    ) -> TriggerResult | None:
        """The answer a trigger got under its request id; None as long as it has none."""
        flow, request = flow_of(environment, definition), request_key(take_request(request_id) or "")
        check_key(external_ref, "external reference")
        found = await find_machine_instance(self._opened(), self.org, flow, external_ref, request, "", only_key=True)
        answer = None if found.id is None else await read_answer(self._opened(), self.org, found.id, request)
        return None if answer is None else result_of(answer)

    async def backfill(
        self,
        environment: str,
        definition: str,
        external_ref: str,
        events: Iterable[Mapping[str, Any]],
        *,
        by: str | None = None,
        version: int | None = None,
    ) -> TriggerResult:
        """Give an object that is new to its machine the past it has: all of it in one commit, without facts.

        Each event has `event` and `occurred_at`, and may have `payload` and `by`. The same past again changes nothing;
        another one is a conflict.
        """
        check_key(external_ref, "external reference")
        check_text(by, "actor")
        check_version(version)
        signal = Backfilled(take_history(events))
        wanted = Wanted(
            flow=flow_of(environment, definition),
            ref=external_ref,
            event=signal.events[0].event,
            by=by,
            version=version,
            needs_ack=False,
        )
        machine = await self._machine_of(wanted)
        key, ref = f"{_blueprint(machine)}:{external_ref}", (self.org, wanted.flow, external_ref)
        try_history(machine.program, signal)  # refused before anything is stored
        found = await self._find(wanted, key)
        id = self.refs.making(ref, new_id(self.org, key, None)) if found.id is None else found.id
        ensure = None if found.id is not None else self._ensure(id, machine, key, wanted, is_told=False)
        item = Item(id, signal, Actor(by or "system"), ensure=ensure, receipt="backfill")
        try:
            outcome = await self.committer.apply(item)
        finally:
            self.refs.made(ref)
        assert outcome.answer is not None
        self._announce()
        return result_of(outcome.answer)

    def _ensure(self, id: bytes, machine: Definition, key: str, wanted: Wanted, *, is_told: bool = True) -> Ensure:
        return Ensure(
            id=id,
            org=self.org,
            definition=machine.id,
            flow=machine.name,
            flow_version=machine.version,
            key=key,
            ref=wanted.ref,
            created_by=wanted.by,
            trace=self.telemetry.current_trace(),
            stale=self._stale_after(machine),
            is_told=is_told,
        )

    # --- where it stands -------------------------------------------------------------------------------------------

    async def machine(self, environment: str, definition: str, external_ref: str) -> MachineInstance:
        """Read the instance of a reference: its state, its last event, its open gates."""
        flow = flow_of(environment, definition)
        check_key(external_ref, "external reference")
        _blueprint(await self.catalog.find(self._opened(), self.org, flow, None))
        found = await find_machine_instance(self._opened(), self.org, flow, external_ref, None, "", also_over=True)
        view = None if found.id is None else await read_machine_instance(self._opened(), self.org, found.id)
        if view is None:
            raise unknown_reference(flow, external_ref)
        return view


def _blueprint(definition: Definition) -> int:
    machine = definition.program.machine
    if machine is None:
        raise no_machine(definition.name)
    return machine.blueprint
