"""One flow over three services, each a process of its own that offers only its own handlers.

    python examples/sagas_services.py

The program starts `holdfast worker sagas_services:orders`, `…:payments` and `…:shipping` as separate processes; itself
it only starts flows and waits for their end. The services come after the orders, on purpose: a step waits for whoever
has its handler, and nothing fails. One order cannot be shipped, so the payment is refunded, by the payment service; one
cannot be paid, so there is nothing to refund. It runs on the database of HOLDFAST_DSN, otherwise on the embedded
PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from holdfast import Context, DoNotRetry, Engine, Flow, Retry, Undo

Order = dict[str, Any]
SERVICES = ("orders", "payments", "shipping")

# Handlers by name: whoever publishes the flow needs none of them.
FLOW = (
    Flow("service_order")
    .step("take", "orders.take", undo=Undo("orders.drop", name="drop"))
    .step("charge", "payments.charge", undo=Undo("payments.refund", name="refund", retry=Retry(attempts=3)))
    .step("ship", "shipping.ship")
    .build()
)  # fmt: skip


# --- the order desk --------------------------------------------------------------------------------------------------


def orders(engine: Engine) -> None:
    engine.register("orders.take", take)
    engine.register("orders.drop", drop)


async def take(ctx: Context, order: Order) -> Order:
    return signed(order, "take")


async def drop(ctx: Context, undo: dict[str, Any]) -> Order:
    return signed({}, "drop")


# --- payments --------------------------------------------------------------------------------------------------------


def payments(engine: Engine) -> None:
    engine.register("payments.charge", charge)
    engine.register("payments.refund", refund)


async def charge(ctx: Context, order: Order) -> Order:
    if order.get("card") == "empty":
        raise DoNotRetry("There is no money on the card.")
    return signed(order | {"payment": ctx.idempotency_key[:8]}, "charge")


async def refund(ctx: Context, undo: dict[str, Any]) -> Order:
    """It is called for a charge that failed as well, which has no output: then there is no payment to give back."""
    if undo["output"] is None:
        return signed({"refunded": None}, "refund")
    return signed({"refunded": undo["output"]["payment"]}, "refund")


# --- shipping --------------------------------------------------------------------------------------------------------


def shipping(engine: Engine) -> None:
    engine.register("shipping.ship", ship)


async def ship(ctx: Context, order: Order) -> Order:
    if order["country"] == "Atlantis":
        raise DoNotRetry("No courier goes there.")
    return signed(order, "ship")


def signed(order: Order, step: str) -> Order:
    """Which process did it; the check below compares."""
    return order | {"by": {**order.get("by", {}), step: os.getpid()}}


@contextmanager
def service(name: str, dsn: str) -> Iterator[int]:
    """A worker process with the handlers of that service; SIGTERM lets it finish what it does."""
    command = [sys.executable, "-m", "holdfast.cli", "worker", f"{Path(__file__).stem}:{name}", "--concurrency=4"]
    environment = os.environ | {"HOLDFAST_DSN": dsn, "HOLDFAST_LOG": "warning"}
    process = subprocess.Popen(command, cwd=Path(__file__).parent, env=environment)  # noqa: S603 - our own command
    try:
        print(f"{name} runs as process {process.pid}")
        yield process.pid
    finally:
        process.terminate()
        process.wait()


async def taken_back(engine: Engine, id: str) -> dict[str, Any]:
    """What each compensation answered."""
    return {step.name: step.output for step in await engine.steps(id) if step.kind == "compensate"}


async def main() -> None:
    async with Engine() as engine:
        await engine.publish(FLOW)
        near = await engine.start("service_order", {"country": "Norway"})
        far = await engine.start("service_order", {"country": "Atlantis"})
        poor = await engine.start("service_order", {"country": "Norway", "card": "empty"})
        print(f"three orders are {near.status}: none of the services runs yet")
        with ExitStack() as running:
            pids = {name: running.enter_context(service(name, engine.dsn)) for name in SERVICES}
            near = await engine.wait(near.id, timeout=60)
            far = await engine.wait(far.id, timeout=60)
            poor = await engine.wait(poor.id, timeout=60)
        undone = await taken_back(engine, far.id)
        unpaid = await taken_back(engine, poor.id)
    print(f"To Norway:   {near.status}, done by {near.data['by']}")
    print(f"To Atlantis: {far.status}, taken back by {undone}")
    print(f"Not paid:    {poor.status}, taken back by {unpaid}")
    assert (near.status, far.status, poor.status) == ("completed", "failed", "failed")
    assert near.data["by"] == {"take": pids["orders"], "charge": pids["payments"], "ship": pids["shipping"]}
    assert undone["refund"]["by"] == {"refund": pids["payments"]}, "what payments did, payments takes back"
    assert undone["refund"]["refunded"] is not None
    assert unpaid["refund"]["refunded"] is None, "the charge itself had failed"
    assert undone["drop"]["by"] == unpaid["drop"]["by"] == {"drop": pids["orders"]}
    print("Every step ran where its handler is.")


if __name__ == "__main__":
    asyncio.run(main())
