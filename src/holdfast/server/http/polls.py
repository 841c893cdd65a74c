"""Long polls: a request that waits, for as long as its caller is there.

It counts among the caller's open streams while it waits. Its work is cancelled when the caller is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from holdfast.server.access.identity import Identity
from holdfast.server.http.sse import Streams

T = TypeVar("T")


async def poll(request: Request, identity: Identity, work: Coroutine[Any, Any, T], otherwise: T) -> T:
    """Await the work; `otherwise` answers a caller that is gone, and is never read."""
    streams: Streams = request.app.state.streams
    who = (identity.tenant, identity.subject)
    try:
        streams.take(who)
    except BaseException:
        work.close()
        raise
    try:
        return await _while_there(request, work, otherwise)
    finally:
        streams.give_back(who)


async def _while_there(request: Request, work: Coroutine[Any, Any, T], otherwise: T) -> T:
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else otherwise
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait([working, leaving])


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
