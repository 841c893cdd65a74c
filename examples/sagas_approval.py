"""A purchase that a person must approve, and its three ends: confirmed, rejected, withdrawn.

    python examples/sagas_approval.py

    check_budget ── approve (a manager) ── book ── order
                                           unbook

A rejection ends the flow as `aborted` and takes nothing back, so nothing that needs undoing stands before the question.
A cancel does take back, also after the approval. Whoever confirms fills in the form: which account pays. It runs on the
database of HOLDFAST_DSN, otherwise on the embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Context, Engine, Flow, Task
from holdfast.errors import Conflict, InputInvalid

Purchase = dict[str, Any]
DAY = 86_400
FORM = {
    "type": "object",
    "properties": {"account": {"enum": ["office", "travel"]}},
    "required": ["account"],
}  # a JSON Schema: what is confirmed has to fit it
booked: dict[str, int] = {}


async def check_budget(ctx: Context, purchase: Purchase) -> Purchase:
    return {**purchase, "needs": "manager" if purchase["price"] < 10_000 else "director"}


async def book(ctx: Context, purchase: Purchase) -> Purchase:
    booked[purchase["what"]] = purchase["price"]
    return purchase


async def unbook(ctx: Context, undo: dict[str, Purchase]) -> None:
    booked.pop(undo["input"]["what"], None)


async def order(ctx: Context, purchase: Purchase) -> Purchase:
    return {**purchase, "ordered": True}


PURCHASE = (
    Flow("purchase")
    .step("check_budget", check_budget)
    .human("approve", roles=["manager"], due=2 * DAY, form=FORM)
    .step("book", book, undo=unbook)
    .wait_event("delivery_date")
    .step("order", order)
    .build()
)  # fmt: skip


async def ask(engine: Engine, what: str, price: int) -> tuple[str, Task]:
    """The instance, and the task it waits for."""
    instance = await engine.start("purchase", {"what": what, "price": price}, by="eve")
    await engine.drain(timeout=30)
    [task] = await engine.tasks(instance.id)
    print(f"\n{what}: {task.node} waits for one of {task.roles}")
    return instance.id, task


async def tell(engine: Engine, id: str) -> str:
    await engine.drain(timeout=30)
    ended = await engine.get(id)
    print(f"  {ended.status}: {', '.join(f'{s.name} {s.status}' for s in await engine.steps(id))}")
    return ended.status


async def confirmed(engine: Engine) -> None:
    id, task = await ask(engine, "desk", 800)
    try:
        await engine.decide(task.id, by="ann", decision="confirmed")
    except InputInvalid as refusal:
        print(f"  {refusal.code}: {refusal.misfits[0].message}")
    paid = {**task.payload, "account": "office"}
    await engine.decide(task.id, by="ann", decision="confirmed", comment="fits the budget", data=paid)
    try:
        await engine.decide(task.id, by="ben", decision="rejected")
    except Conflict as refusal:
        print(f"  too late for ben: {refusal.message}")
    await engine.drain(timeout=30)
    await engine.signal(id, "delivery_date", {"what": "desk", "on": "2031-05-01"})
    assert await tell(engine, id) == "completed"


async def rejected(engine: Engine) -> None:
    id, task = await ask(engine, "golden desk", 9_000)
    await engine.decide(task.id, by="ann", decision="rejected", comment="really?")
    assert await tell(engine, id) == "aborted"
    decided = await engine.task(task.id)
    print(f"  {decided.decision} by {decided.decided_by}: {decided.comment}")


async def withdrawn(engine: Engine) -> None:
    id, task = await ask(engine, "second desk", 700)
    await engine.decide(task.id, by="ann", decision="confirmed", data={**task.payload, "account": "office"})
    await engine.drain(timeout=30)
    assert "second desk" in booked
    await engine.cancel(id, by="eve", reason="The first one will do.")
    assert await tell(engine, id) == "cancelled"
    assert "second desk" not in booked, "a cancel takes back what was booked"


async def main() -> None:
    async with Engine() as engine:
        await engine.publish(PURCHASE)
        await confirmed(engine)
        await rejected(engine)
        await withdrawn(engine)
    assert booked == {"desk": 800}
    print(f"\nBooked in the end: {booked}")


if __name__ == "__main__":
    asyncio.run(main())
