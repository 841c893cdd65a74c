"""An application served until its standard input closes: it tells its address, and its cost whenever it is asked."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from holdfast.server.http.listener import listening


async def serve(app: Any, **facts: Any) -> None:
    """Whoever is measured listens the same way."""
    async with listening(app, "127.0.0.1", 0) as url:
        say(url=url, **facts)
        while await asyncio.to_thread(sys.stdin.readline):
            say(cpu=time.process_time())


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)
