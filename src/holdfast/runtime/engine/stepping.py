"""Verbs of people: answer steps, see workflows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.core.model.program import Program
from holdfast.errors import Busy, HoldfastError, InputInvalid
from holdfast.runtime.commit.starter import new_id
from holdfast.runtime.engine.signalling import Signalling
from holdfast.runtime.people.advance import Advance, is_overtaken, item_of, repeat_of, reworded
from holdfast.runtime.people.descriptor import MOST_HISTORY, Descriptor, describe
from holdfast.runtime.people.standing import Standing
from holdfast.runtime.people.summaries import Summaries, summary_of
from holdfast.runtime.people.visibility import Named, Person, is_within, may_see, named_by, take_person, task_of
from holdfast.runtime.reads.views import current, shown_id, take_wanted, unknown_instance
from holdfast.runtime.validation import Id, check_expected, check_text, take_id, take_payload
from holdfast.store.reads.instances import Instance, read_instances
from holdfast.store.reads.positions import Whereabouts, read_past
from holdfast.store.reads.search import Wanted, list_window
from holdfast.store.reads.steps import check_page
from holdfast.store.tasks import Task, list_tasks_about, read_tasks
from holdfast.views.statuses import kernel_statuses


class Stepping(Signalling):
    async def advance(
        self,
        instance_id: Id,
        event: str,
        input: dict[str, Any] | None = None,
        *,
        by: str,
        capabilities: Collection[str] | None = None,
        roles: Collection[str] | None = None,
        id: Id | None = None,
        if_version: int | None = None,
        comment: str | None = None,
        partition: str | None = None,
        sees_all: bool = False,
    ) -> Instance:
        """A person's answer where a workflow rests; answered when it is committed.

        `input` must fit the form of the step and merges into the state. The same `id` again has no second effect.
        Capabilities or roles that are None are not asked for. For those who may not see the workflow there is none,
        as in `descriptor`; operators see all. With `if_version` the answer is for that version only; without it, an
        instance that changed meanwhile is read again, and the answer is for its step then.
        """
        advance = Advance(
            take_id(instance_id),
            new_id(self.org, None, None) if id is None else take_id(id),
            event,
            _take_input(input, event),
            take_person(by, capabilities, roles, partition, sees_all),
            comment,
            if_version,
        )
        check_text(event or "", "event")
        check_text(comment, "comment")
        check_expected(if_version)
        return await self._advance(advance, is_repeatable=id is not None)

    async def advance_and_settle(
        self, instance_id: Id, event: str, input: dict[str, Any] | None = None, *, timeout: float, **wishes: Any
    ) -> Standing:
        """Advance, and return once the workflow rests again, or when the seconds of `timeout` are over."""
        instance = take_id(instance_id)
        with self.committer.snapshots.watch(instance) as news:
            view = await self.advance(instance_id, event, input, **wishes)
            return await self._standing(instance, news, timeout, view)

    async def _advance(self, advance: Advance, *, is_repeatable: bool) -> Instance:
        self._opened()
        return await self.races.settle(
            (self.org, advance.instance),
            lambda: self._try_to_advance(advance, is_repeatable=is_repeatable),
            Busy("The workflow changes faster than it can be read; try again.", code="INSTANCE_BUSY"),
        )

    async def _try_to_advance(self, advance: Advance, *, is_repeatable: bool) -> Instance | None:
        """Advance once; None: another caller was faster."""
        found = await self._whereabouts(advance.instance)
        program = await self.catalog.program(self._opened(), found.definition)
        await self._require_sight(advance.person, found.view, program)
        try:
            item = await item_of(advance, found, program)
        except HoldfastError:
            if is_repeatable and await self._was_applied(advance):
                return await self.get(found.view.id)
            raise
        try:
            outcome = await self.committer.apply(item)
        except HoldfastError as refusal:
            if is_overtaken(refusal):
                return None
            raise reworded(refusal) from None
        if self._worker is None:  # one in this process knows of its own commits
            self._notifier.hint()
        if outcome.instance is None:
            return await self.get(found.view.id)
        return current(found.view, outcome.instance, outcome.now)

    async def _require_sight(self, person: Person, view: Instance, program: Program) -> None:
        """Refuse callers who may not see the instance. Their tasks are read only if no other rule admits them."""
        if may_see(person, view, Named(program.policy.capabilities), ()):
            return
        if not is_within(person, view) or not may_see(
            person, view, named_by(program), await self.tasks_about([view.id], person.id)
        ):
            raise unknown_instance(view.id)

    async def descriptor(
        self,
        instance_id: Id,
        *,
        by: str,
        capabilities: Collection[str] | None = None,
        roles: Collection[str] | None = None,
        partition: str | None = None,
        sees_all: bool = False,
    ) -> Descriptor:
        """A workflow as one person sees it; for those who may not see it there is none. Operators see all."""
        session, id = self._opened(), take_id(instance_id)
        person = take_person(by, capabilities, roles, partition, sees_all)
        read = await read_past(session, self.org, id, MOST_HISTORY)
        if read is None:
            raise unknown_instance(instance_id)
        found, steps = read
        program = await self.catalog.program(session, found.definition)
        asked = [task for token in found.state.tokens.values() if (task := task_of(token)) is not None]
        tasks, named = await read_tasks(session, self.org, asked), named_by(program)
        if not may_see(person, found.view, named, tasks) and not may_see(
            person, found.view, named, await self.tasks_about([found.view.id], by)
        ):
            raise unknown_instance(instance_id)
        return describe(found, steps, tasks, program, named, person)

    async def describe_list(
        self,
        *,
        workflow_id: str | None = None,
        status: str | None = None,
        subject_id: str | None = None,
        business_key: str | None = None,
        attributes: dict[str, Any] | None = None,
        after: str | None = None,
        limit: int = 50,
        by: str | None = None,
        capabilities: Collection[str] | None = None,
        roles: Collection[str] | None = None,
    ) -> Summaries:
        """Workflows, newest first; those that `by` may not see are left out. `after` is the `next` of the page before.

        A page may hold less than `limit` although there are more: only `next` tells.
        """
        wanted = take_wanted(
            Wanted((), workflow_id, subject_id, business_key, attributes or {}),
            () if status is None else kernel_statuses(status),
        )
        session, last = self._opened(), None if after is None else take_id(after)
        found, next = await list_window(session, self.org, wanted, last, check_page(limit, "workflows"))
        programs = {one.definition: await self.catalog.program(session, one.definition) for one in found}
        if by is not None:
            found = await self._visible(found, programs, take_person(by, capabilities, roles))
        items = [summary_of(one, programs[one.definition]) for one in found]
        return Summaries(items, None if next is None else shown_id(next))

    async def _visible(
        self, found: Sequence[Whereabouts], programs: dict[bytes, Program], person: Person
    ) -> list[Whereabouts]:
        named = {definition: named_by(program) for definition, program in programs.items()}
        doubtful = [one for one in found if not may_see(person, one.view, named[one.definition], ())]
        about = await self.tasks_about([one.view.id for one in doubtful], person.id)
        hidden = {
            one.view.id
            for one in doubtful
            if not may_see(
                person, one.view, named[one.definition], [task for task in about if task.instance_id == one.view.id]
            )
        }
        return [one for one in found if one.view.id not in hidden]

    async def tasks_about(self, instance_ids: Collection[Id], person: str) -> list[Task]:
        """The tasks of these instances: open ones, and those of this person."""
        ids = [take_id(id) for id in instance_ids]
        return await list_tasks_about(self._opened(), self.org, ids, person) if ids else []

    async def instances_by_id(self, instance_ids: Collection[Id]) -> dict[str, Instance]:
        """The existing instances among these, by id."""
        ids = [take_id(id) for id in dict.fromkeys(instance_ids)]
        found = await read_instances(self._opened(), self.org, ids) if ids else []
        return {one.id: one for one in found}

    async def _was_applied(self, advance: Advance) -> bool:
        """Check whether the request repeats one that was answered and has moved the instance."""
        try:
            await self.committer.apply(repeat_of(advance))
        except HoldfastError as refusal:
            if refusal.code == "SIGNAL_ID_REUSED":
                raise reworded(refusal) from None
            return False
        return True


def _take_input(input: Any, event: str) -> bytes | None:
    if input is None:
        return None
    if not isinstance(input, dict):
        raise InputInvalid("The input must be an object.", code="FORM_INVALID", hint="Give names and values.")
    return take_payload(input, "the input", f"{event!r}")
