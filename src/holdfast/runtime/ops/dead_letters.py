"""Dead letters as an operator handles them: look, put back one or many, let go; each with who and why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.core.model.signals import Actor, FailedDelivery, Requeue, RequeueDeliveries, RequeueMany, Signal
from holdfast.core.model.timestamps import from_json
from holdfast.core.signals.requeue import stale_letters
from holdfast.errors import Conflict, HoldfastError, NotFound, Refused, StoreError
from holdfast.runtime.commit.items import Item
from holdfast.runtime.validation import check_text, take_id, take_payload, take_utc
from holdfast.store import dead_letters
from holdfast.store.commit.history import read_compensation
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.effects import replay_effects
from holdfast.store.pg.session import DatabaseError, Disconnected, Session
from holdfast.store.reads.steps import check_page

PAGE: Final = 500
AT_ONCE: Final = 100  # instances whose letters are on their way to a commit; the committer makes few commits of them
Id = str | UUID
Inputs = Mapping[str, Any] | Mapping[UUID, Any]  # for steps, by the id of their letter
Refusals = dict[str, HoldfastError]  # by the letter's id
Part = Requeue | FailedDelivery
FASTEST: Final = 100_000.0


class LetterFilter(msgspec.Struct, frozen=True):
    """Filter for open dead letters; a field that is None does not filter.

    `error` is the code of the failure, `with_reason` the reason the letter gives, `since` when it was written;
    `consumer` and `environment` are those of a failed delivery.
    """

    instance_id: Id | None = None
    with_reason: str | None = None
    source: str | None = None
    flow: str | None = None
    step: str | None = None
    error: str | None = None
    since: datetime | None = None
    consumer: str | None = None
    environment: str | None = None


class LetterPage(msgspec.Struct, frozen=True):
    """Some dead letters and where the next page begins; None when this is the last one."""

    items: list[DeadLetter]
    next: str | None


class Refusal(msgspec.Struct, frozen=True):
    """The reason why a letter was not put back."""

    code: str
    message: str
    hint: str = ""


class Resolved(msgspec.Struct, frozen=True):
    """Result of a replay, or of its dry run: the letters settled, and those left.

    `refusals` gives the reason, by the letter's id; one that had been settled before is named there and is not left.
    """

    ids: list[str]
    left: list[str]
    dry_run: bool
    refusals: dict[str, Refusal] = {}

    @property
    def count(self) -> int:
        return len(self.ids)


class Pace:
    """The pace of a replay: `rate` letters per second on average; without one, as fast as it goes."""

    def __init__(self, rate: float | None) -> None:
        if rate is not None and (isinstance(rate, bool) or not 0 < rate <= FASTEST):
            raise Refused(
                f"`rate` is {str(rate)[:40]}.",
                code="NUMBER_INVALID",
                hint=f"Give a number of letters per second, above 0 and up to {FASTEST:g}.",
            )
        self._rate = rate
        self._next = 0.0

    def page(self, most: int) -> int:
        """Letters that go back at once: those of one second."""
        return most if self._rate is None else max(1, min(most, int(self._rate)))

    def pause(self, letters: int) -> float:
        """Seconds until the turn of so many letters, which are counted as sent then."""
        if self._rate is None:
            return 0.0
        now = monotonic()
        turn = max(now, self._next)
        self._next = turn + letters / self._rate
        return turn - now

    async def turn(self, letters: int) -> None:
        """Wait for the turn of so many letters."""
        if self._rate is not None:
            await asyncio.sleep(self.pause(letters))


class Letters:
    """The dead letters of one organisation. `announce` tells workers that there is something to do again."""

    def __init__(
        self, session: Session, org: str, announce: Callable[[], None], apply: Callable[[Item], Awaitable[Any]]
    ) -> None:
        self._session = session
        self._org = org
        self._announce = announce
        self._apply = apply

    async def page(self, filter: LetterFilter, after: Id | None, limit: int) -> LetterPage:
        """Read a page. It may be short although there are more: only `next` says so."""
        check_page(limit, "dead letters")
        wanted, start = wanted_of(filter), None if after is None else take_id(after)
        instance = None if filter.instance_id is None else take_id(filter.instance_id)
        found, end = await dead_letters.list_dead_letters(self._session, self._org, wanted, instance, start, limit)
        return LetterPage(found, None if end is None else str(UUID(bytes=end)))

    async def full_page(self, filter: LetterFilter, after: Id | None, limit: int) -> list[DeadLetter]:
        """Read pages until `limit` letters are found or there are no more."""
        page = await self.page(filter, after, limit)
        found = page.items
        while page.next is not None and len(found) < limit:
            page = await self.page(filter, page.next, limit - len(found))
            found += page.items
        return found

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
        raw = None if input is None else _new_input(letter, input)
        actor = _actor(by, why)
        if letter.resolved_at is not None:
            raise _settled(letter)
        if letter.source in BY_INSTANCE:
            part = await self._part(letter, raw, why)
            await self._apply(Item(take_id(letter.instance_id), _signal_of([part], why), Actor(actor)))
        elif not await _REPLAYS[letter.source](self._session, self._org, [take_id(letter.id)], actor, why):
            raise stale_letters([take_id(letter.id)])
        self._announce()
        return await self.get(id)

    async def replay(
        self,
        ids: Iterable[Id] | None,
        filter: LetterFilter | None,
        by: str | None,
        why: str | None,
        *,
        inputs: Inputs | None = None,
        dry_run: bool,
        rate: float | None = None,
    ) -> Resolved:
        """Put back many. Those of one instance go back in one commit, steps as well as deliveries. A fault of the
        request as a whole is refused first, and no letter is touched; a fault of one letter is reported for that one.
        """
        actor, pace = _actor(by, why), Pace(rate)
        meant = await self._chosen(ids, filter)
        raws = _new_inputs(meant, inputs or {})
        letters = [letter for letter in meant if letter.resolved_at is None]
        if dry_run:
            return Resolved([letter.id for letter in letters], [], True)
        refused = {letter.id: _settled(letter) for letter in meant if letter.resolved_at is not None}
        decided = [letter for letter in letters if letter.source in BY_INSTANCE]
        refused |= await self._decide_again(decided, raws, actor, why, pace)
        for source, replay in _REPLAYS.items():
            mine = [letter.id for letter in letters if letter.source == source]
            refused |= await self._send_back(mine, replay, actor, why, pace)
        self._announce()
        done = [letter.id for letter in letters if letter.id not in refused]
        left = [letter.id for letter in letters if letter.id in refused]
        return Resolved(done, left, False, {id: _told(refusal) for id, refusal in refused.items()})

    async def _decide_again(
        self, letters: Sequence[DeadLetter], raws: Mapping[str, bytes], actor: str, why: str | None, pace: Pace
    ) -> Refusals:
        """Instances side by side, each on its own: that one of them is refused holds up no other."""
        refused: Refusals = {}
        units: dict[tuple[str, str], list[Part]] = {}
        for letter in sorted(letters, key=_age):  # in the order they failed
            try:
                part = await self._part(letter, raws.get(letter.id), why)
            except Conflict as stale:
                refused[letter.id] = stale
            else:
                units.setdefault((letter.instance_id, letter.source), []).append(part)
        turns = asyncio.Semaphore(AT_ONCE)

        async def put_back(instance: str, parts: list[Part]) -> None:
            async with turns:
                await pace.turn(len(parts))
                refused.update(await self._commit(take_id(instance), parts, Actor(actor), why))

        await asyncio.gather(*(put_back(instance, parts) for (instance, _), parts in units.items()))
        return refused

    async def _commit(self, instance: bytes, parts: list[Part], actor: Actor, why: str | None) -> Refusals:
        """All in one commit, except those that turn out to be settled or stale: the others are tried without them."""
        refused: Refusals = {}
        while parts:
            try:
                await self._apply(Item(instance, _signal_of(parts, why), actor))
                break
            except HoldfastError as refusal:
                named = refusal.detail.get("letters", ())
                culprits = [part for part in parts if _letter_id(part) in named] or parts
                refused |= {_letter_id(part): refusal for part in culprits}
                parts = [part for part in parts if _letter_id(part) not in refused]
        return refused

    async def _part(self, letter: DeadLetter, raw: bytes | None, why: str | None) -> Part:
        """The part of one letter in a commit of its instance: a step or compensation that runs again, or a delivery."""
        if letter.source == DELIVERY:
            told = letter.envelope
            fact, consumer = take_id(told["ack_guid"]), take_id(told["consumer_id"])
            return FailedDelivery(take_id(letter.id), fact, told["at"], consumer)
        instance, step = take_id(letter.instance_id), take_id(letter.envelope["step"])
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
        return Requeue(take_id(letter.id), step, raw, why, undo)

    async def _send_back(
        self, ids: Sequence[str], replay: _Replay, actor: str, why: str | None, pace: Pace
    ) -> Refusals:
        refused: Refusals = {}
        size = pace.page(PAGE)
        for start in range(0, len(ids), size):
            page = ids[start : start + size]
            await pace.turn(len(page))
            try:
                done = set(await replay(self._session, self._org, [take_id(id) for id in page], actor, why))
            except (DatabaseError, Disconnected) as failure:
                refused |= dict.fromkeys(page, StoreError(f"The database refused: {failure}", code="STORE_REFUSED"))
            else:
                refused |= {id: stale_letters([take_id(id)]) for id in page if id not in done}
        return refused

    async def discard(
        self, ids: Iterable[Id] | None, filter: LetterFilter | None, by: str | None, why: str | None, *, dry_run: bool
    ) -> Resolved:
        actor = _actor(by, why)
        meant = [letter.id for letter in await self._chosen(ids, filter) if letter.resolved_at is None]
        if dry_run:
            return Resolved(meant, [], True)
        done: list[str] = []
        for start in range(0, len(meant), PAGE):
            page = [take_id(id) for id in meant[start : start + PAGE]]
            done += await dead_letters.discard(self._session, self._org, page, actor, why)
        is_done = set(done)
        return Resolved(done, [id for id in meant if id not in is_done], False)

    async def _chosen(self, ids: Iterable[Id] | None, filter: LetterFilter | None) -> list[DeadLetter]:
        """The chosen letters, by id or by filter; a filter selects the letters open now, page by page."""
        if (ids is None) == (filter is None):
            raise Refused(
                "Dead letters are named by their ids or by a filter.",
                code="DEAD_LETTERS_NOT_NAMED",
                hint="Pass `ids`, or `filter=LetterFilter(...)`; an empty filter means every open one.",
            )
        if filter is None:
            return [await self.get(id) for id in dict.fromkeys(UUID(bytes=take_id(id)) for id in ids or ())]
        page = await self.page(filter, None, PAGE)
        found = page.items
        while page.next is not None:
            page = await self.page(filter, page.next, PAGE)
            found += page.items
        return found


def wanted_of(filter: LetterFilter) -> dead_letters.Wanted:
    check_text(filter.with_reason, "reason of the dead letters")
    check_text(filter.source, "source of the dead letters")
    check_text(filter.flow, "name of the flow")
    check_text(filter.step, "name of the step")
    check_text(filter.error, "code of the error")
    check_text(filter.consumer, "name of the consumer")
    check_text(filter.environment, "environment")
    since = take_utc(filter.since, "since")
    return dead_letters.Wanted(
        filter.with_reason, filter.source, filter.flow, filter.step, filter.error, since, filter.consumer,
        filter.environment,
    )  # fmt: skip


async def _replay_effects(session: Session, org: str, ids: Sequence[bytes], by: str, why: str | None) -> list[str]:
    return [str(UUID(bytes=id)) for id, _ in await replay_effects(session, org, ids, by, why)]


_Replay = Callable[[Session, str, Sequence[bytes], str, str | None], Awaitable[list[str]]]
_REPLAYS: Final[dict[str, _Replay]] = {
    "signal": dead_letters.replay_signals,
    "work": dead_letters.replay_work,
    "effect": _replay_effects,
}


RUN_AGAIN: Final = frozenset({"step", "compensation"})  # their steps get a new row, under a new input if one is given
DELIVERY: Final = "ack"  # of a fact to a consumer
BY_INSTANCE: Final = RUN_AGAIN | {DELIVERY}  # what a commit of the instance puts back


def _new_inputs(letters: Sequence[DeadLetter], inputs: Inputs) -> dict[str, bytes]:
    """New inputs by the letter's id. None counts as no input: the step gets the one it had."""
    given = {str(UUID(bytes=take_id(id))): input for id, input in inputs.items()}
    strangers = given.keys() - {letter.id for letter in letters}
    if strangers:
        raise Refused(
            f"There is an input for {min(strangers)}, which is none of the dead letters that are meant.",
            code="DEAD_LETTER_INPUT",
            hint="Name the letter among the others, or leave its input out.",
        )
    wanted = [(letter, given[letter.id]) for letter in letters if given.get(letter.id) is not None]
    return {letter.id: _new_input(letter, input) for letter, input in wanted}


def _new_input(letter: DeadLetter, input: Any) -> bytes:
    if letter.source not in RUN_AGAIN:
        raise Refused(
            f"A dead letter of source {letter.source!r} goes back as it is: it takes no other input.",
            code="DEAD_LETTER_INPUT",
            hint="Leave `input` out, or discard the letter and send what should be sent.",
        )
    return take_payload(input, "the new input", f"{letter.envelope['node']!r}")


def _actor(by: str | None, why: str | None) -> str:
    check_text(by, "actor")
    check_text(why, "reason")
    return by or "system"


def _age(letter: DeadLetter) -> tuple[datetime, str]:
    return letter.created_at, letter.id


def _signal_of(parts: Sequence[Part], why: str | None) -> Signal:
    steps = tuple(part for part in parts if isinstance(part, Requeue))
    if not steps:
        return RequeueDeliveries(tuple(part for part in parts if isinstance(part, FailedDelivery)), why)
    return steps[0] if len(steps) == 1 else RequeueMany(steps)


def _letter_id(part: Part) -> str:
    return str(UUID(bytes=part.letter))


def _told(refusal: HoldfastError) -> Refusal:
    return Refusal(refusal.code, refusal.message, refusal.hint)


def _settled(letter: DeadLetter) -> HoldfastError:
    return Conflict(
        f"The dead letter was {letter.resolution} by {letter.resolved_by}.",
        code="DEAD_LETTER_RESOLVED",
        hint="What failed again has a new dead letter.",
    )
