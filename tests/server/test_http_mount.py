"""The API inside somebody else's application, which opens the engine."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from http_server import authenticate, listening, vouched
from office import FILE
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import Engine
from holdfast.doors.steps.load import load_steps
from holdfast.server.app import create_app
from holdfast.server.settings import ServerSettings

pytestmark = pytest.mark.anyio


def in_fastapi(engine: Engine) -> Any:
    host = FastAPI(lifespan=engine.lifespan())
    host.mount("/flows", create_app(engine, ServerSettings(rate=0), authenticate=authenticate))

    @host.get("/own")
    async def own() -> dict[str, str]:
        return {"whose": "the host's"}

    return host


def in_starlette(engine: Engine) -> Any:
    api = create_app(engine, ServerSettings(rate=0), authenticate=authenticate)
    return Starlette(lifespan=engine.lifespan(), routes=[Mount("/flows", api)])


@pytest.mark.parametrize("host", [in_fastapi, in_starlette])
async def test_a_host_opens_the_engine_and_serves_it_below_a_path(host: Any, holdfast_dsn: str) -> None:
    async with (
        listening(host(Engine(holdfast_dsn))) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, headers=vouched("acme", "alice")) as alice,
    ):
        ready = await alice.get("/flows/health/ready")
        assert ready.json()["checks"] == {"database": "ok", "schema": "ok", "worker": "ok"}
        refused = await alice.post("/flows/ui/workflows/nothing/start", json={})
        assert refused.status_code == 404
        assert refused.json()["code"] == "FLOW_UNKNOWN"
        assert refused.json()["instance"] == "/flows/ui/workflows/nothing/start"
        assert refused.headers["x-request-id"]


async def test_a_process_from_its_start_to_its_end_below_a_path(holdfast_dsn: str) -> None:
    engine = Engine(holdfast_dsn)
    engine.register("book", lambda ctx, data: {"booked": True})
    people = [vouched("acme", name) for name in ("alice", "bob")]
    async with (
        listening(in_fastapi(engine)) as url,
        httpx2.AsyncClient(base_url=f"{url}/flows", trust_env=False, headers=people[0]) as alice,
        httpx2.AsyncClient(base_url=f"{url}/flows", trust_env=False, headers=people[1]) as bob,
    ):
        for workflow in load_steps(FILE.read_text()).require_sound():
            await engine.for_org("acme").publish(workflow)
        begun = await alice.post("/ui/workflows/claims/start", json={"amount": 5})
        assert begun.status_code == 201, begun.text
        assert begun.headers["location"] == f"/flows/ui/workflows/{begun.json()['id']}"
        wish = {"event": "approved", "input": {"note": "fine"}}
        done = await bob.post(f"/ui/workflows/{begun.json()['id']}/advance", json=wish)
        assert (done.status_code, done.json()["current_step"], done.json()["status"]) == (200, "paid", "completed")
        assert (await alice.get(f"{url}{begun.headers['location']}")).json()["state"]["booked"] is True


async def test_the_host_keeps_its_own_routes(holdfast_dsn: str) -> None:
    async with (
        listening(in_fastapi(Engine(holdfast_dsn))) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False) as client,
    ):
        assert (await client.get("/own")).json() == {"whose": "the host's"}
        assert "x-request-id" not in (await client.get("/own")).headers


async def test_a_server_that_was_told_of_nobody_knows_nobody(engine: Engine) -> None:
    async with (
        listening(create_app(engine)) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, headers=vouched("acme", "alice")) as client,
    ):
        answer = await client.post("/ui/workflows/orders.approval/start", json={})
        assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")
