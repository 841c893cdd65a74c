"""Dead letters as an operator handles them: look, put back one or many, let go; each with who and why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.core.moments import from_json
from holdfast.core.signals import Actor, Requeue
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.runtime.edge import check_text, take_id, take_payload
from holdfast.runtime.items import Item
from holdfast.store import dead_letters
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.effects import replay_effects
from holdfast.store.history import read_compensation
from holdfast.store.session import Session

PAGE: Final = 500
Id = str | UUID
_Resolver = Callable[[Sequence[DeadLetter]], Awaitable[list[str]]]


class LetterFilter(msgspec.Struct, frozen=True):
    """Which open dead letters are meant; what is None does not matter."""

    instance_id: Id | None = None
    reason: str | None = None
    source: str | None = None


class Resolved(msgspec.Struct, frozen=True):
    """What was done, or would be by a dry run, and the letters that were left because nothing could be done."""

    ids: list[str]
    left: list[str]
    dry_run: bool

    @property
    def count(self) -> int:
        return len(self.ids)


class Letters:
    """The dead letters of one organisation. `announce` tells workers that there is something to do again."""

    def __init__(
        self, session: Session, org: str, announce: Callable[[], None], apply: Callable[[Item], Awaitable[Any]]
    ) -> None:
        self._session = session
        self._org = org
        self._announce = announce
        self._apply = apply

    async def page(self, filter: LetterFilter, after: Id | None, limit: int) -> list[DeadLetter]:
        if not 1 <= limit <= 1000:
            raise Refused("A page holds 1 to 1000 dead letters.", code="LIMIT_INVALID")
        start = None if after is None else take_id(after)
        return await dead_letters.list_dead_letters(self._session, self._org, _wanted(filter), start, limit)

    async def get(self, id: Id) -> DeadLetter:
        found = await dead_letters.read_dead_letter(self._session, self._org, take_id(id))
        if found is None:
            raise NotFound(
                f"There is no dead letter {id}.", code="DEAD_LETTER_UNKNOWN", hint="Check the id and the organisation."
            )
        return found

    async def requeue(self, id: Id, input: Any, by: str | None, why: str | None) -> DeadLetter:
        """Put back one letter; answers it as it is then."""
        letter = await self.get(id)
        if input is not None and letter.source not in RUN_AGAIN:
            raise Refused(
                f"A dead letter of source {letter.source!r} goes back as it is: it takes no other input.",
                code="DEAD_LETTER_INPUT",
                hint="Leave `input` out, or discard the letter and send what should be sent.",
            )
        if letter.resolved_at is not None:
            raise Conflict(
                f"The dead letter was {letter.resolution} by {letter.resolved_by}.",
                code="DEAD_LETTER_RESOLVED",
                hint="What failed again has a new dead letter.",
            )
        if letter.source in RUN_AGAIN:
            await self._run_again(letter, input, _actor(by, why), why)
            self._announce()
            return await self.get(id)
        done = await self.replay([letter.id], None, by, why, dry_run=False)
        if not done.ids:
            raise Conflict(
                "What the dead letter is about has ended by other means.",
                code="DEAD_LETTER_STALE",
                hint="Discard it.",
            )
        return await self.get(id)

    async def replay(
        self, ids: Iterable[Id] | None, filter: LetterFilter | None, by: str | None, why: str | None, *, dry_run: bool
    ) -> Resolved:
        actor = _actor(by, why)

        async def put_back(letters: Sequence[DeadLetter]) -> list[str]:
            done: list[str] = []
            for source in sorted({letter.source for letter in letters} & _REPLAYS.keys()):
                mine = [take_id(letter.id) for letter in letters if letter.source == source]
                done += await _REPLAYS[source](self._session, self._org, mine, actor, why)
            for letter in letters:
                if letter.source in RUN_AGAIN and await self._could_run_again(letter, actor, why):
                    done.append(letter.id)
            self._announce()
            return done

        return await self._resolve(ids, filter, put_back, dry_run)

    async def _could_run_again(self, letter: DeadLetter, actor: str, why: str | None) -> bool:
        try:
            await self._run_again(letter, None, actor, why)
        except Conflict:  # its step has ended by other means, or somebody else was faster: it is among those left
            return False
        return True

    async def _run_again(self, letter: DeadLetter, input: Any, actor: str, why: str | None) -> None:
        """In one commit: the step's new row, its place in the queue, the instance, and the letter that is settled."""
        instance, step = take_id(letter.instance_id), take_id(letter.envelope["step"])
        raw = None if input is None else take_payload(input, "the new input", f"{letter.envelope['node']!r}")
        undo = None
        if letter.source == "compensation":
            moment = from_json(letter.envelope["at"]) or 0
            found = await read_compensation(self._session, self._org, instance, step, moment)
            if found is None:
                raise Conflict(
                    "The step the dead letter is about is not kept any more.",
                    code="DEAD_LETTER_STALE",
                    hint="Discard it.",
                )
            undo, known = found
            raw = known if raw is None else raw
        signal = Requeue(take_id(letter.id), step, raw, why, undo)
        await self._apply(Item(instance, signal, Actor(actor)))

    async def discard(
        self, ids: Iterable[Id] | None, filter: LetterFilter | None, by: str | None, why: str | None, *, dry_run: bool
    ) -> Resolved:
        actor = _actor(by, why)

        async def let_go(letters: Sequence[DeadLetter]) -> list[str]:
            mine = [take_id(letter.id) for letter in letters]
            return await dead_letters.discard(self._session, self._org, mine, actor, why)

        return await self._resolve(ids, filter, let_go, dry_run)

    async def _resolve(
        self, ids: Iterable[Id] | None, filter: LetterFilter | None, resolve: _Resolver, dry_run: bool
    ) -> Resolved:
        meant = await self._chosen(ids, filter)
        if dry_run:
            return Resolved([letter.id for letter in meant], [], True)
        done: list[str] = []
        for start in range(0, len(meant), PAGE):
            done += await resolve(meant[start : start + PAGE])
        is_done = set(done)
        return Resolved(done, [letter.id for letter in meant if letter.id not in is_done], False)

    async def _chosen(self, ids: Iterable[Id] | None, filter: LetterFilter | None) -> list[DeadLetter]:
        """The open letters that are meant, by id or by filter; a filter names what is there now, page by page."""
        if (ids is None) == (filter is None):
            raise Refused(
                "Dead letters are named by their ids or by a filter.",
                code="DEAD_LETTERS_NOT_NAMED",
                hint="Pass `ids`, or `filter=LetterFilter(...)`; an empty filter means every open one.",
            )
        if filter is None:
            letters = [await self.get(id) for id in ids or ()]
            return [letter for letter in letters if letter.resolved_at is None]
        found: list[DeadLetter] = []
        while True:
            page = await self.page(filter, found[-1].id if found else None, PAGE)
            found += page
            if len(page) < PAGE:
                return found


def _wanted(filter: LetterFilter) -> dead_letters.Wanted:
    check_text(filter.reason, "reason of the dead letters")
    check_text(filter.source, "source of the dead letters")
    instance = None if filter.instance_id is None else take_id(filter.instance_id)
    return dead_letters.Wanted(instance, filter.reason, filter.source)


async def _replay_effects(session: Session, org: str, ids: Sequence[bytes], by: str, why: str | None) -> list[str]:
    return [str(UUID(bytes=id)) for id, _ in await replay_effects(session, org, ids, by, why)]


_REPLAYS: Final = {
    "signal": dead_letters.replay_signals,
    "work": dead_letters.replay_work,
    "effect": _replay_effects,
}


RUN_AGAIN: Final = frozenset({"step", "compensation"})  # their steps get a new row, under a new input if one is given


def _actor(by: str | None, why: str | None) -> str:
    check_text(by, "actor")
    check_text(why, "reason")
    return by or "system"
