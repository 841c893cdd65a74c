"""A key means one instance, however many processes use it at the same moment."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from holdfast import Engine, Flow

pytestmark = pytest.mark.anyio

PROCESSES, STARTS, KEYS = 8, 1000, 100

STARTER = """
import asyncio, json, sys
from holdfast import Engine

async def main(dsn, first, step, starts, keys):
    async with Engine(dsn) as engine:
        print("ready", flush=True)
        sys.stdin.readline()
        numbers = range(first, starts, step)
        found = await asyncio.gather(*(
            engine.start("order", {"number": n % keys}, key=f"order-{n % keys}") for n in numbers))
        print(json.dumps({f"order-{n % keys}": i.id for n, i in zip(numbers, found)}), flush=True)

asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
"""


async def test_a_thousand_starts_with_a_hundred_keys_make_a_hundred_instances(holdfast_dsn: str) -> None:
    async with Engine(holdfast_dsn) as engine:
        await engine.publish(Flow("order").step("reserve", "reserve").build())
        answers = [json.loads(line) for line in _race(holdfast_dsn)]
        given: dict[str, set[str]] = {}
        for answer in answers:
            for key, id in answer.items():
                given.setdefault(key, set()).add(id)
        assert len(given) == KEYS
        assert all(len(ids) == 1 for ids in given.values())  # everybody was told the same instance

    with psycopg.connect(holdfast_dsn) as connection:
        assert _count(connection, "instances") == KEYS
        assert _count(connection, "signals") == KEYS


def _race(dsn: str) -> list[str]:
    """Every process is ready before the first start is made."""
    numbers = [str(PROCESSES), str(STARTS), str(KEYS)]
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", STARTER, dsn, str(first), *numbers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in range(PROCESSES)
    ]
    try:
        for racer in racers:
            assert _pipe(racer.stdout).readline() == "ready\n"
        for racer in racers:
            _pipe(racer.stdin).write("go\n")
            _pipe(racer.stdin).flush()
        return [_pipe(racer.stdout).readline() for racer in racers]
    finally:
        for racer in racers:
            racer.communicate(timeout=60)


def _pipe(stream: Any) -> Any:
    assert stream is not None
    return stream


def _count(connection: psycopg.Connection[Any], table: str) -> int:
    row = connection.execute(f"select count(*) from holdfast.{table}").fetchone()
    assert row is not None
    return row[0]
