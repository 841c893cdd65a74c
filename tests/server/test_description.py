"""The description of the API is made once, sent compressed where that is taken, and only when it is new."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI
from http_server import Served, listening, served

from holdfast import Engine
from holdfast.server.app import create_app

pytestmark = pytest.mark.anyio
UNOPENED = Engine("postgresql://nobody@127.0.0.1:1/nothing")
PATH = "/openapi.json"


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[Served]:
    async with served(UNOPENED) as server:
        yield server


@pytest.fixture(scope="module")
async def nobody(server: Served) -> httpx2.AsyncClient:
    return await server.client({"accept-encoding": "identity"})


async def raw(client: httpx2.AsyncClient, **headers: str) -> tuple[httpx2.Headers, bytes]:
    """Not decompressed."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.stream("GET", PATH, headers=given) as answer:
        assert answer.status_code == 200
        return answer.headers, b"".join([part async for part in answer.aiter_raw()])


async def test_it_is_what_the_application_says_and_made_once(server: Served, nobody: httpx2.AsyncClient) -> None:
    headers, first = await raw(nobody)
    assert headers["content-type"] == "application/json"
    assert json.loads(first) == json.loads(json.dumps(server.app.openapi()))
    kept = await server.app.state.descriptions.below("")
    assert (await raw(nobody))[1] == first == kept.plain
    assert await server.app.state.descriptions.below("") is kept


@pytest.mark.parametrize(
    ("wish", "is_compressed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("deflate", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("", False),
        ("identity", False),
    ],
)
async def test_it_is_compressed_for_whoever_takes_that(
    nobody: httpx2.AsyncClient, wish: str, is_compressed: bool
) -> None:
    headers, sent = await raw(nobody, accept_encoding=wish)
    plain = gzip.decompress(sent) if is_compressed else sent
    assert headers.get("content-encoding") == ("gzip" if is_compressed else None)
    assert headers["vary"] == "Accept-Encoding"
    assert int(headers["content-length"]) == len(sent)
    assert json.loads(plain)["info"]["title"] == "Holdfast"
    assert not is_compressed or len(sent) * 5 < len(plain)


async def test_whoever_has_it_is_not_sent_it_again(nobody: httpx2.AsyncClient) -> None:
    tag = (await nobody.get(PATH)).headers["etag"]
    for known in (tag, f'"other", {tag}', tag.removeprefix("W/")):
        again = await nobody.get(PATH, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert (await nobody.get(PATH, headers={"if-none-match": '"other"'})).status_code == 200


async def test_below_a_path_it_names_the_path() -> None:
    host = FastAPI()
    host.mount("/flows", create_app(UNOPENED))
    async with listening(host) as url, httpx2.AsyncClient(base_url=url, trust_env=False) as nobody:
        assert (await nobody.get(f"/flows{PATH}")).json()["servers"] == [{"url": "/flows"}]


async def test_what_is_not_acceptable_is_said(nobody: httpx2.AsyncClient) -> None:
    assert (await nobody.get(PATH, headers={"accept": "text/html"})).status_code == 406


async def test_an_address_does_not_get_it_too_often() -> None:
    async with served(UNOPENED, rate=0.001, burst=2) as server:
        nobody = await server.client()
        answers = [await nobody.get(PATH) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert int(answers[-1].headers["retry-after"]) > 0
        assert (await nobody.get(PATH, headers={"x-forwarded-for": "192.0.2.7"})).status_code == 200
        known = await server.person("alice")
        assert (await known.get("/api/v1/nothing")).status_code == 404  # counted for itself
