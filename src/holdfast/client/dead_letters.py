"""Dead letters of a server: failures that wait for a repair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from time import sleep
from typing import Any, Final

from holdfast.client.connection import EVERYTHING, Connection, given, id_part, is_id, some_id_part, taken
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.runtime.ops.dead_letters import LetterFilter, LetterPage, Pace, Resolved
from holdfast.store.dead_letters import DeadLetter

MOST_LETTERS: Final = 1000  # that one request requeues

DeadLetters = list[DeadLetter]


class ClientDeadLetters:
    def __init__(self, server: Connection) -> None:
        self._server = server

    def list(self, instance_id: str | None = None, *, limit: int = 50) -> DeadLetters:
        found = self._server.pages("/dead-letters", limit, instance=some_id_part(instance_id))
        return [taken(DeadLetter, item) for item in found]

    def find(
        self, filter: LetterFilter, *, after: str | None = None, limit: int = 50
    ) -> LetterPage:  # fmt: skip
        """Read up to `limit` letters, fewer once a page is short; `next` of the page continues the search."""
        behind, cursor = (after, None) if is_id(after) else (None, after)
        found, next = self._server.some("/dead-letters", limit, cursor, {**_letters_asked(filter), "after": behind})
        return LetterPage([taken(DeadLetter, item) for item in found], next)

    def get(self, letter_id: str) -> DeadLetter:
        return taken(DeadLetter, self._server.get(f"/dead-letters/{id_part(letter_id)}"))

    def requeue(
        self, letter_id: str, input: Any = None, *, by: str | None = None, reason: str | None = None
    ) -> DeadLetter:
        wish = given(input=input, reason=reason)
        return taken(DeadLetter, self._server.act(f"/dead-letters/{id_part(letter_id)}/requeue", wish, by))

    def requeue_many(
        self,
        ids: Iterable[str] | None = None,
        *,
        filter: LetterFilter | None = None,
        inputs: Mapping[str, Any] | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        rate: float | None = None,
    ) -> Resolved:
        """Put back what dead letters are about; `rate` is the number of letters per second."""
        pace, wish = Pace(rate), given(reason=reason, dry_run=dry_run)
        if ids is None and filter is not None and filter == LetterFilter(filter.instance_id) != LetterFilter():
            path = f"/instances/{id_part(str(filter.instance_id))}/requeue"  # all of them in one commit
            return _resolved(self._server.act(path, wish | given(inputs=inputs), by))
        most = pace.page(MOST_LETTERS)
        pages = [list(ids)] if ids is not None else _by_instance(self._matching(filter), most)
        answers: list[Resolved] = []
        for part in (part for page in pages for part in _parts(list(dict.fromkeys(page)))):
            sleep(0.0 if dry_run else pace.pause(len(part)))
            asked = wish | {"ids": part} | _inputs_for(part, inputs)
            answers.append(_resolved(self._server.act("/dead-letters/requeue", asked, by)))
        return Resolved(
            [id for answer in answers for id in answer.ids],
            [id for answer in answers for id in answer.left],
            dry_run,
            {id: refusal for answer in answers for id, refusal in answer.refusals.items()},
        )

    def discard(
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
                self._server.act(f"/dead-letters/{id_part(id)}/discard", given(reason=reason), by)
                done.append(id)
        return Resolved(done, [id for id in chosen if id not in done], False)

    def _matching(self, filter: LetterFilter | None) -> DeadLetters:
        if filter is None:
            raise Refused(
                "Which dead letters are meant?",
                code="DEAD_LETTERS_NOT_NAMED",
                hint="Name them, narrow them down, or say --all.",
            )
        found = self._server.pages("/dead-letters", EVERYTHING, **_letters_asked(filter))
        return [taken(DeadLetter, item) for item in found]


def _letters_asked(filter: LetterFilter) -> dict[str, Any]:
    instance = None if filter.instance_id is None else some_id_part(str(filter.instance_id))
    since = None if filter.since is None else filter.since.isoformat()
    return {
        "instance": instance, "with_reason": filter.with_reason, "source": filter.source, "flow": filter.flow,
        "step": filter.step, "error": filter.error, "since": since, "consumer": filter.consumer,
        "environment": filter.environment,
    }  # fmt: skip


def _by_instance(letters: Sequence[DeadLetter], most: int) -> Iterator[list[str]]:
    """Split letters into pages for requests; the letters of one instance stay together, because they are one commit."""
    page: list[str] = []
    for _, mine in groupby(sorted(letters, key=_instance), key=_instance):
        ids = [letter.id for letter in mine]
        if page and len(page) + len(ids) > most:
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


def _resolved(answer: dict[str, Any]) -> Resolved:
    told = {item.pop("id"): item for item in answer["refusals"]}
    return taken(Resolved, {**answer, "refusals": told})
