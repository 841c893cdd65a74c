"""What happens to a request before its route sees it: names, sizes, forms, and how refusals are told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter
from http_server import Served, served, vouched
from pydantic import BaseModel
from starlette.responses import Response

from holdfast import Engine
from holdfast.errors import NotFound
from holdfast.server.access.identity import CurrentIdentity
from holdfast.server.http.gate import GatedRoute
from holdfast.server.http.replies import reply
from holdfast.server.middleware.request_context import RequestIdFilter, current_request_id

pytestmark = pytest.mark.anyio

router = APIRouter(prefix="/gate", route_class=GatedRoute)
seen: list[Any] = []


class Note(BaseModel):
    text: str
    times: int = 1


@router.post("/echo")
async def echo(body: dict[str, Any]) -> Response:
    seen.append(body)
    return reply(body)


@router.post("/note")
async def note(note: Note, identity: CurrentIdentity) -> Response:
    logging.getLogger("holdfast.test").warning("noted")
    return reply({"by": identity.subject, "request": current_request_id()})


@router.get("/break")
async def break_() -> Response:
    raise RuntimeError("a secret of the server")


@router.get("/missing/{id}")
async def missing(id: str) -> Response:
    raise NotFound(f"There is no {id}.", code="INSTANCE_UNKNOWN", hint="Look elsewhere.")


@pytest.fixture(scope="module")
def unopened() -> Engine:
    """Nothing here gets as far as the engine."""
    return Engine("postgresql://nobody@127.0.0.1:1/nothing")


@pytest.fixture(scope="module")
async def gate(unopened: Engine) -> AsyncIterator[Served]:
    async with served(unopened, most_body_bytes=10_000, most_headers=30, most_header_bytes=4000) as server:
        server.app.include_router(router)
        yield server


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


@pytest.fixture(scope="module")
async def alice(gate: Served) -> httpx2.AsyncClient:
    return await gate.person("alice")


def told(answer: httpx2.Response) -> tuple[int, str]:
    """A refusal is always such a document, and says the status twice."""
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == answer.status_code
    assert document["request_id"] == answer.headers["x-request-id"]
    assert document["type"] == "urn:holdfast:problem:" + document["code"].lower().replace("_", "-")
    assert document["title"]
    assert document["instance"].startswith("/")
    return answer.status_code, document["code"]


async def test_a_body_arrives_as_it_was_sent(alice: httpx2.AsyncClient) -> None:
    answer = await alice.post("/gate/echo", json={"a": [1, 2.5, None, "ü"]})
    assert (answer.status_code, answer.json()) == (200, {"a": [1, 2.5, None, "ü"]})


async def test_nobody_unknown_gets_past_the_gate(gate: Served) -> None:
    nobody = await gate.client()
    answer = await nobody.post("/gate/echo", content=b"{")
    assert told(answer) == (401, "UNAUTHENTICATED")  # not: what is wrong with the body
    assert answer.headers["www-authenticate"] == "Bearer"


HOSTILE = [
    (b'{"a": NaN}', "PAYLOAD_NOT_FINITE", "`a`"),
    (b'{"a": [1, Infinity]}', "PAYLOAD_NOT_FINITE", "`a[1]`"),
    (b'{"a": 1e400}', "PAYLOAD_NOT_FINITE", "`a`"),
    (b'{"a": 1, "a": 2}', "PAYLOAD_DUPLICATE_KEY", "'a'"),
    (b'{"a": "\\ud800"}', "PAYLOAD_SURROGATE", "`a`"),
    (b'{"a": {"b": "x\\u0000y"}}', "PAYLOAD_NUL", "`a.b`"),
    (b'{"a": 9223372036854775808}', "PAYLOAD_INTEGER", "`a`"),
    (b'{"a": ' + b"9" * 5000 + b"}", "PAYLOAD_INTEGER", "`a`"),
    (b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}", "PAYLOAD_TOO_DEEP", "`a"),
    (b'{"a": ' + b"[" * 4000 + b"}", "PAYLOAD_TOO_DEEP", "The body"),
    (b'{"a": 1', "PAYLOAD_NOT_JSON", "line 1"),
    (b"\xff\xfe{}", "PAYLOAD_NOT_JSON", "byte 0"),
    (b"{} {}", "PAYLOAD_NOT_JSON", "The body"),
    (b"nothing", "PAYLOAD_NOT_JSON", "The body"),
    (b"[]", "REQUEST_INVALID", "body"),
    (b"3", "REQUEST_INVALID", "body"),
]


@pytest.mark.parametrize(("body", "code", "place"), HOSTILE, ids=lambda given: repr(given)[:40])
async def test_what_json_leaves_open_is_refused_with_its_place(
    alice: httpx2.AsyncClient, body: bytes, code: str, place: str
) -> None:
    answer = await alice.post("/gate/echo", content=body, headers={"content-type": "application/json"})
    assert told(answer) == (422, code)
    assert place in answer.json()["detail"]
    assert seen == []


async def test_a_field_that_does_not_fit_is_named(alice: httpx2.AsyncClient) -> None:
    answer = await alice.post("/gate/note", json={"times": "many"})
    assert told(answer) == (422, "REQUEST_INVALID")
    assert {misfit["place"] for misfit in answer.json()["errors"]} == {"body.text", "body.times"}


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/json; charset=latin-1", None])
async def test_a_body_says_that_it_is_json(alice: httpx2.AsyncClient, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    answer = await alice.post("/gate/echo", content=b"{}", headers=headers)
    assert told(answer) == (415, "MEDIA_TYPE_UNSUPPORTED")


@pytest.mark.parametrize("kind", ["text/html", "application/json;q=0", "image/*, text/*;q=0.5"])
async def test_an_answer_nobody_wants_is_not_given(alice: httpx2.AsyncClient, kind: str) -> None:
    answer = await alice.post("/gate/echo", json={}, headers={"accept": kind})
    assert told(answer) == (406, "NOT_ACCEPTABLE")


@pytest.mark.parametrize("kind", ["*/*", "application/*", "text/html, application/json;q=0.1"])
async def test_an_answer_somebody_wants_is_given(alice: httpx2.AsyncClient, kind: str) -> None:
    assert (await alice.post("/gate/echo", json={}, headers={"accept": kind})).status_code == 200


async def test_routes_and_methods_that_do_not_exist(alice: httpx2.AsyncClient) -> None:
    assert told(await alice.get("/nowhere")) == (404, "ROUTE_UNKNOWN")
    assert told(await alice.get("/health/live/")) == (404, "ROUTE_UNKNOWN")
    wrong = await alice.put("/gate/echo")
    assert told(wrong) == (405, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"] == "POST"


async def test_a_body_has_a_limit_whether_it_says_its_length_or_not(alice: httpx2.AsyncClient) -> None:
    said = await alice.post("/gate/echo", json={"a": "x" * 3_000_000})
    assert told(said) == (413, "BODY_TOO_LARGE")

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"a": "'
        for _ in range(300):
            yield b"x" * 10_000
        yield b'"}'

    counted = await alice.post("/gate/echo", content=chunks(), headers={"content-type": "application/json"})
    assert told(counted) == (413, "BODY_TOO_LARGE")
    assert seen == []


async def test_headers_and_target_have_limits(alice: httpx2.AsyncClient) -> None:
    many = await alice.get("/health/live", headers={f"x-{n}": "1" for n in range(40)})
    assert told(many) == (431, "HEADERS_TOO_LARGE")
    large = await alice.get("/health/live", headers={"x-large": "1" * 5000})
    assert told(large) == (431, "HEADERS_TOO_LARGE")
    long = await alice.get("/health/live", params={"q": "1" * 9000})
    assert told(long) == (414, "TARGET_TOO_LONG")


async def test_a_request_keeps_the_name_it_came_with(alice: httpx2.AsyncClient, caplog: Any) -> None:
    caplog.handler.addFilter(RequestIdFilter())
    with caplog.at_level(logging.INFO):
        answer = await alice.post("/gate/note", json={"text": "a"}, headers={"x-request-id": "ticket-17"})
    assert answer.headers["x-request-id"] == "ticket-17"
    assert answer.json() == {"by": "alice", "request": "ticket-17"}
    named = {record.name: record.request_id for record in caplog.records if record.name.startswith("holdfast.")}
    assert named["holdfast.test"] == named["holdfast.access"] == "ticket-17"


@pytest.mark.parametrize("name", ["", "x" * 200, "a b", "<script>"])
async def test_an_unfit_name_is_replaced(alice: httpx2.AsyncClient, name: str) -> None:
    answer = await alice.get("/health/live", headers={"x-request-id": name})
    assert answer.headers["x-request-id"] not in ("", name)


async def test_a_failure_nobody_expected_keeps_its_story_for_the_log(alice: httpx2.AsyncClient, caplog: Any) -> None:
    answer = await alice.get("/gate/break", headers={"x-request-id": "ticket-18"})
    assert told(answer) == (500, "UNEXPECTED")
    assert "secret" not in answer.text
    assert any(getattr(record, "request_id", "") == "ticket-18" and record.exc_info for record in caplog.records)


async def test_a_refusal_of_the_engine_has_its_code_and_hint(alice: httpx2.AsyncClient) -> None:
    answer = await alice.get("/gate/missing/something")
    assert told(answer) == (404, "INSTANCE_UNKNOWN")
    assert answer.json()["hint"] == "Look elsewhere."
    assert answer.json()["instance"] == "/gate/missing/something"


async def test_everybody_has_a_rate_of_their_own(unopened: Engine) -> None:
    async with served(unopened, rate=0.001, burst=3) as server:
        server.app.include_router(router)
        alice, bob = await server.person("alice"), await server.person("bob")
        statuses = [(await alice.post("/gate/echo", json={})).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = await alice.post("/gate/echo", json={})
        assert told(refused) == (429, "RATE_LIMITED")
        assert int(refused.headers["retry-after"]) > 100
        assert (await bob.post("/gate/echo", json={})).status_code == 200
        assert (await alice.get("/health/live")).status_code == 200
        unknown = [(await (await server.client()).post("/gate/echo", json={})).status_code for _ in range(4)]
        assert unknown == [401, 401, 401, 429]


async def test_browsers_of_other_origins_are_refused_unless_configured(unopened: Engine, gate: Served) -> None:
    asked = {"origin": "https://app.example.com", "access-control-request-method": "POST"}
    closed = await (await gate.client()).options("/gate/echo", headers=asked)
    assert told(closed) == (405, "METHOD_NOT_ALLOWED")
    assert "access-control-allow-origin" not in closed.headers
    async with served(unopened, cors_origins=("https://app.example.com",)) as server:
        server.app.include_router(router)
        client = await server.client()
        open = await client.options("/gate/echo", headers=asked)
        assert open.headers["access-control-allow-origin"] == "https://app.example.com"
        assert open.headers["access-control-allow-methods"] == "GET, POST"  # no route has another one
        other = await client.options("/gate/echo", headers={**asked, "origin": "https://evil.example.com"})
        assert "access-control-allow-origin" not in other.headers
        refused = await client.post("/gate/echo", json={}, headers={"origin": "https://app.example.com"})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://app.example.com"


async def test_nonsense_on_the_wire_does_not_stop_the_server(gate: Served) -> None:
    host, port = gate.url.removeprefix("http://").split(":")
    for nonsense in (
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /gate/echo HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(nonsense)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert (await (await gate.client()).get("/health/live")).status_code == 200


def test_the_vouching_header_is_json() -> None:
    assert json.loads(vouched("acme", "alice")["x-test-identity"])["tenant"] == "acme"
