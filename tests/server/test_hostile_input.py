"""Whatever is sent: a refusal that says what is wrong and where, in bounded time and memory, and the server goes on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import pytest
from api_flows import clerk, machine, publish_flows, register_handlers
from hostile_corpus import (
    AMOUNTS,
    BROKEN_REQUESTS,
    CONDITIONS,
    COSTLY_FORMS,
    FORMS,
    HEADERS,
    IDS,
    JSON_BODIES,
    ODD_BUT_WELL_FORMED,
    QUERIES,
    YAML_FILES,
    deciding,
    workflow,
)
from http_server import Served, served

from holdfast import Engine, Machine
from holdfast.server.middleware import size_limits
from holdfast.testing.database import copied_database

pytestmark = pytest.mark.anyio

T = TypeVar("T")
IS_LONG = os.environ.get("HOLDFAST_PROFILE") == "long"
PROBLEM = "application/problem+json"
MOST_SECONDS = 5.0  # of processor time, on a machine that does other things as well
MOST_MEMORY = 200 << 10  # kilobytes that the whole corpus may add
SMALL = 10_000
JSON, YAML = {"content-type": "application/json"}, {"content-type": "application/yaml"}
# A start of a workflow without a schema takes any object.
TAKEN = {"long fraction", "unknown fields", "many keys", "long key"}
DEFINITIONS = "/api/v1/definitions"


class Target:
    """A server with something to attack: an instance that rests on a person, and its task."""

    def __init__(self, server: Served, client: httpx2.AsyncClient, instance: str, task: str) -> None:
        self.server = server
        self.client = client
        self.instance = instance
        self._names = {"instance_id": instance, "task_id": task, "workflow_id": "decision", "name": "decision"}
        self._names["environment"] = "prod"

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, methods in self.server.app.openapi()["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def filled(self, path: str, value: str | None = None) -> str:
        """The path with names that exist, or with this one in place of each."""
        path = path.replace("{version}", "1")
        return re.sub(r"\{(\w+)\}", lambda found: value or self._names.get(found[1], self.instance), path)

    async def send(self, method: str, path: str, **more: Any) -> httpx2.Response:
        begun = time.process_time()
        answer = await self.client.request(method, path, **more)
        took = time.process_time() - begun
        assert took < MOST_SECONDS, f"{method} {path[:100]} took {took:.1f} s"
        return answer

    async def refuse(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Sends it, and insists on a refusal that can be read."""
        answer = await self.send(method, path, **more)
        what = f"{method} {path[:100]}: {answer.status_code} {answer.text[:300]}"
        assert 400 <= answer.status_code < 500, what
        assert answer.headers["content-type"] == PROBLEM, what
        problem = answer.json()
        assert problem["status"] == answer.status_code, what
        assert problem["code"] != "UNEXPECTED", what
        assert problem["detail"], what
        return problem


@pytest.fixture(scope="module")
async def target(holdfast_server: str) -> AsyncIterator[Target]:
    with copied_database(holdfast_server) as database:
        async with Engine(database.dsn) as engine, served(engine, request_patience=5.0) as server, engine.worker():
            await publish_flows(engine)
            register_handlers(engine)
            view = engine.for_org("acme")
            begun = await view.start("decision", {"n": 1}, by="olga")
            await view.settle(begun.id, 30)
            [task] = await view.tasks(begun.id)
            await view.import_machine(Machine.load(machine("decision")))
            await view.register_consumer("prod", "decision", owner="olga")
            client = await server.person("olga", "*", roles=["operator", "publisher", "clerk"])
            yield Target(server, client, begun.id, task.id)


@pytest.fixture(scope="module", autouse=True)
def memory_is_bounded() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


@pytest.fixture(autouse=True)
async def nothing_is_harmed(target: Target) -> AsyncIterator[None]:
    """After each test the server answers, and what was attacked is as it was."""
    path = f"/api/v1/instances/{target.instance}"
    before = (await target.client.get(path)).json()
    yield
    assert (await target.client.get("/health/live")).status_code == 200
    assert (await target.client.get(path)).json() == before


def some(places: Iterable[T], turn: int) -> list[T]:
    """Every sixth of the routes, others with every case; all of them in the long profile."""
    return list(places)[slice(None) if IS_LONG else slice(turn % 6, None, 6)]


@pytest.mark.parametrize(("turn", "name"), list(enumerate(JSON_BODIES)))
async def test_bodies_for_every_route_that_reads_one(target: Target, turn: int, name: str) -> None:
    body = JSON_BODIES[name]
    reading = (
        path for method, path, operation in target.operations() if method == "POST" and "requestBody" in operation
    )
    paths = some(reading, turn)
    if len(body) > SMALL:
        paths = [
            DEFINITIONS,
            "/api/v1/instances",
            "/ui/workflows/{workflow_id}/start",
            "/ui/workflows/{instance_id}/advance",
        ]
    for path in paths:
        if name in TAKEN and path.endswith("/start"):
            assert (await target.send("POST", target.filled(path), content=body, headers=JSON)).status_code == 201
        else:
            await target.refuse("POST", target.filled(path), content=body, headers=JSON)


async def test_a_refusal_is_not_longer_than_anybody_reads(target: Target) -> None:
    body = JSON_BODIES["many keys"]
    problem = await target.refuse("POST", "/api/v1/instances", content=body, headers=JSON)
    assert len(problem["errors"]) <= 100
    assert len(json.dumps(problem)) < 50_000


@pytest.mark.parametrize("name", YAML_FILES)
async def test_files(target: Target, name: str) -> None:
    problem = await target.refuse("POST", DEFINITIONS, content=YAML_FILES[name], headers=YAML)
    places = [error["place"] for error in problem.get("errors", ())]
    is_unread = problem["code"] == "BODY_TOO_LARGE" or "byte" in problem["detail"]
    assert is_unread or all(re.fullmatch(r"body:\d+:\d+", place) for place in places), problem
    assert is_unread or places, problem


@pytest.mark.parametrize("name", CONDITIONS)
async def test_conditions(target: Target, name: str) -> None:
    problem = await target.refuse("POST", DEFINITIONS, content=deciding(CONDITIONS[name]), headers=YAML)
    assert all(error["place"].startswith("body:1:") for error in problem["errors"]), problem
    assert problem["errors"], problem


@pytest.mark.parametrize("name", FORMS)
async def test_forms(target: Target, name: str) -> None:
    problem = await target.refuse("POST", DEFINITIONS, content=workflow(form=FORMS[name]), headers=YAML)
    assert problem["errors"], problem


@pytest.mark.parametrize("name", COSTLY_FORMS)
async def test_forms_that_are_costly_to_check(target: Target, name: str) -> None:
    """Whatever the schema says, a form that does not fit is refused with its place."""
    form, sent = COSTLY_FORMS[name]
    text = workflow(form=form).replace(b'"hostile"', f'"costly.{name.replace(" ", "-")}"'.encode())
    published = await target.send("POST", DEFINITIONS, content=text, headers=YAML)
    assert published.status_code == 200, published.text
    workflow_id = published.json()["published"][0]["name"]
    started = await target.send("POST", f"/ui/workflows/{workflow_id}/start", json={})
    assert started.status_code == 201, started.text
    wish = {"event": "completed", "input": sent}
    problem = await target.refuse("POST", f"/ui/workflows/{started.json()['id']}/advance", json=wish)
    assert problem["code"] == "FORM_INVALID", problem
    assert "$.a" in problem["detail"], problem
    assert len(problem["detail"]) < 2000


async def test_values_that_a_condition_did_not_expect(target: Target) -> None:
    text = deciding("input.amount > 100").replace(b'"hostile"', b'"amounts"')
    assert (await target.send("POST", DEFINITIONS, content=text, headers=YAML)).status_code == 200
    for amount in AMOUNTS:
        started = await target.send("POST", "/ui/workflows/amounts/start", json={})
        wish = {"event": "completed", "input": {"amount": amount}}
        answer = await target.send("POST", f"/ui/workflows/{started.json()['id']}/advance", json=wish)
        assert answer.status_code in (200, 422), (amount, answer.text[:300])


@pytest.mark.parametrize(("turn", "id"), list(enumerate(IDS)))
async def test_ids(target: Target, turn: int, id: str) -> None:
    for method, path, _ in some(target.operations(), turn):
        if "{" in path:
            await target.refuse(method, target.filled(path, id), **({"json": {}} if method == "POST" else {}))


@pytest.mark.parametrize(("turn", "id"), list(enumerate(ODD_BUT_WELL_FORMED)))
async def test_ids_of_nothing(target: Target, turn: int, id: str) -> None:
    for method, path, _ in some(target.operations(), turn):
        if "_id}" in path and method == "GET":
            asked = {"external_ref": "O-1"} if "{request_id}" in path else {}
            assert (await target.refuse(method, target.filled(path, id), params=asked))["status"] == 404


@pytest.mark.parametrize("path", QUERIES)
async def test_queries(target: Target, path: str) -> None:
    for query in QUERIES[path]:
        await target.refuse("GET", f"{path}?{query}" if query else path)


@pytest.mark.parametrize("name", HEADERS)
async def test_headers(target: Target, name: str) -> None:
    line, headers = HEADERS[name]
    method, _, path = line.partition(" ")
    body = {} if method == "GET" or path.endswith("cancel") else {"content": b'{"flow": "decision"}'}
    given = headers if not body or any(key == b"content-type" for key, _ in headers) else [*headers, *_raw(JSON)]
    await target.refuse(method, path.format(target.instance), headers=given, **body)


@pytest.mark.parametrize("name", BROKEN_REQUESTS)
async def test_what_is_no_http(target: Target, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused by whoever reads it first, and the connection is closed."""
    monkeypatch.setattr(size_limits, "DISCARD_SECONDS", 0.1)
    url = urlsplit(target.server.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(BROKEN_REQUESTS[name])
    try:
        answer = await asyncio.wait_for(reader.read(), 30)
    except ConnectionResetError:
        answer = b""
    finally:
        writer.close()
    assert not answer or re.match(rb"HTTP/1.1 4\d\d ", answer), answer[:200]
    assert answer.count(b"HTTP/1.1 ") <= 1


async def test_a_body_that_never_ends(target: Target) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 100_000

    problem = await target.refuse("POST", "/api/v1/instances", content=endless(), headers=JSON)
    assert problem["code"] == "BODY_TOO_LARGE"


async def test_many_at_once_do_not_keep_others_waiting(target: Target) -> None:
    """While large files are read, somebody else is answered."""
    other = await clerk(target.server)
    hostile = [
        asyncio.create_task(target.client.post(DEFINITIONS, content=YAML_FILES[name], headers=YAML))
        for name in ("many workflows", "billion laughs", "brackets")
    ]
    answered = 0
    while not all(task.done() for task in hostile):
        assert (await other.get("/api/v1/instances", params={"limit": 1})).status_code == 200
        answered += 1
    assert answered > 1
    assert {(await task).status_code for task in hostile} == {422}


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
