"""Lists of workflows: by what is known of them, page by page, and only what one may see."""

from __future__ import annotations

from typing import Any

import pytest
from steps_graphs import approval

from holdfast import Context, Engine, Flow
from holdfast.errors import Refused
from holdfast.store.reads import search

pytestmark = pytest.mark.anyio

EXECUTE = "orders:approve:execute"


@pytest.fixture
async def orders(engine: Engine) -> Engine:
    @engine.handler("process")
    async def process(ctx: Context, data: Any) -> Any:
        return None

    engine.register("notify", process)
    await engine.publish(approval())
    await engine.publish(approval("refunds.approval"))
    await engine.publish(Flow("plain").step("notify", "notify").build())
    return engine


async def begin(engine: Engine, name: str = "orders.approval", by: str = "alice", **options: Any) -> str:
    return (await engine.start(name, {"order_id": "o"}, by=by, **options)).id


async def listed(engine: Engine, **filters: Any) -> list[str]:
    """All pages, two at a time."""
    found: list[str] = []
    after: str | None = None
    while True:
        page = await engine.describe_list(after=after, limit=2, **filters)
        assert len(page.items) <= 2
        found += [item.id for item in page.items]
        if page.next is None:
            return found
        after = page.next


async def test_a_summary_says_what_is_needed_to_pick_one(orders: Engine) -> None:
    id = await begin(orders, business_key="b-1")
    await orders.drain()
    [found] = (await orders.describe_list(status="active")).items
    assert (found.id, found.workflow.name, found.status) == (id, "Order approval", "active")
    assert (found.current_step, found.current_step_name) == ("review", "Review the order")
    assert (found.subject_id, found.business_key, found.version) == ("alice", "b-1", 1)
    assert found.expires_at is not None


async def test_filters_and_pages(orders: Engine) -> None:
    mine = [await begin(orders) for _ in range(5)]
    refunds = [await begin(orders, "refunds.approval", business_key="b") for _ in range(3)]
    others = [await begin(orders, by="bob", attributes={"customer": "c1"}) for _ in range(3)]
    plain = [(await orders.start("plain", {})).id]
    await orders.drain()
    await orders.cancel(mine[0])
    await orders.abort(mine[1])
    await orders.suspend(mine[2])
    await orders.force_fail(mine[3])
    everything = [*mine, *refunds, *others, *plain]

    async def check(expected: list[str], **filters: Any) -> None:
        found = await listed(orders, **filters)
        assert sorted(found) == sorted(expected), filters
        assert [id[:13] for id in found] == sorted((id[:13] for id in expected), reverse=True), "newest first"

    await check(everything)
    await check([mine[4], *refunds, *others], status="active")
    await check(mine[:2], status="cancelled")
    await check([mine[2]], status="suspended")
    await check([mine[3]], status="failed")
    await check(plain, status="completed")
    await check(refunds, workflow_id="refunds.approval")
    await check([mine[4], *others], workflow_id="orders.approval", status="active")
    await check([*mine, *refunds], subject_id="alice")
    await check(others, subject_id="bob", status="active")
    await check([], subject_id="bob", status="failed")
    await check(refunds, business_key="b")
    await check([], business_key="b", subject_id="bob")
    await check(others, attributes={"customer": "c1"})
    await check(others, attributes={"customer": "c1"}, subject_id="bob", workflow_id="orders.approval")
    assert await listed(orders.for_org("rival")) == []
    page = await orders.list(subject_id="bob", limit=2)
    rest = await orders.list(subject_id="bob", limit=2, after=page.next)
    assert [one.id for one in [*page.items, *rest.items]] == sorted(others, reverse=True)
    assert (len(page.items), rest.next) == (2, None)


@pytest.mark.parametrize(
    ("stored", "asked", "is_found"),
    [
        ("c1", "c1", True),
        ("c1", "C1", False),
        ("5", 5, False),
        (5, 5.0, True),
        (1e22, 10**22, True),
        (0.1, 0.1, True),
        (True, True, True),
        (True, 1, False),
        ('quo"te\n\u00e9', 'quo"te\n\u00e9', True),
        ("", "", True),
    ],
)
async def test_attributes_are_compared_as_values(orders: Engine, stored: Any, asked: Any, is_found: bool) -> None:
    id = await begin(orders, attributes={"it": stored, "list": [1], "none": None, "long": "x" * 5000})
    assert await listed(orders, attributes={"it": asked}) == ([id] if is_found else [])
    assert [one.id for one in (await orders.list(attributes={"it": asked})).items] == ([id] if is_found else [])


async def test_several_attributes_must_all_fit(orders: Engine) -> None:
    async with orders.worker():
        ids = [await begin(orders, attributes={"a": n % 2, "b": n % 3}) for n in range(12)]
    assert await listed(orders, attributes={"a": 1, "b": 2}) == [ids[11], ids[5]]


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, "x" * 501, float("nan")])
async def test_what_cannot_be_searched_for_is_refused(orders: Engine, value: Any) -> None:
    for listing in (orders.list(attributes={"a": value}), orders.describe_list(attributes={"a": value})):
        with pytest.raises(Refused) as refusal:
            await listing
        assert refusal.value.code == "ATTRIBUTE_INVALID"


async def test_a_search_for_the_rare_looks_at_a_bounded_number(orders: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    rare = await begin(orders, attributes={"kind": "common", "rare": True})
    for _ in range(20):
        await begin(orders, attributes={"kind": "common", "rare": False})
    monkeypatch.setattr(search, "WINDOW", 3)
    page = await orders.list(attributes={"kind": "common", "rare": True}, limit=1)
    assert page.items == []
    assert page.next is not None
    assert await listed(orders, attributes={"kind": "common", "rare": True}) == [rare]


async def test_only_what_one_may_see_is_listed(orders: Engine) -> None:
    theirs = await begin(orders)
    await orders.drain()

    async def seen(by: str, capabilities: Any = (), roles: Any = ()) -> list[str]:
        return await listed(orders, by=by, capabilities=capabilities, roles=roles)

    assert await seen("alice") == [theirs]
    assert await seen("bob", [EXECUTE]) == [theirs]
    assert await seen("bob", [], ["approver"]) == [theirs]
    assert await seen("eve", ["other"], ["clerk"]) == []
    [task] = await orders.tasks(theirs)
    await orders.assign(task.id, to="eve", by="boss")
    assert await seen("eve") == [theirs]
    assert await seen("bob", [], ["approver"]) == []


async def test_filters_are_checked(orders: Engine) -> None:
    for filters, code in (
        ({"status": "running"}, "STATUS_UNKNOWN"),
        ({"limit": 0}, "LIMIT_INVALID"),
        ({"subject_id": "nul\0"}, "TEXT_INVALID"),
        ({"attributes": {"": 1}}, "TEXT_INVALID"),
    ):
        with pytest.raises(Refused) as refusal:
            await orders.describe_list(**filters)  # type: ignore[arg-type]
        assert refusal.value.code == code
