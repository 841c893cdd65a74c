"""A query that a route does not know is refused by every route, with the name that was probably meant."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx2
import pytest
from http_server import Served, served
from starlette.routing import Route

from holdfast import Engine
from holdfast.server.app import create_app
from holdfast.server.http.gate import GatedRoute
from holdfast.server.http.queries import StrictRoute

pytestmark = pytest.mark.anyio
UNOPENED = Engine("postgresql://nobody@127.0.0.1:1/nothing")  # nothing here gets as far as the engine
APP = create_app(UNOPENED)


def place(path: str) -> str:
    """Of a path with parameters, one that fits."""
    return re.sub(r"\{\w+\}", "00000000-0000-7000-8000-000000000001", re.sub(r"\{\w+:int\}|\{version\}", "1", path))


DOORS = sorted(
    (method, place(route.path))
    for route in APP.routes
    if isinstance(route, Route)
    for method in (route.methods or ()) - {"HEAD"}
)
PARAMETERS = [
    (method.upper(), place(path), parameter["name"], parameter["schema"].get("type") == "array")
    for path, operations in APP.openapi()["paths"].items()
    for method, operation in operations.items()
    for parameter in operation.get("parameters", ())
    if parameter["in"] == "query"
]


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[Served]:
    async with served(UNOPENED, metrics="open") as server:
        yield server


@pytest.fixture(scope="module")
async def admin(server: Served) -> httpx2.AsyncClient:
    return await server.person("alice", "*", roles=("admin",))


def test_there_is_no_route_of_another_kind() -> None:
    assert all(isinstance(route, GatedRoute | StrictRoute) for route in APP.routes)
    assert {"/openapi.json", "/metrics", "/health/ready"} < {path for _, path in DOORS}
    assert sum(path.endswith("/stream") for _, path in DOORS) == 4


@pytest.mark.parametrize(("method", "path"), DOORS)
async def test_no_route_takes_a_parameter_it_does_not_have(admin: httpx2.AsyncClient, method: str, path: str) -> None:
    answer = await admin.request(method, path, params={"no-such": "1"})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "REQUEST_INVALID")
    assert [wrong["place"] for wrong in problem["errors"]] == ["query.no-such"]
    assert problem["hint"].startswith("The route takes ")


@pytest.mark.parametrize(("method", "path", "name", "is_list"), PARAMETERS)
async def test_only_lists_are_repeated(
    admin: httpx2.AsyncClient, method: str, path: str, name: str, is_list: bool
) -> None:
    """The unknown parameter behind it keeps lists from the engine, too."""
    answer = await admin.request(method, path, params=[(name, "a=1"), (name, "b=2"), ("no-such", "1")])
    wrong = [] if is_list else [{"place": f"query.{name}", "message": "This parameter is there more than once."}]
    assert answer.status_code == 422
    assert answer.json()["errors"][:-1] == wrong


def test_both_kinds_of_parameters_were_tried() -> None:
    assert {is_list for *_, is_list in PARAMETERS} == {False, True}


async def test_the_nearest_name_is_told(admin: httpx2.AsyncClient) -> None:
    answer = (await admin.get("/api/v1/instances?stauts=failed&flow=order")).json()
    assert answer["detail"] == "query.stauts: This route has no such parameter. Did you mean status?"
    assert "business_key" in answer["hint"]


async def test_of_many_wrong_names_the_first_are_told(admin: httpx2.AsyncClient) -> None:
    answer = await admin.get("/health/live", params={f"{n}" * 200: "" for n in range(1, 8)})
    assert [len(wrong["place"]) for wrong in answer.json()["errors"]] == [86] * 5


async def test_nobody_unknown_learns_the_names(server: Served) -> None:
    nobody = await server.client()
    assert (await nobody.get("/api/v1/instances?stauts=failed")).status_code == 401
