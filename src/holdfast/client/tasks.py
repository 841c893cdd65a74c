"""Tasks of a server: the work of people."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.client.connection import EVERYTHING, Connection, given, id_part, some_id_part, taken
from holdfast.runtime.people.inbox import Inbox
from holdfast.store.tasks import Task, TaskEvent

Tasks = list[Task]
TaskEvents = list[TaskEvent]


class ClientTasks:
    def __init__(self, server: Connection) -> None:
        self._server = server

    def list(
        self,
        instance_id: str | None = None,
        *,
        role: str | None = None,
        assignee: str | None = None,
        status: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Tasks:
        found = self._server.pages(
            "/tasks", limit, after=some_id_part(after),
            instance=some_id_part(instance_id), role=role, assignee=assignee, status=status,
        )  # fmt: skip
        return [self._server.task(item) for item in found]

    def inbox(
        self,
        by: str,
        *,
        roles: Sequence[str] = (),
        capabilities: Collection[str] | None = None,
        status: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Inbox:
        """Read up to `limit` tasks, over several pages: a page may be short although more follow."""
        headers = {**self._server.person(by, sorted(capabilities or ())), **self._server.roles(roles)}
        found = self._server.pages(
            "/tasks", limit, after=some_id_part(after), headers=headers, mine=True, status=status
        )
        return Inbox([self._server.task(item) for item in found], None)

    def get(self, task_id: str) -> Task:
        return self._server.task(self._server.get(f"/tasks/{id_part(task_id)}"))

    def events(self, task_id: str) -> TaskEvents:
        return [taken(TaskEvent, item) for item in self._server.pages(f"/tasks/{id_part(task_id)}/events", EVERYTHING)]

    def claim(self, task_id: str, *, by: str, roles: Sequence[str] | None = None) -> Task:
        return self._act(task_id, "claim", None, by, **self._server.roles(roles))

    def release(self, task_id: str, *, by: str) -> Task:
        return self._act(task_id, "release", None, by)

    def assign(self, task_id: str, *, to: str, by: str, reason: str | None = None) -> Task:
        return self._act(task_id, "assign", given(to=to, reason=reason), by)

    def delegate(self, task_id: str, *, to: str, by: str, reason: str | None = None) -> Task:
        return self._act(task_id, "delegate", given(to=to, reason=reason), by)

    def decide(
        self,
        task_id: str,
        *,
        by: str,
        decision: str,
        comment: str | None = None,
        data: Any = None,
        roles: Sequence[str] | None = None,
    ) -> Task:
        wish = given(decision=decision, comment=comment, data=data)
        return self._act(task_id, "decide", wish, by, **self._server.roles(roles))

    def _act(self, id: str, verb: str, wish: Any, by: str, **headers: str) -> Task:
        return self._server.task(self._server.act(f"/tasks/{id_part(id)}/{verb}", wish, by, **headers))
