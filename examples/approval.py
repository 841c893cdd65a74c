"""An expense waits for a manager: two people reach for the same task, one gets it, decides, and the flow goes on.

    python examples/approval.py

It runs on the database of HOLDFAST_DSN, otherwise on the embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Context, Engine, Flow, Task
from holdfast.errors import Conflict

DAY = 86_400


async def collect(ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "receipts": len(data["items"]), "total": sum(data["items"])}


async def pay(ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "paid": True}


FORM = {"type": "object", "properties": {"total": {"type": "number", "maximum": 1000}}}  # a JSON Schema
EXPENSE = (
    Flow("expense_approval")
    .step("collect", collect)
    .human("approve", roles=["manager"], due=2 * DAY, priority=80, form=FORM)
    .step("pay", pay)
    .build()
)


async def reach_for(engine: Engine, task: Task, person: str) -> str | None:
    """The person's name if they got the task."""
    try:
        await engine.claim(task.id, by=person, roles=["manager"])
    except Conflict as refusal:
        print(f"{person} was too late: {refusal.message}")
        return None
    print(f"{person} has the task.")
    return person


async def run(engine: Engine) -> None:
    await engine.publish(EXPENSE)
    instance = await engine.start("expense_approval", {"items": [40, 80]}, by="eve")
    await engine.drain()

    [task] = await engine.tasks(instance.id)
    print(f"{task.node} waits for one of {task.roles}: {task.payload['total']} in {task.payload['receipts']} receipts")

    reached = await asyncio.gather(*(reach_for(engine, task, person) for person in ("ann", "ben")))
    [holder] = [person for person in reached if person is not None]
    await engine.decide(task.id, by=holder, decision="confirmed", comment="within budget", data=task.payload)
    await engine.drain()

    ended = await engine.get(instance.id)
    print(f"The expense is {ended.status}; paid: {ended.data['paid']}")
    for event in await engine.task_events(task.id):
        print(f"  {event.type} by {event.actor}")


async def main() -> None:
    async with Engine() as engine:
        await run(engine)


if __name__ == "__main__":
    asyncio.run(main())
