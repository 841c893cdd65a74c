"""The HTTP API with a worker in the same process, as `holdfast up` runs it, and two people who come with API keys.

Nobody is counted: the limit of requests per second would be all that is measured.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.http_serving import serve
from holdfast import Engine, run
from holdfast.doors.steps.load import load_steps
from holdfast.runtime.process.collector import calm_collector
from holdfast.server.app import create_app
from holdfast.server.auth.chain import open_chain
from holdfast.server.auth.keyring import Keyring
from holdfast.server.auth.settings import AuthSettings
from holdfast.server.settings import ServerSettings
from holdfast.store.pg.session import Session

ORDERS = "orders:approve"
WORKFLOWS = """
workflows:
  - id: approval
    name: Order approval
    capabilities: ["orders:approve"]
    input_schema: &order
      type: object
      required: [order_id]
      properties: {order_id: {type: string}, amount: {type: number}}
    steps:
      - id: review
        type: approval
        assignee: {role: approver}
        form: &notes
          type: object
          required: [notes]
          properties: {notes: {type: string, maxLength: 100}}
      - {id: approved, type: terminal}
      - {id: rejected, type: terminal}
    transitions:
      - {from: review, to: approved, event: approved}
      - {from: review, to: rejected, event: rejected}

  - id: chain
    name: Order approval with automatic steps behind it
    capabilities: ["orders:approve"]
    input_schema: *order
    steps:
      - {id: review, type: approval, assignee: {role: approver}, form: *notes}
      - {id: process, type: system, operation: "python:process", input: {order: workflow.order_id}}
      - {id: notify, type: notification, operation: "python:notify", input: {to: workflow.order_id}, output: {}}
      - {id: approved, type: terminal}
    transitions:
      - {from: review, to: process, event: approved}
      - {from: process, to: notify, event: completed}
      - {from: notify, to: approved, event: completed}
"""


async def process(ctx: Any, data: Any) -> dict[str, Any]:
    return {"confirmed": True}


async def notify(ctx: Any, data: Any) -> None:
    return None


async def main() -> None:
    task = json.loads(sys.argv[1])
    async with Engine(task["dsn"]) as engine:
        engine.register("process", process)
        engine.register("notify", notify)
        for workflow in load_steps(WORKFLOWS).require_sound():
            await engine.publish(workflow)
        keys = await issue_keys(engine)
        chain = open_chain(AuthSettings(api_keys=True), engine.dsn, listen_host="127.0.0.1", org=engine.org)
        async with chain as authenticate, engine.worker():
            calm_collector()
            app = create_app(engine, ServerSettings(rate=0), authenticate=authenticate)
            await serve(app, keys=keys)


async def issue_keys(engine: Engine) -> dict[str, str]:
    """One who orders and one who approves: nobody approves their own."""
    session = await Session.open(engine.dsn)
    try:
        ring = Keyring(session)
        return {
            name: (await ring.create(engine.org, name, name, roles=roles, capabilities=(ORDERS,))).text
            for name, roles in (("alice", ()), ("bob", ("approver",)))
        }
    finally:
        await session.close()


if __name__ == "__main__":
    run(main())
