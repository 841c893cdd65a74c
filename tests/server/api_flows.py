"""Flows and people that the tests of `/api/v1` share."""

from __future__ import annotations

from typing import Any

import httpx2
from http_server import Served

from holdfast import DoNotRetry, Engine

REVIEW_YAML = """\
workflows:
  - id: orders.review
    name: Review of an order
    version: 1
    capabilities: ["orders:review"]
    steps:
      - id: review
        type: approval
        assignee: {role: approver}
        capabilities: ["orders:approve"]
        form:
          type: object
          properties: {notes: {type: string, maxLength: 20}}
      - id: approved
        type: terminal
      - id: refused
        type: terminal
    transitions:
      - {from: review, to: approved, event: approved}
      - {from: review, to: refused, event: rejected}
"""

# A person decides, then something is done; nobody needs a capability.
DECISION: dict[str, Any] = {
    "name": "decision",
    "entry": "ask",
    "policy": {"data": "context", "on_error": "dlq"},
    "nodes": [
        {
            "id": "ask",
            "kind": "human",
            "roles": ["clerk"],
            "form": {"type": "object", "properties": {"notes": {"type": "string"}}},
        },
        {"id": "do", "kind": "task", "handler": "do"},
        {"id": "end", "kind": "end"},
        {"id": "no", "kind": "end"},
    ],
    "edges": [
        {"id": "yes", "source": "ask", "target": "do", "on": "confirmed"},
        {"id": "not", "source": "ask", "target": "no", "on": "rejected"},
        {"id": "done", "source": "do", "target": "end"},
    ],
}
# Only people with the capability see it; another one is needed to go on.
SECRET: dict[str, Any] = {
    "name": "secret",
    "entry": "rest",
    "kind": "steps",
    "policy": {"data": "context", "capabilities": ["secrets:see"]},
    "nodes": [
        {"id": "rest", "kind": "human", "roles": ["keeper"], "capabilities": ["secrets:act"]},
        {"id": "end", "kind": "terminal"},
    ],
    "edges": [{"id": "go", "source": "rest", "target": "end", "on": "opened"}],
}
# A system says that something has come; a person takes the same word at another step.
PARCEL: dict[str, Any] = {
    "name": "parcel",
    "entry": "travel",
    "kind": "steps",
    "policy": {"data": "context"},
    "nodes": [
        {"id": "travel", "kind": "wait_event", "wait": {"event": "arrived"}},
        {"id": "unpack", "kind": "human", "roles": ["clerk"]},
        {"id": "end", "kind": "terminal"},
    ],
    "edges": [
        {"id": "there", "source": "travel", "target": "unpack", "on": "arrived"},
        {"id": "done", "source": "unpack", "target": "end", "on": "arrived"},
    ],
}
FLOWS = (DECISION, SECRET, PARCEL)


def machine(name: str, environment: str = "prod") -> dict[str, Any]:
    """The blueprint of a machine that goes from state to state, and never ends by itself."""
    return {
        "name": name,
        "environment": environment,
        "version": 1,
        "states": [{"name": "New", "is_initial": True}, {"name": "Open"}, {"name": "Closed", "is_final": True}],
        "events": [{"code": 1, "name": "approved"}, {"code": 2, "name": "rejected"}, {"code": 3, "name": "closed"}],
        "transitions": [
            {"from": "New", "event": 1, "to": "Open"},
            {"from": "Open", "event": 1, "to": "Open"},
            {"from": "Open", "event": 2, "to": "New"},
            {"from": "Open", "event": 3, "to": "Closed"},
        ],
    }


async def publish_flows(engine: Engine, org: str = "acme") -> None:
    for flow in FLOWS:
        await engine.for_org(org).publish(flow)


class Service:
    """What the step `do` calls; it may be down."""

    is_up = True

    def do(self, ctx: Any, data: Any) -> Any:
        if not self.is_up:
            raise DoNotRetry("it is down")
        return {"done": True}


def register_handlers(engine: Engine) -> Service:
    service = Service()
    engine.register("do", service.do)
    return service


async def clerk(server: Served, name: str = "carla", **more: Any) -> httpx2.AsyncClient:
    return await server.person(name, roles=["clerk"], **more)


async def operator(server: Served, name: str = "olga", **more: Any) -> httpx2.AsyncClient:
    return await server.person(name, roles=["operator", "publisher"], **more)


async def start(client: httpx2.AsyncClient, flow: str = "decision", **body: Any) -> dict[str, Any]:
    answer = await client.post("/api/v1/instances", json={"flow": flow, **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def decide(client: httpx2.AsyncClient, id: str, decision: str = "confirmed", **data: Any) -> dict[str, Any]:
    """What the one open task of an instance is decided with."""
    [task] = [one for one in (await get(client, "tasks", instance=id))["items"] if one["status"] != "completed"]
    return await post(client, f"tasks/{task['id']}/decide", 200, {"decision": decision, "data": data or None})


async def get(client: httpx2.AsyncClient, path: str, expected: int = 200, /, **query: Any) -> Any:
    answer = await client.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == expected, answer.text
    return answer.json()


async def post(client: httpx2.AsyncClient, path: str, expected: int = 200, body: Any = None, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await client.post(f"/api/v1/{path}", json=body, headers=named)
    assert answer.status_code == expected, answer.text
    return answer.json()
