"""A thousand starts at once, a hundred keys, eight processes: exactly a hundred instances."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from holdfast import Engine, Flow
from running import Evidence

pytestmark = pytest.mark.anyio

PROCESSES = 8
STARTS = 1000
KEYS = 100

CLIENT = (
    """
import asyncio, json, sys
from holdfast import Engine

async def main(dsn, numbers):
    async with Engine(dsn) as engine:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        keys = [n % KEYS for n in numbers]
        started = await asyncio.gather(*(engine.start("order", {"k": k}, key=f"order-{k}") for k in keys))
        print(json.dumps([[k, i.id] for k, i in zip(keys, started)]))

asyncio.run(main(sys.argv[1], range(int(sys.argv[2]), STARTS, PROCESSES)))
""".replace("KEYS", str(KEYS))
    .replace("STARTS", str(STARTS))
    .replace("PROCESSES", str(PROCESSES))
)


def start_client(dsn: str, number: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", CLIENT, dsn, str(number)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_the_same_key_is_the_same_instance_in_every_process(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(Flow("order").step("step", "nobody").build())
    clients = [start_client(engine.dsn, n) for n in range(PROCESSES)]
    try:
        for client in clients:
            assert client.stdout is not None
            assert await asyncio.to_thread(client.stdout.readline) == "ready\n"
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        answers = [await asyncio.to_thread(client.communicate, timeout=60) for client in clients]
    finally:
        for client in clients:
            client.kill()
            client.wait()

    pairs = [pair for output, _ in answers for pair in json.loads(output)]
    assert len(pairs) == STARTS
    assert len({tuple(pair) for pair in pairs}) == KEYS
    assert evidence.ask("select count(*) from holdfast.instances") == KEYS
    assert evidence.ask("select count(*) from holdfast.signals") == KEYS
