"""The order process of the demo: its flow, its handlers, and the shop's own tables in the same database.

`configure` is what the workers run: `holdfast worker order_shop:configure`. Every handler can be called twice for one
step, because a worker may die between doing and reporting; the idempotency key makes the second call harmless.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from holdfast import Context, DoNotRetry, Engine, Flow, Retry

STEPS = ("reserve", "charge", "pack", "ship")
ITEMS = ("kettle", "lamp", "chair", "clock")
STOCK_PER_ITEM = 1000
SECONDS_PER_PARCEL = 0.05

FLOW = (
    Flow("order", version=1)
    .step("reserve", "reserve", retry=Retry(attempts=5))
    .step("charge", "charge", retry=Retry(attempts=8, delay=0.1, backoff="exponential", jitter=0.2), timeout=10)
    .step("pack", "pack", retry=Retry(attempts=5))
    .step("ship", "ship", retry=Retry(attempts=5))
    .build()
)

TABLES = """
    create schema shop;
    create table shop.stock (item text primary key, quantity int not null check (quantity >= 0));
    create table shop.reservations (
        key text primary key, order_no int not null, item text not null, quantity int not null,
        calls int not null default 1);
    create table shop.shipments (
        key text primary key, order_no int not null, parcel text not null, calls int not null default 1);
"""

# A repeated call counts itself and takes nothing from the stock.
RESERVE = """
    with reserved as (
        insert into shop.reservations (key, order_no, item, quantity) values (%(key)s, %(no)s, %(item)s, %(quantity)s)
        on conflict (key) do update set calls = reservations.calls + 1
        returning calls
    )
    update shop.stock set quantity = quantity - %(quantity)s
    where item = %(item)s and (select calls from reserved) = 1
"""
SHIP = """
    insert into shop.shipments (key, order_no, parcel) values (%(key)s, %(no)s, %(parcel)s)
    on conflict (key) do update set calls = shipments.calls + 1
"""


def create_tables(connection: psycopg.Connection) -> None:
    connection.execute(TABLES)
    for item in ITEMS:
        connection.execute("insert into shop.stock values (%s, %s)", [item, STOCK_PER_ITEM])


def new_order(number: int) -> dict[str, Any]:
    return {"no": number, "item": ITEMS[number % len(ITEMS)], "quantity": 1 + number % 3, "amount": 500 + number}


class Shop:
    """The handlers, and the connections they use."""

    def __init__(self, dsn: str, gateway_port: int) -> None:
        self._dsn = dsn
        self._gateway_port = gateway_port
        self._idle: list[psycopg.AsyncConnection] = []

    async def reserve(self, ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
        async with self._connection() as connection:
            await connection.execute(RESERVE, order | {"key": ctx.idempotency_key})
        return order

    def charge(self, ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
        """A plain function: it runs in a thread and may block."""
        gateway = http.client.HTTPConnection("127.0.0.1", self._gateway_port, timeout=5)
        try:
            gateway.request(
                "POST", "/charges", json.dumps({"amount": order["amount"]}), {"Idempotency-Key": ctx.idempotency_key}
            )
            answer = gateway.getresponse()
            body = json.loads(answer.read())
        finally:
            gateway.close()
        if answer.status == http.HTTPStatus.PAYMENT_REQUIRED:
            raise DoNotRetry("The card was declined.")
        if answer.status != http.HTTPStatus.OK:
            raise ConnectionError(f"The gateway answered {answer.status}.")
        return order | {"payment": body["payment"]}

    async def pack(self, ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(SECONDS_PER_PARCEL)
        return order | {"parcel": f"P-{order['no']:05}"}

    async def ship(self, ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
        async with self._connection() as connection:
            await connection.execute(SHIP, order | {"key": ctx.idempotency_key})
        return {"parcel": order["parcel"], "payment": order["payment"]}

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection]:
        connection = (
            self._idle.pop() if self._idle else await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
        )
        yield connection
        self._idle.append(connection)  # one that raised is dropped instead


def configure(engine: Engine) -> None:
    shop = Shop(engine.dsn, int(os.environ["DEMO_GATEWAY_PORT"]))
    for step in STEPS:
        engine.register(step, getattr(shop, step))
