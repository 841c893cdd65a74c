"""Instances and dead letters are found by what operators know: the error, its step, the reason, start and end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Context, DoNotRetry, Engine, Flow, InstanceFilter, LetterFilter
from holdfast.errors import Refused
from holdfast.store import dead_letters
from holdfast.store.reads import search

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


class Declined(DoNotRetry):
    code = "DECLINED"


async def fail(ctx: Context, data: Any) -> Any:
    raise {"card": Declined("no"), "stock": KeyError("none left")}[data["cause"]]


async def pass_on(ctx: Context, data: Any) -> Any:
    return data


async def shop(engine: Engine) -> dict[str, str]:
    """Ids by what became of the order: charged and failed twice over, shipped, waiting, paused, dead."""
    order = Flow("order").step("reserve", pass_on).step("charge", fail)
    await engine.publish(order.build())
    await engine.publish(Flow("fine").step("reserve", pass_on).build())
    await engine.publish(Flow("slow").step("reserve", pass_on).wait_event("arrival", "arrived").build())
    await engine.publish(Flow("mended", dlq=True).step("weigh", fail).build())
    started = {
        "card": await engine.start("order", {"cause": "card"}),
        "stock": await engine.start("order", {"cause": "stock"}),
        "fine": await engine.start("fine", {}),
        "waiting": await engine.start("slow", {}),
        "paused": await engine.start("slow", {}),
        "dead": await engine.start("mended", {"cause": "card"}),
        "worse": await engine.start("mended", {"cause": "stock"}),
    }
    await engine.drain(timeout=30)
    await engine.suspend(started["paused"].id, by="ann", reason="audit")
    return {name: instance.id for name, instance in started.items()}


async def test_instances_are_found_by_error_step_reason_start_and_end(engine: Engine) -> None:
    ids = await shop(engine)
    names = {id: name for name, id in ids.items()}
    now = datetime.now(UTC)

    async def found(**wishes: Any) -> set[str]:
        page = await engine.find(InstanceFilter(**wishes))
        assert page.next is None
        assert page.items == (await engine.list(**wishes)).items
        return {names[instance.id] for instance in page.items}

    assert await found(error="DECLINED") == {"card", "dead"}
    assert await found(error="DECLINED", flow="order") == {"card"}
    assert await found(error="DECLINED", until=now - HOUR) == set()
    assert await found(error="KeyError", status="failed") == {"stock"}
    assert await found(error="NOTHING") == set()
    assert await found(step="charge") == {"card", "stock"}
    assert await found(step="arrival") == {"waiting", "paused"}
    assert await found(step="arrival", status="running") == {"waiting"}
    assert await found(step="weigh", error="DECLINED") == {"dead"}
    assert await found(with_reason="audit") == {"paused"}
    assert await found(with_reason="DECLINED", status="failed") == {"card"}
    assert await found(status="failed", flow="order") == {"card", "stock"}
    assert await found(status="failed", ended_since=now - HOUR) == {"card", "stock"}
    assert await found(status="failed", ended_since=now + HOUR) == set()
    assert await found(status="failed", ended_until=now - HOUR) == set()
    assert await found(status="failed", since=now - HOUR, until=now + HOUR) == {"card", "stock"}
    assert await found(flow="fine", ended_since=now - HOUR) == {"fine"}
    assert await found(flow="slow", ended_since=now - HOUR) == set()
    assert await found(until=now - HOUR) == set()
    assert await found(since=now - HOUR, until=now + HOUR) == set(ids)
    assert await found(status="completed", until=now + HOUR) == {"fine"}
    assert await found(status="suspended", since=now.replace(tzinfo=None) - HOUR) == {"paused"}


async def test_a_search_that_no_index_leads_through_is_refused(engine: Engine) -> None:
    async def refused(**wishes: Any) -> str:
        with pytest.raises(Refused) as refusal:
            await engine.list(**wishes)
        return refusal.value.code

    now = datetime.now(UTC)
    assert await refused(ended_since=now) == "SEARCH_TOO_WIDE"
    assert await refused(ended_since=now, status="completed") == "SEARCH_TOO_WIDE"
    assert await refused(step="charge", status="completed") == "SEARCH_TOO_WIDE"
    assert await refused(step="charge", key="k") == "SEARCH_TOO_WIDE"
    assert await refused(error="") == "TEXT_INVALID"
    assert await refused(ended_until="yesterday") == "MOMENT_INVALID"


async def test_pages_of_a_search_hold_each_instance_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a page looks at fewer instances than there are, and comes back short or empty."""
    await engine.publish(Flow("order").step("charge", fail).build())
    causes = ["card", *["stock"] * 5] * 3
    ids = [(await engine.start("order", {"cause": cause})).id for cause in causes]
    await engine.drain(timeout=30)
    monkeypatch.setattr(search, "WINDOW", 4)
    monkeypatch.setattr(search, "WINDOWS", 1)
    declined = {id for id, cause in zip(ids, causes, strict=True) if cause == "card"}
    for wishes in (
        {"status": "failed", "with_reason": "DECLINED"},
        {"status": "failed", "with_reason": "DECLINED", "ended_since": datetime.now(UTC) - HOUR},
        {"error": "DECLINED", "step": "charge"},
        {"flow": "order", "error": "DECLINED"},
    ):
        found, after, pages = list[str](), None, 0
        while pages == 0 or after is not None:
            page = await engine.list(**wishes, after=after, limit=2)
            found += [instance.id for instance in page.items]
            after, pages = page.next, pages + 1
        assert (len(found), set(found)) == (3, declined)


async def test_dead_letters_name_their_flow_and_step_and_are_found_by_them(engine: Engine) -> None:
    ids = await shop(engine)
    letters = {letter.instance_id: letter for letter in await engine.dead_letters()}
    dead = letters[ids["dead"]]
    assert (dead.flow, dead.step, dead.error["code"]) == ("mended", "weigh", "DECLINED")

    async def found(**wishes: Any) -> set[str]:
        page = await engine.find_dead_letters(LetterFilter(**wishes))
        assert (page.next, page.items) == (None, await engine.dead_letters(**wishes))
        return {name for name, id in ids.items() if id in {letter.instance_id for letter in page.items}}

    now = datetime.now(UTC)
    assert await found(flow="mended") == {"dead", "worse"}
    assert await found(flow="order") == set()
    assert await found(step="weigh", error="DECLINED") == {"dead"}
    assert await found(error="KeyError") == {"worse"}
    assert await found(step="charge") == set()
    assert await found(since=now - HOUR) == {"dead", "worse"}
    assert await found(flow="mended", since=now + HOUR) == set()
    assert await found(with_reason=dead.reason, source="step", flow="mended") == {"dead", "worse"}
    await engine.discard_dead_letters(filter=LetterFilter(error="KeyError"), by="ann")
    assert await found(flow="mended", error="DECLINED") == {"dead"}


async def test_letters_are_looked_for_in_windows(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    await engine.publish(Flow("mended", dlq=True).step("weigh", fail).build())
    causes = ["card", *["stock"] * 5] * 3
    for cause in causes:
        await engine.start("mended", {"cause": cause})
    await engine.drain(timeout=30)
    monkeypatch.setattr(dead_letters, "WINDOW", 4)
    monkeypatch.setattr(dead_letters, "WINDOWS", 1)
    for filter in (LetterFilter(step="nowhere"), LetterFilter(flow="mended", step="nowhere")):
        page = await engine.find_dead_letters(filter, limit=2)
        assert (page.items, page.next is None) == ([], False)
    assert len(await engine.dead_letters(flow="mended", error="DECLINED", limit=2)) == 2
    every = await engine.replay_dead_letters(filter=LetterFilter(flow="mended", error="KeyError"), dry_run=True)
    assert every.count == 15
