"""Callers that change one thing: first come, first served, until the time is up."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import Busy
from holdfast.runtime.races import Races

pytestmark = pytest.mark.anyio
BUSY = Busy("Try again.", code="TASK_BUSY")


async def test_callers_of_one_process_take_turns_in_the_order_they_came() -> None:
    races, done, inside = Races(60.0), list[int](), 0

    async def change(caller: int) -> None:
        tries = 0

        async def attempt() -> int | None:
            nonlocal tries, inside
            inside, tries = inside + 1, tries + 1
            assert inside == 1, "nobody races against a neighbour"
            await asyncio.sleep(0)
            inside -= 1
            return caller if tries == 3 else None

        done.append(await races.settle("one", attempt, BUSY))

    await asyncio.gather(*map(change, range(20)))
    assert done == list(range(20)), "whoever is overtaken keeps the turn"


async def test_who_changes_something_else_does_not_wait() -> None:
    races, gate = Races(60.0), asyncio.Event()

    async def held() -> str:
        await gate.wait()
        return "held"

    async def free() -> str:
        gate.set()
        return "free"

    answers = await asyncio.gather(races.settle("one", held, BUSY), races.settle("other", free, BUSY))
    assert answers == ["held", "free"]


async def test_whoever_is_overtaken_all_the_while_is_told() -> None:
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1

    with pytest.raises(Busy) as told:
        await Races(0.05).settle("one", attempt, BUSY)
    assert (told.value.code, tries > 1) == ("TASK_BUSY", True)


async def test_whoever_waits_too_long_for_a_turn_is_told_and_has_tried_nothing() -> None:
    races, gate, tried = Races(0.02), asyncio.Event(), list[str]()

    async def held() -> str:
        await gate.wait()
        return "held"

    async def late() -> str:
        tried.append("late")
        return "late"

    first = asyncio.create_task(races.settle("one", held, BUSY))
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await races.settle("one", late, BUSY)
    gate.set()
    assert (await first, tried) == ("held", []), "a try that is under way is not cut off"


@pytest.mark.parametrize("ending", [ValueError, asyncio.CancelledError])
async def test_a_turn_ends_however_the_try_does(ending: type[BaseException]) -> None:
    races = Races(60.0)

    async def attempt() -> None:
        raise ending

    async def works() -> str:
        return "done"

    with pytest.raises(ending):
        await races.settle("one", attempt, BUSY)
    assert await races.settle("one", works, BUSY) == "done"
    assert not vars(races)["_queues"], "nothing is kept of what nobody changes"


async def test_without_patience_one_try_is_made() -> None:
    async def works() -> str:
        return "done"

    assert await Races(0.0).settle("one", works, BUSY) == "done"
