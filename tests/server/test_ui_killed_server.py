"""A server dies in the middle of a request: nothing is lost, nothing is decided twice."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from http_server import vouched
from office import EXECUTE, FILE, ORDER
from server_process import server_process

from holdfast import Engine
from holdfast.doors.steps.load import load_steps
from running import Evidence, until

pytestmark = pytest.mark.anyio

ALICE = vouched("acme", "alice", [EXECUTE])
BOB = vouched("acme", "bob", [EXECUTE], roles=["approver"])


async def test_a_workflow_survives_the_death_of_its_server(
    engine: Engine, evidence: Evidence, holdfast_dsn: str
) -> None:
    text = FILE.read_text().replace("operation: python:process", "operation: python:process\n        retry: {calls: 3}")
    for workflow in load_steps(text).require_sound():
        await engine.for_org("acme").publish(workflow)
    decision = {"event": "approved", "input": {"approval_notes": "ok"}}
    key = {"Idempotency-Key": "decision-1"}
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        with server_process(holdfast_dsn) as (process, url):
            order = (await client.post(f"{url}/ui/workflows/orders.approval/start", json=ORDER, headers=ALICE)).json()
            path = f"/ui/workflows/{order['id']}"
            deciding = asyncio.create_task(client.post(f"{url}{path}/advance", json=decision, headers={**BOB, **key}))
            await until(lambda: evidence.calls("process"))
            process.kill()
            with pytest.raises(httpx2.TransportError):
                await deciding
        evidence.open_gate()
        with server_process(holdfast_dsn) as (_, url):
            again = await client.post(f"{url}{path}/advance", json=decision, headers={**BOB, **key})
            assert again.status_code == 200, again.text
            assert (again.json()["status"], again.json()["current_step"]) == ("completed", "approved")
            seen = (await client.get(f"{url}{path}", headers=ALICE)).json()
    assert [entry["event"] for entry in seen["history"]].count("approved") == 1
    assert (evidence.calls("process"), evidence.calls("notify")) == (2, 1)
