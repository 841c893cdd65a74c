"""An order with a save point: what fails before it is taken back as a whole, what fails behind it only up to it.

    python examples/sagas_ecommerce.py

    reserve ── charge ── ◆ paid ── pack ── ship
    release    refund              unpack

Four orders: one arrives, one has a card without money, one lives where the courier does not go, one wants more than
there is. It runs on the database of HOLDFAST_DSN, otherwise on the embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from holdfast import Context, DoNotRetry, Engine, Flow, Retry, Undo

stock = Counter({"kettle": 10})
account = Counter[str]()
parcels: set[int] = set()


async def reserve(ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
    if stock[order["item"]] < order["quantity"]:
        raise DoNotRetry("There are not enough in stock.")
    stock[order["item"]] -= order["quantity"]
    return order


async def release(ctx: Context, undo: dict[str, Any]) -> None:
    """A compensation gets what the step got, and what it answered: null where it failed, and then nothing was taken."""
    if undo["output"] is None:
        return
    stock[undo["output"]["item"]] += undo["output"]["quantity"]


async def charge(ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
    if order["card"] == "empty":
        raise DoNotRetry("There is no money on the card.")
    account[order["customer"]] += order["amount"]
    return {**order, "payment": ctx.idempotency_key[:8]}


async def refund(ctx: Context, undo: dict[str, Any]) -> None:
    """It is called for a charge that failed as well: only what was paid is paid back."""
    if undo["output"] is None:
        return
    account[undo["output"]["customer"]] -= undo["output"]["amount"]


async def pack(ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
    parcels.add(order["number"])
    return order


async def unpack(ctx: Context, undo: dict[str, Any]) -> None:
    parcels.discard(undo["input"]["number"])


async def ship(ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
    if order["country"] == "Atlantis":
        raise ConnectionError("The courier does not answer for Atlantis.")
    return {"parcel": f"P-{order['number']}"}


ORDER = (
    Flow("shop_order", attempts=2)
    .step("reserve", reserve, undo=Undo(release, retry=Retry(attempts=5)))
    .step("charge", charge, undo=Undo(refund, retry=Retry(attempts=5)))
    .save_point("paid")
    .step("pack", pack, undo=unpack)
    .step("ship", ship, retry=Retry(delay=0.05, backoff="exponential"))
    .build()
)  # fmt: skip

CUSTOMER = {"item": "kettle", "quantity": 1, "amount": 40, "card": "fine", "country": "Norway"}
ORDERS = [
    {**CUSTOMER, "number": 1, "customer": "ann"},
    {**CUSTOMER, "number": 2, "customer": "ben", "card": "empty"},
    {**CUSTOMER, "number": 3, "customer": "cleo", "country": "Atlantis"},
    {**CUSTOMER, "number": 4, "customer": "dan", "quantity": 100},
]


async def place(engine: Engine, order: dict[str, Any]) -> str:
    instance = await engine.start("shop_order", order)
    ended = await engine.wait(instance.id, timeout=30)
    print(f"\nOrder {order['number']} of {order['customer']}: {ended.status}")
    for step in await engine.steps(instance.id):
        word = "undone by" if step.kind == "compensate" else step.status
        print(f"  {word:<12} {step.name}")
    return ended.status


async def main() -> None:
    async with Engine() as engine:
        await engine.publish(ORDER)
        async with engine.worker():
            statuses = [await place(engine, order) for order in ORDERS]
    print(f"\nIn stock: {stock['kettle']}; paid: {dict(+account)}; packed: {sorted(parcels)}")
    assert statuses == ["completed", "failed", "failed", "failed"]
    assert stock["kettle"] == 8, "the order that was not paid gave its kettle back, the two paid ones keep theirs"
    # and the order of too many, which took nothing, put nothing back
    assert +account == Counter(ann=40, cleo=40), "behind the save point the money stays: cleo gets another courier"
    assert parcels == {1}, "what was packed behind the save point is unpacked"
    print("Everything is where it should be.")


if __name__ == "__main__":
    asyncio.run(main())
