"""Starts that share a commit: one bad one fails alone, one key is one instance, also within a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from holdfast import Engine, Flow
from holdfast.core.model.ids import bucket_of
from holdfast.errors import Conflict, StoreError
from holdfast.runtime.commit.starter import Start, Starter
from holdfast.store.pg.session import Disconnected, Session
from holdfast.store.reads.instances import Instance
from running import Evidence

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shop(engine: Engine) -> Engine:
    await engine.publish(Flow("order").step("step", "nobody").build())
    return engine


async def test_one_key_is_one_instance_within_a_batch_too(shop: Engine, evidence: Evidence) -> None:
    started = await asyncio.gather(*(shop.start("order", {"n": 1}, key="same") for _ in range(50)))
    assert len({i.id for i in started}) == 1
    many = await shop.start_many("order", [{"n": 1}] * 3, keys=["same", "new", "new"])
    assert [i.id == started[0].id for i in many] == [True, False, False]
    assert many[1].id == many[2].id
    assert evidence.ask("select count(*) from holdfast.instances") == 2
    assert evidence.ask("select count(*) from holdfast.signals") == 2


async def test_ids_of_one_call_ascend_in_the_order_of_its_inputs(shop: Engine) -> None:
    keys = [f"key-{n}" for n in range(300)]
    for started in (
        await shop.start_many("order", [{"n": n} for n in range(600)]),
        await shop.start_many("order", [{"n": n} for n in range(300)], keys=keys),
    ):
        ids = [UUID(instance.id) for instance in started]
        assert ids == sorted(ids)
        assert {(id.version, id.variant) for id in ids} == {(7, RFC_4122)}
        assert [instance.input["n"] for instance in started] == list(range(len(started)))
    assert [UUID(i.id).bytes[15] for i in started] == [bucket_of("default", key) for key in keys]


async def test_a_conflict_fails_alone(shop: Engine, evidence: Evidence) -> None:
    await shop.start("order", {"n": 0}, key="taken")
    answers = await asyncio.gather(
        *(shop.start("order", {"n": n}, key="taken" if n == 5 else f"k{n}") for n in range(20)), return_exceptions=True
    )
    refused = [a for a in answers if isinstance(a, BaseException)]
    assert [type(a) for a in refused] == [Conflict]
    assert evidence.ask("select count(*) from holdfast.instances") == 20


async def test_a_start_the_database_refuses_fails_alone(shop: Engine, evidence: Evidence) -> None:
    evidence.connection.execute("alter table holdfast.instances add check (input->>'poison' is null) not valid")
    answers = await asyncio.gather(
        *(shop.start("order", {"poison": 1} if n == 5 else {}, key=f"k{n}") for n in range(20)), return_exceptions=True
    )
    [refusal] = [a for a in answers if isinstance(a, BaseException)]
    assert isinstance(refusal, StoreError)
    assert (refusal.code, refusal.detail["sqlstate"]) == ("STORE_REFUSED", "23514")
    assert "holdfast doctor" in refusal.hint
    assert evidence.ask("select count(*) from holdfast.instances") == 19


async def test_beside_a_conflict_a_key_still_answers_what_its_instance_is(shop: Engine, evidence: Evidence) -> None:
    """The batch is stored around the conflict, and nobody is shown a start where somebody else's is over already."""
    done = await shop.start("order", {"n": 1}, key="a")
    await shop.abort(done.id)
    await shop.start("order", {"n": 0}, key="b")
    wishes = {"a": 1, "b": 1, "c": 1}  # in the order the keys are stored: the conflict comes after what was found
    found, conflict, new = await asyncio.gather(
        *(shop.start("order", {"n": n}, key=key) for key, n in wishes.items()), return_exceptions=True
    )
    assert isinstance(conflict, Conflict)
    assert isinstance(found, Instance)
    assert isinstance(new, Instance)
    assert (found.id, found.status) == (done.id, "aborted")
    assert (new.status, evidence.ask("select count(*) from holdfast.instances")) == ("pending", 3)


@pytest.mark.parametrize("key", ["mine", None])
async def test_a_start_whose_answer_was_lost_shows_how_far_it_has_come(
    shop: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    lost: list[str] = []
    insert: Any = vars(Starter)["_insert"]

    async def unanswered(starter: Starter, session: Session, starts: Sequence[Start], *how: Any, **more: Any) -> Any:
        failures = await insert(starter, session, starts, *how, **more)
        if not lost:
            lost.append(str(UUID(bytes=starts[0].id)))
            await shop.abort(lost[0])  # somebody has seen it before its caller has
            raise Disconnected("no answer")
        return failures

    monkeypatch.setattr(Starter, "_insert", unanswered)
    started = await shop.start("order", {"n": 1}, key=key)
    assert [(started.id, started.status)] == [(lost[0], "aborted")]
    assert evidence.ask("select count(*) from holdfast.instances") == 1


async def test_a_server_that_is_away_is_asked_once_for_all_that_share_a_commit(
    shop: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each caller on its own, one after the other, would wait for all who came before."""
    await shop.start("order")  # the definition is known
    asked: list[str] = []

    async def nobody_there(dsn: str) -> Session:
        asked.append(dsn)
        raise StoreError("No connection to PostgreSQL.", code="STORE_UNREACHABLE")

    starter = Starter(shop.dsn)
    monkeypatch.setattr(Session, "open", nobody_there)
    monkeypatch.setattr(shop, "_starter", starter)
    answers = await asyncio.gather(*(shop.start("order", key=f"k{n}") for n in range(50)), return_exceptions=True)
    assert {getattr(answer, "code", None) for answer in answers} == {"STORE_UNREACHABLE"}
    assert len(asked) == 1


async def test_who_is_to_blame_is_found_by_halves(
    shop: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence.connection.execute("alter table holdfast.instances add check (input->>'poison' is null) not valid")
    await shop.start("order")
    sizes: list[int] = []
    insert: Any = vars(Starter)["_insert"]

    async def counted(starter: Starter, session: Session, starts: Sequence[Start], *how: Any, **more: Any) -> Any:
        sizes.append(len(starts))
        return await insert(starter, session, starts, *how, **more)

    monkeypatch.setattr(Starter, "_insert", counted)
    answers = await asyncio.gather(
        *(shop.start("order", {"poison": 1} if n == 5 else {}) for n in range(64)), return_exceptions=True
    )
    assert [n for n, answer in enumerate(answers) if isinstance(answer, StoreError)] == [5]
    assert len(sizes) == 13  # once for all, then two halves at each of six levels


async def test_a_conflict_in_start_many_stores_nothing(shop: Engine, evidence: Evidence) -> None:
    await shop.start("order", {"n": 0}, key="taken")
    with pytest.raises(Conflict):
        await shop.start_many("order", [{"n": 1}, {"n": 2}], keys=["free", "taken"])
    assert evidence.ask("select count(*) from holdfast.instances") == 1


@pytest.mark.parametrize("first_alone", [False, True], ids=["all at once", "one ahead of the others"])
async def test_callers_that_start_again_and_again_keep_two_commits_going(
    shop: Engine, monkeypatch: pytest.MonkeyPatch, first_alone: bool
) -> None:
    """One half is written while the other half makes its next starts; all in step they would wait for each other.
    A commit takes so many turns of the loop here, not a time: what is measured is who is let go when."""
    under_way: list[int] = []
    seen: list[tuple[int, int]] = []  # starts in a commit, commits beside it

    async def slow(
        starter: Starter, session: Session, starts: Sequence[Start], whole: bool, *, is_first: bool
    ) -> dict[bytes, Exception]:
        seen.append((len(starts), len(under_way)))
        under_way.append(len(starts))
        for _ in range(20):
            await asyncio.sleep(0)
        under_way.remove(len(starts))
        return {}

    async def callers(total: int) -> None:
        left = iter(range(total))

        async def call(number: int) -> None:
            if first_alone and number:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            for n in left:
                await shop.start("order", {"n": n})

        await asyncio.gather(*(call(number) for number in range(32)))

    await callers(320)  # the definition is read and both sessions are open
    monkeypatch.setattr(Starter, "_insert", slow)
    await callers(640)
    assert sum(size for size, _ in seen) == 640
    settled = seen[4:-2]
    assert len(settled) > 20
    assert all(10 <= size <= 22 and beside == 1 for size, beside in settled), seen


async def test_organisations_have_keys_of_their_own(shop: Engine) -> None:
    async with Engine(shop.dsn, org="acme") as acme:
        await acme.publish(Flow("order").step("step", "nobody").build())
        mine, theirs = await shop.start("order", key="k"), await acme.start("order", {"other": 1}, key="k")
    assert mine.id != theirs.id
