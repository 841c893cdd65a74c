"""Sight comes first on every verb: whoever may not see an instance cannot tell any of its doors from one to nothing.

The doors are those of the application's own table of routes. A new route about an instance, a task, a dead letter or an
effect is tried as well, and fails until it is told here what it is asked with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from api_flows import get, operator, start
from http_server import Served
from starlette.routing import Route

from holdfast import Engine

pytestmark = pytest.mark.anyio

# Anybody could answer it: only sight keeps a stranger away. The effect of the other one waits for ever.
ARCHIVE: dict[str, Any] = {
    "name": "archive",
    "entry": "rest",
    "kind": "steps",
    "policy": {"data": "context", "capabilities": ["archive:see"]},
    "nodes": [{"id": "rest", "kind": "human"}, {"id": "end", "kind": "terminal"}],
    "edges": [{"id": "go", "source": "rest", "target": "end", "on": "opened"}],
}
TELLING: dict[str, Any] = {
    "name": "telling",
    "entry": "tell",
    "policy": {"capabilities": ["archive:see"]},
    "nodes": [{"id": "tell", "kind": "effect", "handler": "whisper"}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "told", "source": "tell", "target": "end"}],
}
KINDS = {"instance_id": "instance", "task_id": "task", "letter_id": "letter", "effect_id": "effect"}
BODIES: dict[str, Any] = {
    "advance_workflow": {"event": "opened", "input": {}},
    "signal_instance": {"event": "opened"},
    "rerun_instance": {"from_step": "rest"},
    "write_activity": {"name": "Check", "status": "Done"},
    "decide_task": {"decision": "opened"},
    "assign_task": {"to": "vera"},
    "delegate_task": {"to": "vera"},
}


def doors(app: Any) -> Iterator[tuple[str, str, str, str]]:
    """Operation, method, path, and the parameter that names what it is about."""
    for route in app.routes:
        for parameter in KINDS.keys() & set(getattr(route, "param_convertors", ())):
            assert isinstance(route, Route)
            for method in sorted((route.methods or set()) - {"HEAD", "OPTIONS"}):
                yield getattr(route, "operation_id", None) or route.name, method, route.path, parameter


@pytest.fixture
async def archive(server: Served, engine: Engine) -> tuple[Served, dict[str, str]]:
    acme = engine.for_org("acme")
    for flow in (ARCHIVE, TELLING):
        await acme.publish(flow)
    sara = await server.person("sara", "archive:see")
    ids = {"instance": (await start(sara, "archive"))["id"], "letter": str(uuid4())}
    telling = (await start(sara, "telling"))["id"]
    await engine.drain()
    olga = await operator(server)
    ids["task"] = (await get(olga, "tasks", instance=ids["instance"]))["items"][0]["id"]
    ids["effect"] = (await get(olga, f"instances/{telling}/effects"))["items"][0]["id"]
    return server, ids


async def test_every_door_is_shut_for_whoever_may_not_see(archive: tuple[Served, dict[str, str]]) -> None:
    server, ids = archive
    acme, tried = server.engine.for_org("acme"), list(doors(server.app))
    assert {parameter for *_, parameter in tried} == KINDS.keys()
    assert {operation for operation, *_ in tried} >= BODIES.keys()
    before = await acme.get(ids["instance"]), await acme.task(ids["task"]), await acme.get_effect(ids["effect"])
    strangers = {
        "of the same company": await server.person("vera", "archive:other"),
        "of another partition": await server.person("vera", partition="south"),
        "with a key": await server.client({**dict((await server.person("vera")).headers), "Idempotency-Key": "k-1"}),
    }
    for who, client in strangers.items():
        for operation, method, path, parameter in tried:
            answers: list[tuple[int, str]] = []
            for id in (ids[KINDS[parameter]], str(uuid4())):
                sent = None if method == "GET" else BODIES.get(operation)
                answer = await client.request(method, path.format(**{"activity_id": uuid4(), parameter: id}), json=sent)
                answers.append((answer.status_code, answer.json()["code"]))
            assert answers[0] == answers[1], (who, operation)
            assert answers[0] in ((403, "SCOPE_MISSING"), (404, f"{_noun(parameter)}_UNKNOWN")), (who, operation)
    after = await acme.get(ids["instance"]), await acme.task(ids["task"]), await acme.get_effect(ids["effect"])
    assert before == after


async def test_whoever_may_see_is_let_in(archive: tuple[Served, dict[str, str]]) -> None:
    """The same doors and the same words, so what keeps strangers out is sight and nothing else."""
    server, ids = archive
    sara, olga = await server.person("sara", "archive:see"), await operator(server)
    for operation, method, path, parameter in doors(server.app):
        if "stream" in operation or KINDS[parameter] == "letter":
            continue
        sent = None if method == "GET" else BODIES.get(operation)
        for client in (sara, olga):
            answer = await client.request(
                method, path.format(**{"activity_id": uuid4(), parameter: ids[KINDS[parameter]]}), json=sent
            )
            unseen = answer.status_code == 404 and answer.json()["code"] == f"{_noun(parameter)}_UNKNOWN"
            assert not unseen, (operation, answer.text)


async def test_advancing_shows_nothing_of_what_one_may_not_see(archive: tuple[Served, dict[str, str]]) -> None:
    server, ids = archive
    path, wish = f"/ui/workflows/{ids['instance']}/advance", BODIES["advance_workflow"]
    refused = await (await server.person("vera")).post(path, json=wish)
    assert (refused.status_code, refused.json()["code"]) == (404, "INSTANCE_UNKNOWN")
    done = await (await server.person("vera", "archive:see")).post(path, json=wish)
    assert (done.status_code, done.json()["status"]) == (200, "completed")


def _noun(parameter: str) -> str:
    return {"letter_id": "DEAD_LETTER"}.get(parameter, KINDS[parameter].upper())
