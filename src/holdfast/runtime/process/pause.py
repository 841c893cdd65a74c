"""Processes that look at the same things do not all look at the same moment."""

from __future__ import annotations

import asyncio
import random


async def pause(seconds: float, jitter: float = 0.2) -> None:
    """Sleep for about `seconds`; `jitter` is the share that chance may add or take away."""
    await asyncio.sleep(seconds * random.uniform(1 - jitter, 1 + jitter))  # noqa: S311 - nothing to guess here
