"""Verbs that change a running instance: events, control, new moments for its timers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.core.model.signals import Abort, Actor, Cancel, EventArrived, ForceFail, Resume, Signal, Suspend
from holdfast.core.model.status import TERMINAL
from holdfast.core.signals.events import deciding_node, decision_needed
from holdfast.errors import Conflict, Refused
from holdfast.runtime.commit.items import Item
from holdfast.runtime.commit.starter import new_id
from holdfast.runtime.engine.reading import Reading
from holdfast.runtime.ops.reschedule import cancelled, rescheduled, take_moment
from holdfast.runtime.refusals import noted_refusal
from holdfast.runtime.validation import Id, check_expected, check_key, check_text, take_id, take_names, take_payload
from holdfast.store.queue.signals import Later, send_keyed, send_later
from holdfast.store.reads.instances import Instance


class Signalling(Reading):
    async def signal(
        self,
        instance_id: Id,
        event: str,
        payload: Any = None,
        *,
        node: str | None = None,
        token: str | None = None,
        id: Id | None = None,
        by: str | None = None,
        capabilities: Sequence[str] = (),
        if_version: int | None = None,
        at: datetime | None = None,
        delay: float | None = None,
        conn: Any = None,
        only_waits: bool = False,
        early: bool = True,
    ) -> Instance:
        """Send an event to one instance; answered when it is committed, refused with a reason when it is not legal.

        An event before its wait, or for a suspended instance, is kept for it, and refused with `early=False`.
        With `at` or `delay` (seconds) it is kept until it is due; a refusal then is a dead letter. With `only_waits` it
        decides nothing for people: what a task of the instance would take is refused.
        """
        raw = None if payload is None else take_payload(payload, "the payload", f"{event!r}")
        for text, what in ((event, "event"), (node, "node"), (token, "token"), (by, "actor")):
            check_text(text, what)
        check_expected(if_version)
        held = take_names(capabilities, "capability")
        moment, seconds = take_moment(at, delay)
        signal_id = new_id(self.org, None, None) if id is None else take_id(id)
        if conn is not None or moment is not None or seconds is not None:
            if not early:
                raise Refused(
                    "Where the instance will stand when the event is decided upon is not known yet.",
                    code="OPTION_MISPLACED",
                    hint="Leave out `early=False`, or `conn`, `at` and `delay`.",
                )
            later = Later(
                instance=take_id(instance_id),
                event=event,
                payload=raw,
                id=signal_id,
                node=node,
                token=token,
                by=by,
                capabilities=held,
                if_version=if_version,
                at=moment,
                delay=seconds,
            )
            if only_waits:
                await self._refuse_decision(later)
            return await (self._send_later(later) if conn is None else self._borrowed.signal(conn, later))
        item = Item(
            take_id(instance_id),
            EventArrived(signal_id, event, raw, node, token, if_version, only_waits=only_waits, early=early),
            Actor(by or "system", held),
            receipt=str(UUID(bytes=signal_id)),  # also of an id made here: a lost answer makes the engine repeat itself
        )
        return await self._apply(item, is_repeatable=id is not None)

    async def _refuse_decision(self, later: Later) -> None:
        """Refuse to queue an event for a task: when it is due, another step may have been reached."""
        found = await self._whereabouts(later.instance)
        program = await self.catalog.program(self._opened(), found.definition)
        asking = deciding_node(program, later.event, later.node)
        if asking is not None:
            raise decision_needed(asking, later.event)

    async def _send_later(self, later: Later) -> Instance:
        async with noted_refusal(self._opened(), later.instance, later, later.by):
            await send_later(self._opened(), self.org, later)
        self._announce()
        return await self.get(UUID(bytes=later.instance))

    async def signal_key(
        self, event: str, key: str, payload: Any = None, *, id: Id | None = None, by: str | None = None
    ) -> str:
        """Send an event to every wait with that key, and keep it for waits that are yet to open. The event's id."""
        raw = None if payload is None else take_payload(payload, "the payload", f"{event!r}")
        check_key(key, "event key")
        check_text(event, "event")
        check_text(by, "actor")
        signal_id = new_id(self.org, key, None) if id is None else take_id(id)
        await send_keyed(self._opened(), self.org, event, key, raw, signal_id, by, self.options.keep_early)
        self._announce()
        return str(UUID(bytes=signal_id))

    async def cancel(
        self,
        instance_id: Id,
        *,
        by: str | None = None,
        reason: str | None = None,
        if_version: int | None = None,
        conn: Any = None,
    ) -> Instance:
        """Stop an instance: waits end now, running handlers finish and are recorded."""
        check_text(reason, "reason")
        check_text(by, "actor")
        if conn is not None:
            if if_version is not None:
                raise Refused(
                    "A cancel in your own transaction is decided after your commit, whatever the version is then.",
                    code="OPTION_MISPLACED",
                    hint="Leave out `if_version`, or `conn`.",
                )
            return await self._borrowed.cancel(conn, take_id(instance_id), reason, by)
        return await self._control(instance_id, Cancel(reason, if_version), by)

    async def abort(
        self, instance_id: Id, *, by: str | None = None, reason: str | None = None, if_version: int | None = None
    ) -> Instance:
        """End an instance at once; late results are refused."""
        return await self._control(instance_id, Abort(reason, if_version), by)

    async def suspend(
        self, instance_id: Id, *, by: str | None = None, reason: str | None = None, if_version: int | None = None
    ) -> Instance:
        """Suspend an instance: running handlers finish and are recorded, no step begins until it is resumed."""
        return await self._control(instance_id, Suspend(reason or "SUSPENDED_BY_OPERATOR", if_version), by)

    async def resume(
        self,
        instance_id: Id,
        *,
        by: str | None = None,
        reason: str | None = None,
        if_version: int | None = None,
        id: Id | None = None,
    ) -> Instance:
        """Resume an instance that a person, an error or the chain limit has suspended.

        The same `id` again is the same resume, also where the instance was suspended once more since, or is in `dlq`.
        """
        return await self._control(instance_id, Resume(reason, if_version), by, id)

    async def force_fail(self, instance_id: Id, *, by: str | None = None, reason: str | None = None) -> Instance:
        return await self._control(instance_id, ForceFail(reason), by)

    async def _control(self, instance_id: Id, signal: Signal, by: str | None, id: Id | None = None) -> Instance:
        check_text(getattr(signal, "reason", None), "reason")
        check_expected(getattr(signal, "if_version", None))
        check_text(by, "actor")
        receipt = None if id is None else str(UUID(bytes=take_id(id)))
        item = Item(take_id(instance_id), signal, Actor(by or "system"), receipt=receipt)
        return await self._apply(item, is_repeatable=id is not None)

    async def _apply(self, item: Item, *, is_repeatable: bool = False) -> Instance:
        view = await self.get(str(UUID(bytes=item.instance)))  # somebody else's instance is not found, here too
        async with noted_refusal(self._opened(), item.instance, item.signal, item.actor.id):
            if view.status in TERMINAL and not is_repeatable:
                raise Conflict(f"The instance is over: {view.status}.", code="INSTANCE_OVER", hint="Start a new one.")
            await self.committer.apply(item)
        self._announce()
        return await self.get(view.id)

    async def reschedule(
        self,
        instance_id: Id,
        node: str | None,
        *,
        at: datetime | None = None,
        delay: float | None = None,
        token: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Instance:
        """Another moment for the timer or deadline a node waits for, or (None) for the timeout of the instance."""
        return await self._control(instance_id, rescheduled(node, at, delay, token, reason), by)

    async def cancel_timer(
        self,
        instance_id: Id,
        node: str | None,
        *,
        token: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Instance:
        """Cancel the moment of a timer: it waits until it is rescheduled; a deadline or timeout is lifted."""
        return await self._control(instance_id, cancelled(node, token, reason), by)
