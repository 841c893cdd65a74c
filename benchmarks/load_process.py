"""A server or a worker under load, each in a process of its own, on one database."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from benchmarks.http_ours import WORKFLOWS, issue_keys, notify, process
from benchmarks.http_serving import say, serve
from holdfast import Engine, run
from holdfast.doors.steps.load import load_steps
from holdfast.runtime.process.collector import calm_collector
from holdfast.server.app import create_app
from holdfast.server.auth.chain import open_chain
from holdfast.server.auth.settings import AuthSettings
from holdfast.server.settings import ServerSettings


async def main() -> None:
    task: dict[str, Any] = json.loads(sys.argv[1])
    async with Engine(task["dsn"], app="load") as engine:
        engine.register("process", process)
        engine.register("notify", notify)
        for workflow in load_steps(WORKFLOWS).require_sound():
            await engine.publish(workflow)
        calm_collector()
        await (work(engine) if task["mode"] == "worker" else answer(engine))


async def answer(engine: Engine) -> None:
    """Serve, and run nothing: what the requests wait for is done by the worker, so every instance changes hands."""
    keys = await issue_keys(engine)
    chain = open_chain(AuthSettings(api_keys=True), engine.dsn, listen_host="127.0.0.1", org=engine.org)
    async with chain as authenticate:
        settings = ServerSettings(rate=0, most_connections_each=1024, most_streams_each=64)
        await serve(create_app(engine, settings, authenticate=authenticate), keys=keys)


async def work(engine: Engine) -> None:
    async with engine.worker():
        say(working=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    run(main())
