"""Tasks of people: list, claim, hand over, decide.

A change is made on the task as it was read. If another change was faster, the task is read and the rules are checked
again, so of any number of people who claim one task exactly one gets it, and the others learn the holder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from holdfast.core.model.decision import TaskFacts
from holdfast.core.model.signals import Actor, Decided
from holdfast.core.model.timestamps import from_datetime
from holdfast.core.people import ownership
from holdfast.core.people.ownership import OVER, Change, Held, TaskStatus, check_decider, check_open
from holdfast.errors import Busy, Conflict, NotFound, Refused
from holdfast.runtime.commit.items import Item
from holdfast.runtime.commit.starter import new_id
from holdfast.runtime.people.forms import refusal_of
from holdfast.runtime.people.visibility import Person, take_person
from holdfast.runtime.races import Races
from holdfast.runtime.validation import check_expected, check_text, take_id, take_names, take_payload
from holdfast.store import tasks as store
from holdfast.store.caller_transaction import BorrowedVerbs
from holdfast.store.pg.session import Session
from holdfast.store.reads.steps import check_page
from holdfast.store.tasks import MOST_URGENT, NEVER, Position, Task, TaskEvent

Id = str | UUID
Require = Callable[[Task, Person, str], Awaitable[None]]
MOST_ORDINAL: Final = 2**31 - 1
MOST_DECISION_BYTES: Final = 200


class Apply(Protocol):
    async def __call__(self, item: Item, *, is_repeatable: bool = False) -> Any: ...


class Tasks:
    def __init__(self, session: Session, org: str, races: Races) -> None:
        self._session = session
        self._org = org
        self._races = races

    # --- looking ---------------------------------------------------------------------------------------------------

    async def get(self, id: Id) -> Task:
        found = await store.read_task(self._session, self._org, take_id(id))
        if found is None:
            raise unknown_task(id)
        return found

    async def events(self, id: Id, after: int | None, limit: int | None) -> list[TaskEvent]:
        if limit is not None:
            check_page(limit, "events")
        await self.get(id)
        start = -1 if after is None else max(-1, min(after, MOST_ORDINAL))
        return await store.list_task_events(self._session, self._org, take_id(id), start, limit)

    async def list(
        self,
        instance_id: Id | None,
        *,
        role: str | None,
        assignee: str | None,
        status: str | None,
        after: Id | None,
        limit: int,
    ) -> list[Task]:
        """List all tasks of an instance, or else an inbox: open tasks, most urgent first."""
        _check_filter(role, assignee, status, limit)
        if instance_id is not None:
            last = None if after is None else take_id(after)
            return await store.list_tasks_of_instance(
                self._session, self._org, take_id(instance_id), status=status, role=role, assignee=assignee, after=last,
                limit=limit,
            )  # fmt: skip
        if status is not None and TaskStatus(status) in OVER:
            if role is not None or assignee is not None:
                raise Refused(
                    "Tasks that are over are listed by instance or by status alone.",
                    code="TASK_FILTER_INVALID",
                    hint="Leave out role and assignee, or name an instance.",
                )
            last = None if after is None else take_id(after)
            return await store.list_finished_tasks(self._session, self._org, status, last, limit)
        position = await self.position(after)
        return await store.list_inbox(
            self._session, self._org, role=role, assignee=assignee, status=status, after=position, limit=limit
        )

    async def position(self, after: Id | None) -> Position:
        """The position in a list of open tasks behind this one."""
        return MOST_URGENT if after is None else _position(await self.get(after))

    # --- hands -----------------------------------------------------------------------------------------------------

    async def claim(self, id: Id, by: str, roles: Sequence[str] | None) -> Task:
        given = _take_roles(roles)
        return await self._change(id, by, lambda task: ownership.claim(task, by, given))

    async def release(self, id: Id, by: str) -> Task:
        return await self._change(id, by, lambda task: ownership.release(task, by))

    async def assign(self, id: Id, to: str, by: str, reason: str | None) -> Task:
        _check_person(to)
        return await self._change(id, by, lambda task: ownership.assign(task, to, reason), reason)

    async def delegate(self, id: Id, to: str, by: str, reason: str | None) -> Task:
        _check_person(to)
        return await self._change(id, by, lambda task: ownership.delegate(task, to, by, reason), reason)

    async def _change(self, id: Id, by: str, rule: Callable[[Held], Change | None], reason: str | None = None) -> Task:
        _check_person(by)
        check_text(reason, "reason")

        async def attempt() -> Task | None:
            task = await self.get(id)
            change = rule(_held(task))
            if change is None:
                return task
            is_done = await store.change_task(self._session, self._org, take_id(id), task.version, change, by)
            return await self.get(id) if is_done else None

        busy = Busy("The task changes hands faster than it can be read; try again.", code="TASK_BUSY")
        return await self._races.settle((self._org, take_id(id)), attempt, busy)

    # --- decisions -------------------------------------------------------------------------------------------------

    async def decide(
        self,
        apply: Apply,
        require_right: Require,
        id: Id,
        *,
        by: str,
        decision: str,
        comment: str | None,
        data: Any,
        roles: Sequence[str] | None,
        capabilities: Sequence[str],
        signal_id: Id | None,
        if_version: int | None,
        conn: Any,
    ) -> Task:
        raw = None if data is None else take_payload(data, "the data", f"{decision!r}")
        _check_person(by)
        _check_decision(decision)
        check_text(comment, "comment")
        check_expected(if_version)
        held, told = take_names(capabilities, "capability"), _take_roles(roles)
        task = await self.get(id)
        misfit = None if TaskStatus(task.status) in OVER else await refusal_of(task, decision, raw)
        if misfit is not None:
            # Who may not decide, or not so, need not know what the form asks for.
            await require_right(task, take_person(by, held, told), decision)
            raise misfit
        if conn is not None:
            if task.assignee is None:  # a queued decision is not checked for roles later: check it here
                check_decider(TaskFacts(roles=tuple(task.roles)), by, told)
            await BorrowedVerbs(self._org).decide(
                conn=conn,
                task=take_id(id),
                decision=decision,
                comment=comment,
                raw=raw,
                by=by,
                id=signal_id,
                if_version=if_version,
                capabilities=held,
                roles=told or (),
            )
            return task
        if signal_id is None:
            check_open(_held(task))
        own = take_id(task.instance_id)
        signal = new_id(self._org, None, None) if signal_id is None else take_id(signal_id)
        item = Item(
            own,
            Decided(signal, take_id(id), decision, raw, comment, told, if_version),
            Actor(by, held, told or ()),
            receipt=str(UUID(bytes=signal)),
        )
        try:
            await apply(item, is_repeatable=True)
        except Conflict as refusal:
            if refusal.code in ("TASK_OVER", "INSTANCE_OVER"):
                check_open(_held(await self.get(id)))  # how it ended is known by now
            raise
        return await self.get(id)


def unknown_task(id: Id) -> NotFound:
    return NotFound(f"There is no task {id}.", code="TASK_UNKNOWN", hint="Check the id and the organisation.")


def _held(task: Task) -> Held:
    return Held(TaskStatus(task.status), task.assignee, tuple(task.roles), task.decided_by, task.reason)


def _take_roles(roles: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if roles is None else take_names(roles, "role")


def _position(task: Task) -> Position:
    due = NEVER if task.due_at is None else from_datetime(task.due_at)
    return 100 - task.priority, due, take_id(task.id)


def _check_filter(role: str | None, assignee: str | None, status: str | None, limit: int) -> None:
    check_text(role, "role")
    check_text(assignee, "assignee")
    if status is not None and status not in tuple(TaskStatus):
        raise Refused(
            f"There is no status {status!r} of tasks.", code="STATUS_UNKNOWN", hint=f"One of {', '.join(TaskStatus)}."
        )
    check_page(limit, "tasks")


def _check_person(person: str) -> None:
    check_text(person or "", "person")


def _check_decision(decision: str) -> None:
    check_text(decision or "", "decision")
    if len(decision.encode()) > MOST_DECISION_BYTES:
        raise Refused(
            f"The decision has more than {MOST_DECISION_BYTES} bytes.",
            code="TEXT_INVALID",
            hint="Say more in the comment.",
        )
