"""Whether the process is alive and ready, and what it counts."""

from __future__ import annotations

import pytest
from http_server import Served, served

from holdfast import Engine

pytestmark = pytest.mark.anyio


async def test_a_living_process_says_so(server: Served) -> None:
    answer = await (await server.client()).get("/health/live")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_ready_means_database_and_schema(server: Served) -> None:
    answer = await (await server.client()).get("/health/ready")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "checks": {"database": "ok", "schema": "ok", "worker": "absent"}}


async def test_ready_knows_the_worker_of_its_life(holdfast_dsn: str) -> None:
    engine = Engine(holdfast_dsn)
    async with engine.lifespan()(None), served(engine) as server:
        answer = await (await server.client()).get("/health/ready")
        assert answer.json()["checks"]["worker"] == "ok"


async def test_an_absent_database_is_unready_and_its_address_stays_secret(engine: Engine) -> None:
    async with served(engine) as server:
        real, engine.dsn = engine.dsn, "postgresql://nobody:secret@127.0.0.1:1/nothing"
        try:
            answer = await (await server.client()).get("/health/ready")
        finally:
            engine.dsn = real
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"] == "unreachable"
    assert "secret" not in answer.text


async def test_metrics_are_off_unless_asked_for(server: Served) -> None:
    answer = await (await server.client()).get("/metrics")
    assert (answer.status_code, answer.json()["code"]) == (404, "METRICS_OFF")


async def test_metrics_may_be_open(engine: Engine) -> None:
    async with served(engine, metrics="open") as server:
        answer = await (await server.client()).get("/metrics")
    assert answer.status_code == 200
    assert "holdfast_commits_total" in answer.text


async def test_metrics_may_ask_who_is_there(engine: Engine) -> None:
    async with served(engine, metrics="authenticated") as server:
        nobody = await (await server.client()).get("/metrics")
        somebody = await (await server.person("scraper")).get("/metrics")
    assert (nobody.status_code, somebody.status_code) == (401, 200)
