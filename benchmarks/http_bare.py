"""What FastAPI and PostgreSQL cost without us: each request is one insert and its commit, and nothing else.

One round trip per request on connections that stay open, the statement prepared: as fast as such an application gets
without gathering requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import psycopg
from fastapi import Body, FastAPI, Request
from psycopg.types.json import Jsonb
from pydantic import BaseModel

from benchmarks.http_serving import serve
from holdfast import run
from holdfast.runtime.process.collector import calm_collector

TABLE = """
    create table if not exists orders (
        id uuid primary key default gen_random_uuid(),
        data jsonb not null,
        created_at timestamptz not null default now()
    )
"""
INSERT = "insert into orders (data) values (%s) returning id, created_at"


class Order(BaseModel):
    id: UUID
    data: dict[str, Any]
    created_at: datetime


def bare_app(idle: asyncio.Queue[psycopg.AsyncConnection]) -> FastAPI:
    app = FastAPI(openapi_url=None)

    @app.post("/orders", status_code=201)
    async def order(request: Request, data: Annotated[dict[str, Any], Body()]) -> Order:
        connection = await idle.get()
        try:
            row = await (await connection.execute(INSERT, (Jsonb(data),))).fetchone()
        finally:
            idle.put_nowait(connection)
        assert row is not None
        return Order(id=row[0], data=data, created_at=row[1])

    return app


async def main() -> None:
    task = json.loads(sys.argv[1])
    idle: asyncio.Queue[psycopg.AsyncConnection] = asyncio.Queue()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(task["pool"]):
            connection = await psycopg.AsyncConnection.connect(task["dsn"], autocommit=True, prepare_threshold=0)
            idle.put_nowait(await stack.enter_async_context(connection))
        await connection.execute(TABLE)
        calm_collector()
        await serve(bare_app(idle))


if __name__ == "__main__":
    run(main())
