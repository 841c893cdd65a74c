"""`/metrics` of a worker, as a scraper and as others find it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from holdfast import DoNotRetry, Engine, Flow, Retry
from holdfast.errors import HoldfastError
from holdfast.runtime.telemetry import scrape
from holdfast.runtime.telemetry.scrape import exposed

pytestmark = pytest.mark.anyio


async def decline(ctx: Any, data: Any) -> Any:
    raise DoNotRetry("the card is declined")


async def stumble(ctx: Any, data: Any) -> Any:
    if ctx.attempt < 3:
        raise ValueError("not yet")


@pytest.fixture
async def page(engine: Engine) -> AsyncIterator[str]:
    async with exposed(engine, "127.0.0.1", 0) as url:
        yield url


async def scraped(url: str) -> str:
    async with httpx2.AsyncClient() as client:
        answer = await client.get(url)
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")
    return answer.text


async def test_failures_are_counted_by_flow_and_step(engine: Engine, page: str) -> None:
    await engine.publish(Flow("order").step("pay", decline).build())
    await engine.publish(Flow("patient").step("try", stumble, retry=Retry(attempts=3)).build())
    await engine.publish(Flow("kept", dlq=True).step("keep", decline).build())
    for flow in ("order", "patient", "kept"):
        await engine.start(flow, {})
    other = engine.for_org("acme")
    await other.publish(Flow("secret").step("plan", decline).build())
    await other.start("secret", {})
    async with engine.worker():
        await engine.drain()
        told = (await scraped(page)).splitlines()
    for line in (
        'holdfast_calls_failed_total{flow="order",step="pay"} 1.0',
        'holdfast_calls_failed_total{flow="patient",step="try"} 2.0',
        'holdfast_calls_failed_total{flow="(others)",step="(others)"} 1.0',
        'holdfast_instances_stopped_total{flow="order",status="failed"} 1.0',
        'holdfast_instances_stopped_total{flow="kept",status="dlq"} 1.0',
        'holdfast_dead_letters_total{flow="kept"} 1.0',
        "holdfast_dead_letters_open 1.0",
        "holdfast_instances_in_dlq 1.0",
        "holdfast_instances_suspended 0.0",
    ):
        assert line in told
    assert not any("secret" in line or ("patient" in line and "stopped" in line) for line in told)
    [left] = [line for line in told if line.startswith("holdfast_lease_seconds_left ")]
    assert 0 < float(left.split()[1]) <= 15


async def raw(url: str, request: bytes) -> bytes:
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        writer.write(request)
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /metrics?name[]=up HTTP/1.1", b"200"),
        ("GET / HTTP/1.1", b"404"),
        ("GET /metrics/../etc HTTP/1.1", b"404"),
        ("POST /metrics HTTP/1.1", b"405"),
        ("nonsense", b"404"),
    ],
)
async def test_one_page_is_served_and_the_connection_ends(page: str, request_line: str, status: bytes) -> None:
    assert (await raw(page, request_line.encode() + b"\r\nHost: x\r\n\r\n")).split()[1] == status


async def test_who_says_too_much_or_too_little_is_cut_off(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await raw(page, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000) == b""
    monkeypatch.setattr(scrape, "SECONDS", 0.05)
    assert await raw(page, b"GET /metrics") == b""
    assert await raw(page, b"") == b""


async def test_so_many_at_once_and_no_more(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "AT_ONCE", 0)
    assert await raw(page, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
    monkeypatch.setattr(scrape, "AT_ONCE", 1)
    assert (await raw(page, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_an_address_that_is_taken_is_named(engine: Engine, page: str) -> None:
    port = urlsplit(page).port
    assert port is not None
    with pytest.raises(HoldfastError, match=str(port)) as refusal:
        async with exposed(engine, "127.0.0.1", port):
            pass
    assert (refusal.value.code, "--metrics-port" in refusal.value.hint) == ("METRICS_ADDRESS_TAKEN", True)
