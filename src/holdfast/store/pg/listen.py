"""Hints on a connection of its own. A hint says "look now"; the work itself is read from the tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg

from holdfast.errors import StoreError
from holdfast.logs import logger
from holdfast.store.pg.connect import dial, listening_address, pauses
from holdfast.store.pg.statements import SQL

log = logger("holdfast.listen")

QUIET_SECONDS = 15.0  # after that long without a hint it is asked whether anybody is still there
_STOP = "holdfast_stop"


async def listen(dsn: str, on_hint: Callable[[], None], on_stop: Callable[[str], None]) -> None:
    """Call `on_hint` where there may be something to do, `on_stop` where something may have to stop, and both after
    every (re)connect: hints sent meanwhile were lost.

    A pooler passes no notifications on. Then this returns, and the scan finds the work.
    """
    address, waits = listening_address(dsn), pauses()
    while True:
        try:
            connection, relayed = await dial(address)
            async with connection:
                if relayed:
                    log.warning("A pooler passes no hints on; set HOLDFAST_DIRECT_DSN for wake-ups without delay")
                    return
                # No files of SQL: a channel is a name, which can be neither bound nor prepared.
                await connection.execute("listen holdfast")
                await connection.execute("listen holdfast_stop")
                on_hint()
                on_stop("")
                waits = pauses()
                while True:
                    async for notice in connection.notifies(timeout=QUIET_SECONDS):
                        if notice.channel == _STOP:
                            on_stop(notice.payload)
                        else:
                            on_hint()
                    async with asyncio.timeout(QUIET_SECONDS):
                        await connection.execute(SQL.read_backend.sql)
        except (psycopg.Error, StoreError, TimeoutError) as failure:
            log.warning("The listener lost its connection: %s", failure)
            await asyncio.sleep(next(waits))
