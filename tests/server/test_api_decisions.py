"""What is for people to decide is decided where hands, roles and forms are asked for: an event is no way around."""

from __future__ import annotations

from typing import Any

import pytest
from api_flows import clerk, decide, get, operator, post, publish_flows, register_handlers, start
from http_server import Served

pytestmark = pytest.mark.anyio

LATER = "2126-01-01T00:00:00Z"
EARLIER = "2020-01-01T00:00:00Z"


@pytest.fixture
async def flows(server: Served) -> Served:
    await publish_flows(server.engine)
    register_handlers(server.engine)
    return server


async def _asked(flows: Served) -> tuple[str, str]:
    """An instance that asks a clerk, and its task."""
    carla = await clerk(flows)
    id = (await start(carla))["id"]
    await flows.engine.drain()
    [task] = (await get(carla, "tasks", instance=id))["items"]
    return id, task["id"]


@pytest.mark.parametrize("at", [None, EARLIER, LATER])
@pytest.mark.parametrize(
    ("who", "payload"),
    [
        ("without the role", {"notes": "fine"}),
        ("beside whoever holds it", {"notes": "fine"}),
        ("with a form that does not fit", {"notes": 7}),
        ("an operator", None),
    ],
)
async def test_an_event_does_not_decide_a_task(flows: Served, who: str, payload: Any, at: str | None) -> None:
    id, task = await _asked(flows)
    await post(await clerk(flows), f"tasks/{task}/claim")
    senders = {
        "without the role": await flows.person("vera", roles=["visitor"]),
        "beside whoever holds it": await clerk(flows, "dora"),
        "with a form that does not fit": await clerk(flows),
        "an operator": await operator(flows),
    }
    wish = {"event": "confirmed", "payload": payload, "at": at}
    for place in ({}, {"node": "ask"}, {"token": "0@0"}):
        problem = await post(senders[who], f"instances/{id}/signals", 409, {**wish, **place})
        assert problem["code"] == "DECISION_NEEDED", place
    await flows.engine.drain()
    kept = await get(await clerk(flows), f"tasks/{task}")
    assert (kept["status"], kept["assignee"]) == ("claimed", "carla")
    assert (await get(await clerk(flows), f"instances/{id}"))["data"] == {}


async def test_whoever_is_refused_is_told_the_task(flows: Served) -> None:
    id, task = await _asked(flows)
    problem = await post(await clerk(flows), f"instances/{id}/signals", 409, {"event": "confirmed"})
    assert problem["facts"]["task"] == task


async def test_a_system_still_says_what_has_happened(flows: Served) -> None:
    """The same word is an event where a step waits for it, and a decision where a person is asked."""
    carla = await clerk(flows)
    id = (await start(carla, "parcel"))["id"]
    await flows.engine.drain()
    system = await flows.person("courier", roles=["system"])
    problem = await post(system, f"instances/{id}/signals", 409, {"event": "arrived", "at": EARLIER})
    assert problem["code"] == "DECISION_NEEDED"  # by then a person may be asked
    await post(system, f"instances/{id}/signals", 200, {"event": "arrived", "node": "travel", "at": EARLIER})
    await flows.engine.drain()
    [task] = (await get(carla, "tasks", instance=id))["items"]
    assert task["node"] == "unpack"
    assert (await post(system, f"instances/{id}/signals", 409, {"event": "arrived"}))["code"] == "DECISION_NEEDED"
    await decide(carla, id, "arrived")
    assert (await get(carla, f"instances/{id}"))["status"] == "completed"
