"""Where the values of a step go: each arrives as it was given, or nothing is sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invoker_service import Arrived, Listener, document, json_body, parameter

from holdfast.runtime.invokers.client import Client
from holdfast.runtime.invokers.documents import read_document
from holdfast.runtime.invokers.errors import CallRefused
from holdfast.runtime.invokers.operations import Operation, read_operations
from holdfast.runtime.invokers.requests import build_request
from holdfast.runtime.invokers.servers import find_server

pytestmark = pytest.mark.anyio


def operation(*parameters: dict[str, Any], path: str = "/things", method: str = "get", **more: Any) -> Operation:
    described = {"operationId": "it", "method": method, "path": path, "parameters": list(parameters), **more}
    [found] = read_operations(read_document(document(described)))
    return found


@asynccontextmanager
async def client_of(listener: Listener) -> AsyncIterator[Client]:
    client = Client(find_server(listener.url, read_document(document())), 10.0)
    yield client
    await client.close()


async def arrival(listener: Listener, described: Operation, data: Any) -> Arrived:
    async with client_of(listener) as client:
        await client.send(build_request(described, data), described.title)
    return listener.last


async def test_every_place_gets_its_parameter_and_the_rest_is_the_body(listener: Listener) -> None:
    described = operation(
        parameter("id", "path"),
        parameter("dry", "query", {"type": "boolean"}),
        parameter("X-Shop", "header"),
        parameter("session", "cookie"),
        path="/orders/{id}/lines",
        method="post",
        requestBody=json_body({"type": "object", "required": ["sku"]}),
    )
    data = {"id": "a/b ü?#", "dry": True, "X-Shop": "north", "session": "s1", "sku": "k-1", "count": 2}
    arrived = await arrival(listener, described, data)
    assert (arrived.method, arrived.target) == ("POST", "/orders/a%2Fb%20%C3%BC%3F%23/lines?dry=true")
    assert (arrived.headers["x-shop"], arrived.headers["cookie"]) == ("north", "session=s1")
    assert (arrived.json, arrived.headers["content-type"]) == ({"sku": "k-1", "count": 2}, "application/json")


@pytest.mark.parametrize(
    ("more", "value", "query"),
    [
        ({}, ["a", "b,c", "&"], "tag=a&tag=b%2Cc&tag=%26"),
        ({"explode": False}, ["a", "b"], "tag=a%2Cb"),
        ({"style": "pipeDelimited", "explode": False}, [1, 2], "tag=1%7C2"),
        ({"style": "spaceDelimited", "explode": False}, ["a", "b"], "tag=a%20b"),
        ({"style": "deepObject", "explode": True}, {"from": 1, "a b": True}, "tag[from]=1&tag[a%20b]=true"),
        ({}, [], ""),
        ({}, None, ""),
    ],
)
async def test_styles_of_the_query(listener: Listener, more: dict[str, Any], value: Any, query: str) -> None:
    arrived = await arrival(listener, operation(parameter("tag", "query", **more)), {"tag": value})
    assert arrived.query == query


async def test_a_parameter_described_by_content_is_json(listener: Listener) -> None:
    described = {"name": "filter", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}}
    arrived = await arrival(listener, operation(described), {"filter": {"a": [1, "&"]}})
    assert json.loads(dict(parse_qsl(arrived.query))["filter"]) == {"a": [1, "&"]}


async def test_lists_in_paths_and_headers_are_separated_by_commas(listener: Listener) -> None:
    described = operation(parameter("ids", "path"), parameter("X-Tags", "header"), path="/things/{ids}")
    arrived = await arrival(listener, described, {"ids": [1, 2], "X-Tags": ["a", "b"]})
    assert (arrived.path, arrived.headers["x-tags"]) == ("/things/1,2", "a,b")


async def test_body_is_the_whole_body_unless_the_body_has_such_a_member(listener: Listener) -> None:
    whole = operation(method="post", requestBody=json_body({"type": "array"}))
    assert (await arrival(listener, whole, {"body": [1, None]})).json == [1, None]
    comment = operation(method="post", requestBody=json_body({"properties": {"title": {}, "body": {}}}))
    assert (await arrival(listener, comment, {"title": "t", "body": "b"})).json == {"title": "t", "body": "b"}


HOSTILE_PATHS = [
    "..",
    ".",
    "",
    "../admin",
    "a/../b",
    "..\\x",
    "%2e%2e",
    "%252e%252e/x",
    "..;/x",
    "a\r\nb",
    "a\x00b",
    "a\x85b",
]


@pytest.mark.parametrize("value", HOSTILE_PATHS)
def test_a_path_cannot_be_left(value: str) -> None:
    with pytest.raises(CallRefused) as refused:
        build_request(operation(parameter("id", "path"), path="/things/{id}"), {"id": value})
    assert refused.value.code == "OPERATION_INPUT_INVALID"


def test_two_dots_cannot_come_together_from_two_values() -> None:
    described = operation(parameter("a", "path"), parameter("b", "path"), path="/x/{a}{b}")
    with pytest.raises(CallRefused, match="another place"):
        build_request(described, {"a": ".", "b": "."})


@pytest.mark.parametrize(
    ("described", "data", "complaint"),
    [
        (operation(parameter("q", "query", required=True)), {}, "needs the query parameter 'q'"),
        (operation(parameter("q", "query", required=True)), {"q": None}, "needs the query parameter"),
        (operation(parameter("q", "query", required=True)), {"q": []}, "needs the query parameter"),
        (operation(parameter("q", "query", {"type": "integer"})), {"q": "five"}, "does not fit"),
        (operation(parameter("q", "query")), {"q": {"a": 1}}, "an object, which has no spelling"),
        (operation(parameter("q", "query")), {"q": [[1]]}, "a list, which has no spelling"),
        (operation(parameter("q", "query")), {"p": 1}, "no place for 'p'; it takes: q"),
        (operation(parameter("q", "query", explode=False)), {"q": ["a,b"]}, "separates the items"),
        (operation(parameter("q", "query", style="deepObject")), {"q": {"a]": 1}}, "brackets"),
        (operation(parameter("q", "query")), {"q": "x" * 9000}, "longer than"),
        (operation(parameter("X-A", "header")), {"X-A": "a\r\nX-B: 1"}, "cannot carry"),
        (operation(parameter("X-A", "header")), {"X-A": " a"}, "cannot carry"),
        (operation(parameter("X-A", "header")), {"X-A": "ü"}, "cannot carry"),
        (operation(parameter("c", "cookie")), {"c": "a; admin=1"}, "cannot carry"),
        (operation(parameter("c", "cookie")), {"c": ["a"]}, "not a single value"),
        (operation(parameter("m", "path", style="matrix"), path="/x/{m}"), {"m": "1"}, "not supported"),
        (operation(method="post", requestBody=json_body()), {}, "needs a body"),
        (
            operation(method="post", requestBody=json_body({"required": ["a"]})),
            {"b": 1},
            "body of POST /things does not",
        ),
        (operation(method="post", requestBody=json_body()), {"body": 1, "x": 2}, "no place for 'x'"),
        (operation(method="post", requestBody={"content": {"text/csv": {}}}), {"a": 1}, "not JSON"),
        (operation(), ["no", "object"], "not an object"),
    ],
)
def test_what_cannot_be_sent_as_it_is_is_refused(described: Operation, data: Any, complaint: str) -> None:
    with pytest.raises(CallRefused, match=complaint):
        build_request(described, data)


def test_headers_that_the_engine_sets_are_not_parameters() -> None:
    described = operation(parameter("Idempotency-Key", "header", required=True), parameter("Authorization", "header"))
    assert build_request(described, {}).headers == {}


# Any value, in any place


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_back(text: str, sent: Any) -> Any:
    """What a reader makes of the text, who knows the type from the document."""
    return text if isinstance(sent, str) else json.loads(text)


def received(place: str, arrived: Arrived, sent: Any) -> Any:
    match place:
        case "path":
            text = arrived.path.removeprefix("/things/").removesuffix("/end")
            if isinstance(sent, list):
                return [read_back(unquote(part), item) for part, item in zip(text.split(","), sent, strict=True)]
            return read_back(unquote(text), sent)
        case "query":
            items = [
                value
                for _, value in parse_qsl(arrived.query, keep_blank_values=True, strict_parsing=bool(arrived.query))
            ]
            if isinstance(sent, list):
                return [read_back(part, item) for part, item in zip(items, sent, strict=True)]
            [text] = items
            return read_back(text, sent)
        case "header":
            text = arrived.headers["it"]
            if isinstance(sent, list):
                return [read_back(part, item) for part, item in zip(text.split(","), sent, strict=True)]
            return read_back(text, sent)
        case "cookie":
            return read_back(arrived.headers["cookie"].partition("=")[2], sent)
        case _:
            return arrived.json


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20) | st.sampled_from(
    [*HOSTILE_PATHS[:9], "?a=b", "#", "%", "+", "a b", "a;b", "a,b", '"', "'", "\\", "=", "&", "é", "\t", "\r\nX: y"]
)
SCALARS = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DESCRIBED = {
    "path": operation(parameter("it", "path"), path="/things/{it}/end"),
    "query": operation(parameter("it", "query", required=True)),
    "header": operation(parameter("it", "header", required=True)),
    "cookie": operation(parameter("it", "cookie", required=True)),
    "body": operation(method="post", requestBody=json_body()),
}


@pytest.mark.parametrize("place", DESCRIBED)
async def test_any_value_arrives_unchanged_or_is_refused(listener: Listener, place: str) -> None:
    seen = 0

    @settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(value=SCALARS if place == "cookie" else VALUES)
    def choose(value: Any) -> None:
        chosen.append(value)

    chosen: list[Any] = []
    choose()
    async with client_of(listener) as client:
        for value in chosen:
            try:
                request = build_request(DESCRIBED[place], {"body" if place == "body" else "it": value})
            except CallRefused:
                continue
            await client.send(request, place)
            assert received(place, listener.last, value) == value, ascii(value)
            assert len(listener.arrived) == (seen := seen + 1)
    assert seen > 20, "most are refused, but not nearly all"
