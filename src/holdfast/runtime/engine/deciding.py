"""The tasks of people."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.core.model.decision import TaskFacts
from holdfast.core.people.ownership import check_decider
from holdfast.core.signals.decisions import edge_for
from holdfast.runtime.engine.signalling import Signalling
from holdfast.runtime.people.inbox import Holds, Inbox, InboxReader
from holdfast.runtime.people.tasks import Tasks
from holdfast.runtime.people.visibility import Person, require_right, take_person
from holdfast.runtime.validation import Id, check_text, several, take_id
from holdfast.store.tasks import Task, TaskEvent


class Deciding(Signalling):
    async def tasks(
        self,
        instance_id: Id | None = None,
        *,
        role: str | None = None,
        assignee: str | None = None,
        status: str | None = None,
        after: Id | None = None,
        limit: int = 50,
    ) -> list[Task]:
        """The tasks of an instance, or an inbox: open tasks, most urgent first; `after` is the last of a page."""
        return await self._tasks.list(
            instance_id, role=role, assignee=assignee, status=status, after=after, limit=limit
        )

    async def inbox(
        self,
        by: str,
        *,
        roles: Sequence[str] = (),
        capabilities: Collection[str] | Holds | None = None,
        status: str | None = None,
        after: Id | None = None,
        limit: int = 50,
    ) -> Inbox:
        """The inbox of one person: tasks they hold, open tasks for their roles, and open tasks for all who
        may act on it. Capabilities that are None are not asked for; a function says of each whether they have it."""
        check_text(by or "", "person")
        return await InboxReader(self._opened(), self.org, self.catalog, self._tasks).read(
            by, several(roles, "role"), _holds(capabilities), status, after, limit
        )

    async def task(self, task_id: Id) -> Task:
        return await self._tasks.get(task_id)

    async def task_events(self, task_id: Id, *, after: int | None = None, limit: int | None = None) -> list[TaskEvent]:
        """The history of a task, or a page of it: `after` is the `ordinal` of the last line of the page before."""
        return await self._tasks.events(task_id, after, limit)

    async def claim(
        self,
        task_id: Id,
        *,
        by: str,
        roles: Sequence[str] | None = None,
        capabilities: Collection[str] | None = None,
    ) -> Task:
        """Take a task: of any number of people exactly one gets it. If `roles` are given, one must be the task's.

        Refused: people who could not decide the task, because it is about their own request, or, if `capabilities` are
        given, because its step needs others.
        """
        person = take_person(by, capabilities, roles)
        await self._require_right(await self.task(task_id), person)
        return await self._tasks.claim(task_id, by, roles)

    async def _require_right(self, task: Task, person: Person, decision: str | None = None) -> None:
        found = await self._whereabouts(take_id(task.instance_id))
        place = (await self.catalog.program(self._opened(), found.definition)).places.get(task.node)
        if place is None:
            return
        if decision is not None:
            check_decider(TaskFacts(task.assignee, tuple(task.roles)), person.id, person.roles)
            edge_for(place, decision)
        require_right(place, person, found.view.created_by)

    async def release(self, task_id: Id, *, by: str) -> Task:
        """Give a task back, for others to claim."""
        return await self._tasks.release(task_id, by)

    async def assign(self, task_id: Id, *, to: str, by: str, reason: str | None = None) -> Task:
        """Assign a task to a person, even if another one has it."""
        return await self._tasks.assign(task_id, to, by, reason)

    async def delegate(self, task_id: Id, *, to: str, by: str, reason: str | None = None) -> Task:
        """Pass on a task that is in one's own hands."""
        return await self._tasks.delegate(task_id, to, by, reason)

    async def decide(
        self,
        task_id: Id,
        *,
        by: str,
        decision: str,
        comment: str | None = None,
        data: Any = None,
        roles: Sequence[str] | None = None,
        capabilities: Sequence[str] = (),
        id: Id | None = None,
        if_version: int | None = None,
        conn: Any = None,
    ) -> Task:
        """Decide a task; answered when it is committed. With `conn` it is sent in the caller's transaction."""
        return await self._tasks.decide(
            self._apply, self._require_right, task_id, by=by, decision=decision, comment=comment, data=data,
            roles=roles, capabilities=capabilities, signal_id=id, if_version=if_version, conn=conn,
        )  # fmt: skip

    @property
    def _tasks(self) -> Tasks:
        return Tasks(self._opened(), self.org, self.races)


def _holds(capabilities: Collection[str] | Holds | None) -> Holds:
    if capabilities is None:
        return lambda _: True
    if callable(capabilities):
        return capabilities
    return frozenset(several(capabilities, "capability")).__contains__
