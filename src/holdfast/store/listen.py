"""Wake-up hints on a connection of its own. A hint says "look now"; what there is to see is read from the tables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import psycopg

log = logging.getLogger("holdfast.listen")

RECONNECT_PAUSE = 0.5


async def listen(dsn: str, on_hint: Callable[[], None]) -> None:
    """Call `on_hint` for every notification, and after every (re)connect: what happened meanwhile was not heard."""
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
                await connection.execute("listen holdfast")
                on_hint()
                async for _ in connection.notifies():
                    on_hint()
        except psycopg.Error as failure:
            log.warning("The listener lost its connection: %s", failure)
            await asyncio.sleep(RECONNECT_PAUSE)
