"""What a scrape tells: the names of the caller's own flows, and not one of another tenant's."""

from __future__ import annotations

import re

import pytest
from http_server import served

from holdfast import Engine, Flow
from holdfast.doors.steps.load import load_steps
from holdfast.testing import advance
from running import until

pytestmark = pytest.mark.anyio
TENANTS = ("default", "acme", "globex")
WORKFLOW = """
workflows:
  - id: {tenant}-flow
    name: Of {tenant}
    timeout: 72h
    on_timeout: {tenant}-expired
    steps:
      - {{id: {tenant}-broken, type: system, operation: "python:fail"}}
      - {{id: {tenant}-wait, type: action, timeout: 24h, on_timeout: {tenant}-late}}
      - {{id: {tenant}-late, type: action}}
      - {{id: {tenant}-expired, type: terminal}}
    transitions:
      - {{from: {tenant}-broken, to: {tenant}-wait, event: error}}
      - {{from: {tenant}-broken, to: {tenant}-expired, event: completed}}
      - {{from: {tenant}-wait, to: {tenant}-expired, event: completed}}
      - {{from: {tenant}-late, to: {tenant}-expired, event: completed}}
"""


def fail(_ctx: object, _data: object) -> None:
    raise ValueError("the service is down")


def names(scrape: str) -> set[str]:
    """The tenants of which something is named."""
    return set(re.findall("|".join(TENANTS), "\n".join(line for line in scrape.splitlines() if "{" in line)))


async def test_a_scrape_names_the_flows_of_one_tenant(engine: Engine) -> None:
    engine.register("fail", fail)
    for tenant in TENANTS:
        for workflow in load_steps(WORKFLOW.format(tenant=tenant)).require_sound():
            await engine.for_org(tenant).publish(workflow)
    async with engine.worker():
        started = [(tenant, (await engine.for_org(tenant).start(f"{tenant}-flow", {})).id) for tenant in TENANTS]
        for wait in ("wait", "late", "expired"):
            for tenant, id in started:
                await until(lambda t=tenant, i=id, w=wait: _stands(engine, t, i, f"{t}-{w}"))
            await advance(engine, hours=50)
        async with served(engine, metrics="authenticated") as server:
            for tenant in TENANTS[1:]:
                told = (await (await server.person("ann", tenant=tenant)).get("/metrics")).text
                assert names(told) == {tenant}
                assert f'holdfast_timeouts_total{{flow="{tenant}-flow",kind="step"}} 1.0' in told
                assert 'holdfast_timeouts_total{flow="(others)",kind="workflow"} 2.0' in told
        async with served(engine, metrics="open") as server:
            assert names((await (await server.client()).get("/metrics")).text) == {"default"}


async def test_a_server_without_a_worker_tells_the_truth_about_the_database(engine: Engine) -> None:
    engine.register("fail", fail)
    await engine.publish(Flow("kept", dlq=True).step("fail", "fail").build())
    await engine.start_many("kept", [{}] * 3)
    await engine.drain()
    async with served(engine, metrics="open") as server:
        told = (await (await server.client()).get("/metrics")).text.splitlines()
    assert "holdfast_dead_letters_open 3.0" in told
    assert "holdfast_instances_in_dlq 3.0" in told
    assert not any(line.startswith("holdfast_lease_seconds_left ") for line in told)  # it has none


async def _stands(engine: Engine, tenant: str, id: str, step: str) -> bool:
    current = (await engine.for_org(tenant).descriptor(id, by="ann", sees_all=True)).current_step
    return current is not None and current.id == step
