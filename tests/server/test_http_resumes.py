"""Workflows outlive the servers they were started on, whatever these were doing when they died."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from subprocess import PIPE, Popen
from typing import Any

import httpx2
import pytest
from office import FILE, ORDER
from server_process import server_process

from holdfast import Engine
from holdfast.doors.steps.load import load_steps
from running import Evidence, Recorder, until

pytestmark = pytest.mark.anyio

ALICE = {"X-Holdfast-Tenant": "acme", "X-Holdfast-Subject": "alice"}
BOB = {"X-Holdfast-Tenant": "acme", "X-Holdfast-Subject": "bob", "X-Holdfast-Roles": "approver"}
APPROVAL = {"event": "approved", "input": {"approval_notes": "Looks good"}}
HANDLERS = ["process=hold", "notify=note"]
IMPORT = """\
workflows:
  - id: import
    steps:
      - {id: process, type: system, operation: "python:process", retry: {calls: 3}, output: {}}
      - {id: done, type: terminal}
    transitions:
      - {from: process, to: done, event: completed}
"""


@pytest.fixture
async def company(engine: Engine) -> Engine:
    """The workflows are published; nobody works yet."""
    company = engine.for_org("acme")
    for text in (FILE.read_text(), IMPORT):
        for workflow in load_steps(text).require_sound():
            await company.publish(workflow)
    return company


@asynccontextmanager
async def holdfast_server(dsn: str) -> AsyncIterator[tuple[Popen[str], httpx2.AsyncClient]]:
    """`holdfast server` in a process of its own, and somebody who talks to it."""
    words = ["-m", "holdfast.cli", "server", "--development", "--port", "0", "--json"]
    environment = {**os.environ, "HOLDFAST_DSN": dsn, "HOLDFAST_LOG": "error"}
    process = await asyncio.to_thread(Popen, [sys.executable, *words], stdout=PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        said = json.loads(await asyncio.to_thread(process.stdout.readline))
        async with httpx2.AsyncClient(base_url=said["url"], trust_env=False, timeout=60) as client:
            yield process, client
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


@asynccontextmanager
async def somebody_works(engine: Engine, dsn: str) -> AsyncIterator[None]:
    recorder = Recorder(dsn)
    recorder.register(engine, HANDLERS)
    try:
        async with engine.worker():
            yield
    finally:
        await recorder.close()


async def found(client: httpx2.AsyncClient, id: str) -> dict[str, Any]:
    answer = await client.get(f"/ui/workflows/{id}", headers=BOB)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(workflow: dict[str, Any], actor: str) -> list[str]:
    return [entry["event"] for entry in workflow["history"] if entry["actor"] == actor]


async def test_another_server_goes_on_where_the_first_one_died(
    company: Engine, evidence: Evidence, holdfast_dsn: str
) -> None:
    """The stories of the user who left and of the other user who goes on, with a dead server in between."""
    evidence.open_gate()
    async with somebody_works(company, holdfast_dsn):
        async with holdfast_server(holdfast_dsn) as (process, client):
            begun = await client.post("/ui/workflows/orders.approval/start", json=ORDER, headers=ALICE)
            assert begun.status_code == 201, begun.text
            process.kill()
            with pytest.raises(httpx2.TransportError):
                await client.get("/ui/workflows", headers=ALICE)
        async with holdfast_server(holdfast_dsn) as (_, client):
            [listed] = (await client.get("/ui/workflows?status=active", headers=BOB)).json()["items"]
            seen = await found(client, listed["id"])
            assert (listed["id"], seen["current_step"]["id"]) == (begun.json()["id"], "review")
            assert seen["current_step"]["form"]["required"] == ["approval_notes"]
            assert seen["allowed_events"] == ["approved", "rejected"]
            done = await client.post(f"/ui/workflows/{listed['id']}/advance", json=APPROVAL, headers=BOB)
            assert (done.status_code, done.json()["current_step"]) == (200, "approved"), done.text
            seen = await found(client, listed["id"])
    assert (seen["status"], seen["subject_id"], seen["state"]["approved_by"]) == ("completed", "alice", "bob")
    assert (events(seen, "alice"), "approved" in events(seen, "bob")) == (["step_entered"], True)


async def test_a_running_step_does_not_notice_that_the_server_died(
    company: Engine, evidence: Evidence, holdfast_dsn: str
) -> None:
    key = {"Idempotency-Key": "approval-1"}
    async with somebody_works(company, holdfast_dsn):
        async with holdfast_server(holdfast_dsn) as (process, client):
            begun = await client.post("/ui/workflows/orders.approval/start", json=ORDER, headers=ALICE)
            path = f"/ui/workflows/{begun.json()['id']}/advance"
            asked = asyncio.create_task(client.post(path, json=APPROVAL, headers={**BOB, **key}))
            await until(lambda: evidence.calls("process"))
            process.kill()
            with pytest.raises(httpx2.TransportError):
                await asked
        evidence.open_gate()
        await company.settle(begun.json()["id"], 30)
        async with holdfast_server(holdfast_dsn) as (_, client):
            again = await client.post(path, json=APPROVAL, headers={**BOB, **key})
            assert (again.status_code, again.json()["status"]) == (200, "completed")
            refused = await client.post(path, json=APPROVAL, headers={**BOB, "Idempotency-Key": "another"})
            assert (refused.status_code, refused.json()["code"]) == (409, "WORKFLOW_NOT_ACTIVE")
            seen = await found(client, begun.json()["id"])
    assert events(seen, "bob").count("approved") == 1
    assert (evidence.calls("process"), evidence.calls("notify")) == (1, 1)


async def test_a_step_stuck_in_a_dead_server_is_called_again_by_another_worker(
    company: Engine, evidence: Evidence, holdfast_dsn: str
) -> None:
    """Nobody has to ask for it; whoever asks again under the key of the start finds the same workflow."""
    said = json.dumps({"tenant": "acme", "subject": "alice", "partition": "", "roles": [], "capabilities": []})
    headers = {"x-test-identity": said, "Idempotency-Key": "import-1"}
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        with server_process(holdfast_dsn) as (process, url):
            asked = asyncio.create_task(client.post(f"{url}/ui/workflows/import/start", json={}, headers=headers))
            await until(lambda: evidence.calls("process"))
            process.kill()
            with pytest.raises(httpx2.TransportError):
                await asked
    [stuck] = (await company.list()).items
    assert (await company.descriptor(stuck.id, by="alice")).status == "active"
    evidence.open_gate()
    async with somebody_works(company, holdfast_dsn):
        await company.settle(stuck.id, 30)
        assert (await company.descriptor(stuck.id, by="alice")).status == "completed"
        async with holdfast_server(holdfast_dsn) as (_, client):
            again = await client.post(
                "/ui/workflows/import/start", json={}, headers={**ALICE, "Idempotency-Key": "import-1"}
            )
    assert (again.status_code, again.json()["id"], again.json()["status"]) == (201, stuck.id, "completed")
    assert evidence.calls("process") == 2
