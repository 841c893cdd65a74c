"""The effects of all instances in one list: newest first, page by page, at the cost of a page."""

from __future__ import annotations

from typing import Any

import pytest
from effect_flows import flow

from holdfast import DoNotRetry, Engine
from holdfast.errors import HoldfastError, NotFound
from holdfast.store import effects

pytestmark = pytest.mark.anyio


async def emit(engine: Engine, kind: str, name: str | None = None) -> str:
    """The id of the effect of a new instance."""
    graph = flow(kind, name=name or kind)
    await engine.publish(graph)
    instance = await engine.start(graph.name, {"order": 17})
    await engine.drain(timeout=30)
    [effect] = await engine.effects(instance.id)
    return effect.id


async def walked(engine: Engine, limit: int, **filters: Any) -> tuple[list[str], list[int]]:
    """What all pages hold together, and how many each of them."""
    found: list[str] = []
    sizes: list[int] = []
    after: str | None = None
    while not sizes or after is not None:
        page = await engine.list_effects(after=after, limit=limit, **filters)
        found += [effect.id for effect in page.items]
        sizes.append(len(page.items))
        after = page.next
    return found, sizes


def down(ctx: Any, data: Any) -> Any:
    raise DoNotRetry("Nobody listens.")


async def test_what_was_not_delivered_is_listed_newest_first(engine: Engine) -> None:
    engine.register_effect("dead", down)
    engine.register_effect("heard", lambda ctx, data: None)
    made = {name: await emit(engine, kind) for name, kind in (("1", "dead"), ("2", "unserved"), ("3", "heard"))}
    made |= {"4": await emit(engine, "dead"), "5": await emit(engine, "unserved")}
    for filters, names in (
        ({}, "5421"),
        ({"status": "pending"}, "52"),
        ({"status": "dead_letter"}, "41"),
        ({"status": "completed"}, "3"),
        ({"status": "failed"}, ""),
        ({"kind": "dead"}, "41"),
        ({"kind": "heard"}, ""),
        ({"kind": "heard", "status": "completed"}, "3"),
        ({"flow": "dead"}, "41"),
        ({"flow": "dead", "kind": "unserved"}, ""),
        ({"flow": "heard", "status": "completed"}, "3"),
        ({"flow": "nothing"}, ""),
    ):
        expected = [made[name] for name in names]
        for limit in (1, 2, 50):
            found, sizes = await walked(engine, limit, **filters)
            assert (found, max(sizes)) == (expected, min(limit, len(names))), (filters, limit)


async def test_what_fits_is_looked_for_in_a_window(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "WINDOW", 3)
    rare = await emit(engine, "rare")
    many = [await emit(engine, "common") for _ in range(4)]
    assert await walked(engine, 2, kind="rare") == await walked(engine, 2, flow="rare") == ([rare], [0, 1])
    assert (await walked(engine, 2, kind="common"))[0] == many[::-1]
    assert await walked(engine, 2) == ([*many[::-1], rare], [2, 2, 1])


async def test_one_effect_is_found_in_every_status(engine: Engine) -> None:
    engine.register_effect("dead", down)
    engine.register_effect("heard", lambda ctx, data: None)
    for kind, status in (("dead", "dead_letter"), ("heard", "completed"), ("unserved", "pending")):
        id = await emit(engine, kind)
        found = await engine.get_effect(id)
        assert (found.id, found.status, found.kind, found.data) == (id, status, kind, {"order": 17})
        assert [found] == await engine.effects(found.instance_id)


async def test_an_organisation_has_its_own(engine: Engine) -> None:
    id = await emit(engine, "unserved")
    other = engine.for_org("other")
    assert (await other.list_effects()).items == []
    for wanted, view in ((id, other), ("00000000-0000-7000-8000-000000000000", engine)):
        with pytest.raises(NotFound) as refusal:
            await view.get_effect(wanted)
        assert refusal.value.code == "EFFECT_UNKNOWN"


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ({"status": "lost"}, "STATUS_UNKNOWN"),
        ({"kind": "a\0b"}, "TEXT_INVALID"),
        ({"flow": "a\0b"}, "TEXT_INVALID"),
        ({"limit": 0}, "LIMIT_INVALID"),
        ({"limit": 1001}, "LIMIT_INVALID"),
        ({"after": "x"}, "ID_INVALID"),
    ],
)
async def test_what_makes_no_sense_is_refused(engine: Engine, filters: dict[str, Any], code: str) -> None:
    with pytest.raises(HoldfastError) as refusal:
        await engine.list_effects(**filters)
    assert refusal.value.code == code


async def test_dead_letters_of_effects_come_newest_first(engine: Engine) -> None:
    engine.register_effect("dead", down)
    made = [await emit(engine, "dead") for _ in range(4)]
    assert [letter.id for letter in await engine.dead_letters(source="effect")] == made[::-1]
