"""Two services for `holdfast worker`: each has only some of the handlers of one flow."""

from __future__ import annotations

import os
from typing import Any

from holdfast import Context, Engine, Flow

FLOW = Flow("delivery").step("cook", "cook").step("drive", "drive").step("clean", "cook").build()


async def work(ctx: Context, data: Any) -> dict[str, int]:
    return {**data, ctx.step: os.getpid()}


def kitchen() -> Engine:
    engine = Engine()
    engine.register("cook", work)
    return engine


def courier() -> Engine:
    engine = Engine()
    engine.register("drive", work)
    return engine
