"""Tasks, dead letters and effects of a server."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, Final

from holdfast.cli.caller import EVERYTHING, Caller, given, id_part, some_id_part, taken
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.runtime.dead_letters import LetterFilter, Resolved
from holdfast.runtime.effects.outbox import EffectPage
from holdfast.runtime.inbox import Inbox
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.effects import Effect
from holdfast.store.tasks import Task, TaskEvent

MOST_LETTERS: Final = 1000  # that one request puts back


class RemoteDesk(Caller):
    def tasks(
        self,
        instance_id: str | None = None,
        *,
        role: str | None = None,
        assignee: str | None = None,
        status: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[Task]:
        found = self._http.pages(
            "/tasks", limit, after=some_id_part(after),
            instance=some_id_part(instance_id), role=role, assignee=assignee, status=status,
        )  # fmt: skip
        return [self._task(item) for item in found]

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
        """As much as was asked for, from as many pages as that takes: one may be short although there are more."""
        headers = {**self._person(by, sorted(capabilities or ())), **self._roles(roles)}
        found = self._http.pages("/tasks", limit, after=some_id_part(after), headers=headers, mine=True, status=status)
        return Inbox([self._task(item) for item in found], None)

    def task(self, task_id: str) -> Task:
        return self._task(self._http.get(f"/tasks/{id_part(task_id)}"))

    def task_events(self, task_id: str) -> list[TaskEvent]:
        return [taken(TaskEvent, item) for item in self._http.pages(f"/tasks/{id_part(task_id)}/events", EVERYTHING)]

    def claim(self, task_id: str, *, by: str, roles: Sequence[str] | None = None) -> Task:
        return self._task(self._act(f"/tasks/{id_part(task_id)}/claim", None, by, **self._roles(roles)))

    def release(self, task_id: str, *, by: str) -> Task:
        return self._task(self._act(f"/tasks/{id_part(task_id)}/release", None, by))

    def assign(self, task_id: str, *, to: str, by: str, reason: str | None = None) -> Task:
        return self._task(self._act(f"/tasks/{id_part(task_id)}/assign", given(to=to, reason=reason), by))

    def delegate(self, task_id: str, *, to: str, by: str, reason: str | None = None) -> Task:
        return self._task(self._act(f"/tasks/{id_part(task_id)}/delegate", given(to=to, reason=reason), by))

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
        return self._task(self._act(f"/tasks/{id_part(task_id)}/decide", wish, by, **self._roles(roles)))

    def dead_letters(
        self,
        instance_id: str | None = None,
        *,
        reason: str | None = None,
        source: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        found = self._http.pages(
            "/dead-letters",
            limit,
            after=some_id_part(after),
            instance=some_id_part(instance_id),
            reason=reason,
            source=source,
        )
        return [taken(DeadLetter, item) for item in found]

    def dead_letter(self, letter_id: str) -> DeadLetter:
        return taken(DeadLetter, self._http.get(f"/dead-letters/{id_part(letter_id)}"))

    def requeue(
        self, letter_id: str, input: Any = None, *, by: str | None = None, reason: str | None = None
    ) -> DeadLetter:
        wish = given(input=input, reason=reason)
        return taken(DeadLetter, self._act(f"/dead-letters/{id_part(letter_id)}/requeue", wish, by))

    def replay_dead_letters(
        self,
        ids: Iterable[str] | None = None,
        *,
        filter: LetterFilter | None = None,
        inputs: Mapping[str, Any] | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Resolved:
        wish = given(reason=reason, dry_run=dry_run)
        if ids is None and filter is not None and filter == LetterFilter(filter.instance_id) != LetterFilter():
            path = f"/instances/{id_part(str(filter.instance_id))}/requeue"  # all of them in one commit
            return _resolved(self._act(path, wish | given(inputs=inputs), by))
        pages = [list(ids)] if ids is not None else _by_instance(self._matching(filter))
        answers = [
            _resolved(self._act("/dead-letters/requeue", wish | {"ids": part} | _inputs_for(part, inputs), by))
            for page in pages
            for part in _parts(list(dict.fromkeys(page)))
        ]
        return Resolved(
            [id for answer in answers for id in answer.ids],
            [id for answer in answers for id in answer.left],
            dry_run,
            {id: refusal for answer in answers for id, refusal in answer.refusals.items()},
        )

    def discard_dead_letters(
        self,
        ids: Iterable[str] | None = None,
        *,
        filter: LetterFilter | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Resolved:
        chosen = list(dict.fromkeys(ids)) if ids is not None else [letter.id for letter in self._matching(filter)]
        if dry_run:
            return Resolved(chosen, [], True)
        done: list[str] = []
        for id in chosen:
            with suppress(NotFound, Conflict, Refused):
                self._act(f"/dead-letters/{id_part(id)}/discard", given(reason=reason), by)
                done.append(id)
        return Resolved(done, [id for id in chosen if id not in done], False)

    def effects(self, instance_id: str) -> list[Effect]:
        found = self._http.pages(f"/instances/{id_part(instance_id)}/effects", EVERYTHING)
        return [_effect(item) for item in found]

    def list_effects(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        flow: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> EffectPage:
        """As much as was asked for, from as many pages as that takes: one may be short although there are more."""
        found = self._http.pages("/effects", limit, after=some_id_part(after), status=status, kind=kind, flow=flow)
        return EffectPage([_effect(item) for item in found], None)

    def get_effect(self, effect_id: str) -> Effect:
        return _effect(self._http.get(f"/effects/{id_part(effect_id)}"))

    def replay_effect(self, effect_id: str, *, by: str | None = None, reason: str | None = None) -> Effect:
        return _effect(self._act(f"/effects/{id_part(effect_id)}/replay", given(reason=reason), by))

    def _matching(self, filter: LetterFilter | None) -> list[DeadLetter]:
        if filter is None:
            raise Refused(
                "Which dead letters are meant?",
                code="DEAD_LETTERS_NOT_NAMED",
                hint="Name them, narrow them down, or say --all.",
            )
        instance = None if filter.instance_id is None else str(filter.instance_id)
        return self.dead_letters(instance, reason=filter.reason, source=filter.source, limit=EVERYTHING)


def _by_instance(letters: Sequence[DeadLetter]) -> Iterator[list[str]]:
    """What a request may ask for, without tearing an instance apart: its letters are one commit."""
    page: list[str] = []
    for _, mine in groupby(sorted(letters, key=_instance), key=_instance):
        ids = [letter.id for letter in mine]
        if page and len(page) + len(ids) > MOST_LETTERS:
            yield page
            page = []
        page += ids
    if page:
        yield page


def _instance(letter: DeadLetter) -> str:
    return letter.instance_id


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + MOST_LETTERS] for start in range(0, len(ids), MOST_LETTERS))


def _inputs_for(ids: Sequence[str], inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    mine = {id: input for id, input in (inputs or {}).items() if id in ids}
    return {"inputs": mine} if mine else {}


def _effect(item: dict[str, Any]) -> Effect:
    """What a node is configured with is not told over HTTP."""
    return taken(Effect, {"config": None, **item})


def _resolved(answer: dict[str, Any]) -> Resolved:
    told = {item.pop("id"): item for item in answer["refusals"]}
    return taken(Resolved, {**answer, "refusals": told})
