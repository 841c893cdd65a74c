"""/api/v1/effects: what was sent to the outside world, over all instances that one may see."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from api_flows import get, operator, post, publish_flows, start
from http_server import Served

from holdfast import DoNotRetry, Engine
from running import until

pytestmark = pytest.mark.anyio

TELLING: dict[str, Any] = {
    "name": "telling",
    "entry": "tell",
    "nodes": [{"id": "tell", "kind": "effect", "handler": "tell", "retry": {"calls": 1}}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "told", "source": "tell", "target": "end"}],
}
# The same, for those who may see it only, and as a kind that nobody delivers.
HIDDEN: dict[str, Any] = {
    **TELLING,
    "name": "hidden",
    "policy": {"capabilities": ["hidden:see"]},
    "nodes": [{"id": "tell", "kind": "effect", "handler": "whisper"}, {"id": "end", "kind": "end"}],
}


@pytest.fixture
async def flows(server: Served, engine: Engine) -> Served:
    await publish_flows(server.engine)
    for org in ("acme", "other"):
        for flow in (TELLING, HIDDEN):
            await server.engine.for_org(org).publish(flow)
    return server


def nobody_listens(ctx: Any, data: Any) -> Any:
    raise DoNotRetry("Nobody listens.")


async def ids(client: Any, **filters: Any) -> list[str]:
    return [one["id"] for one in (await get(client, "effects", **filters))["items"]]


async def emitted(flows: Served, flow: str = "telling") -> str:
    """The id of the effect of a new instance, which sam has started."""
    id = (await start(await flows.person("sam", "hidden:see"), flow, input={"n": 7}))["id"]
    await flows.engine.drain()
    [effect] = (await get(await operator(flows), f"instances/{id}/effects"))["items"]
    return effect["id"]


async def test_a_list_has_what_was_not_delivered_newest_first(flows: Served) -> None:
    listening: list[bool] = []
    flows.engine.register_effect("tell", lambda ctx, data: None if listening else nobody_listens(ctx, data))
    client = await operator(flows)
    dead = [await emitted(flows) for _ in range(3)]
    waiting = await emitted(flows, "hidden")
    listening.append(True)
    done = await emitted(flows)
    assert await ids(client) == [waiting, *reversed(dead)]
    assert await ids(client, status="completed") == [done]
    assert await ids(client, status="dead_letter") == dead[::-1]
    assert await ids(client, kind="whisper") == [waiting]
    assert await ids(client, kind="tell") == dead[::-1]
    assert await ids(client, flow="hidden") == [waiting]
    assert await ids(client, kind="nothing") == await ids(client, flow="nothing") == []
    assert (await get(client, "effects", 422, status="lost"))["code"] == "REQUEST_INVALID"


async def test_pages_follow_one_another_by_cursor_or_by_the_last_effect(flows: Served) -> None:
    client = await operator(flows)
    expected = [await emitted(flows, "hidden") for _ in range(5)][::-1]
    page = await get(client, "effects", limit=2)
    found = [one["id"] for one in page["items"]]
    assert await ids(client, after=found[-1]) == expected[2:]
    while page["next"] is not None:
        page = await get(client, "effects", limit=2, cursor=page["next"])
        found += [one["id"] for one in page["items"]]
    assert found == expected
    cursor = (await get(client, "effects", limit=2))["next"]
    assert (await get(client, "effects", 422, cursor=cursor, kind="whisper"))["code"] == "CURSOR_INVALID"
    assert (await get(client, "effects", 422, cursor=cursor, after=found[0]))["code"] == "FILTER_INVALID"


async def test_those_of_one_instance_have_pages_oldest_first(flows: Served) -> None:
    names = [f"tell-{n}" for n in range(5)]
    await flows.engine.for_org("acme").publish(
        {
            "name": "chatty",
            "entry": names[0],
            "nodes": [
                *({"id": name, "kind": "effect", "handler": "x"} for name in names),
                {"id": "end", "kind": "end"},
            ],
            "edges": [{"id": f"{a}-{b}", "source": a, "target": b} for a, b in pairwise([*names, "end"])],
        }
    )
    client = await operator(flows)
    id = (await start(client, "chatty", input={}))["id"]
    await flows.engine.drain()
    whole = [one.id for one in await flows.engine.for_org("acme").effects(id)]
    page = await get(client, f"instances/{id}/effects", limit=2)
    found, sizes = [one["id"] for one in page["items"]], [len(page["items"])]
    while page["next"] is not None:
        page = await get(client, f"instances/{id}/effects", limit=2, cursor=page["next"])
        found += [one["id"] for one in page["items"]]
        sizes.append(len(page["items"]))
    assert (found, sizes) == (whole, [2, 2, 1])
    assert len(set(found)) == 5


async def test_one_effect(flows: Served) -> None:
    client = await operator(flows)
    id = await emitted(flows, "hidden")
    [listed] = (await get(client, "effects"))["items"]
    assert await get(client, f"effects/{id}") == listed
    assert (listed["status"], listed["kind"], listed["data"]) == ("pending", "whisper", {"n": 7})
    assert (await get(client, f"effects/{uuid4()}", 404))["code"] == "EFFECT_UNKNOWN"


async def test_effects_are_seen_by_those_who_may_see_their_instance(flows: Served) -> None:
    olga = await operator(flows)
    hidden, plain = await emitted(flows, "hidden"), await emitted(flows)
    for client, seen in (
        (olga, [plain, hidden]),
        (await flows.person("sam"), [plain, hidden]),
        (await flows.person("vera", "hidden:*"), [plain, hidden]),
        (await flows.person("vera", "hidden:other"), [plain]),
        (await flows.person("vera"), [plain]),
    ):
        assert await ids(client) == seen
        assert (await client.get(f"/api/v1/effects/{hidden}")).status_code == (200 if hidden in seen else 404)


async def test_those_of_others_are_as_unknown_as_none(flows: Served) -> None:
    mine = await operator(flows)
    hidden = await emitted(flows, "hidden")
    for stranger in (await flows.person("vera"), await operator(flows, tenant="other")):
        assert await ids(stranger) == await ids(stranger, kind="whisper") == []
        answers = [await get(stranger, f"effects/{id}", 404) for id in (hidden, str(uuid4()))]
        assert len({(one["code"], one["title"], one["hint"]) for one in answers}) == 1
    await emitted(flows, "hidden")
    theirs = (await get(mine, "effects", limit=1))["next"]
    other = await operator(flows, tenant="other")
    assert (await get(other, "effects", 422, cursor=theirs))["code"] == "CURSOR_INVALID"


async def test_a_dead_effect_is_replayed_and_delivered(flows: Served) -> None:
    heard: list[Any] = []
    up: list[bool] = []

    def tell(ctx: Any, data: Any) -> Any:
        if not up:
            raise DoNotRetry("Nobody listens.")
        heard.append(data)
        return {"heard": True}

    flows.engine.register_effect("tell", tell)
    client = await operator(flows)
    id = (await start(client, "telling", input={"n": 7}))["id"]

    async def effect(status: str) -> dict[str, Any] | None:
        found = (await get(client, f"instances/{id}/effects"))["items"]
        return found[0] if [one["status"] for one in found] == [status] else None

    async with flows.engine.worker():
        dead = await until(lambda: effect("dead_letter"))
        assert (dead["attempts"], dead["kind"], dead["instance_id"]) == (1, "tell", id)
        stranger = await operator(flows, tenant="other")
        assert (await post(stranger, f"effects/{dead['id']}/replay", 404))["code"] == "EFFECT_UNKNOWN"
        up.append(True)
        replayed = await post(client, f"effects/{dead['id']}/replay", 200, {"reason": "They are back."})
        assert (replayed["id"], replayed["key"]) == (dead["id"], dead["key"])
        done = await until(lambda: effect("completed"))
        assert (done["attempts"], len(heard)) == (2, 1)
        refused = await post(client, f"effects/{dead['id']}/replay", 409)
        assert (refused["code"], refused["facts"]) == ("EFFECT_NOT_DEAD", {"status": "completed"})
    events = (await get(client, f"instances/{id}/events"))["items"]
    assert ("effect_replayed", "olga") in {(e["type"], e["actor"]) for e in events}


async def test_an_effect_that_is_not_there_cannot_be_replayed(flows: Served) -> None:
    client = await operator(flows)
    id = (await start(client))["id"]
    assert (await post(client, f"effects/{id}/replay", 404))["code"] == "EFFECT_UNKNOWN"
