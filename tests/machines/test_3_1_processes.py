"""Triggers from four processes at once: one request has one answer, and of conflicting events one applies."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from orders import deliveries, office, rows

from holdfast import Engine

pytestmark = pytest.mark.anyio

PROCESSES, CALLERS = 4, 16
SERVICE = """
import asyncio, sys
import msgspec
from holdfast import Engine

async def main(dsn, request, callers):
    async with Engine(dsn) as engine:
        await engine.machine_of("prod", "order")
        print("ready", flush=True)
        sys.stdin.readline()
        check = ("prod", "order", "O-1", "Check")
        calls = [engine.trigger(*check, request_id=request or None) for _ in range(int(callers))]
        print(msgspec.json.encode(await asyncio.gather(*calls)).decode(), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def answers_of(dsn: str, request: str) -> list[dict[str, Any]]:
    """The answers to the same trigger, sent by all processes at the same time."""
    command = [sys.executable, "-c", SERVICE, dsn, request, str(CALLERS // PROCESSES)]
    pipe = subprocess.PIPE
    services = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(PROCESSES)]
    try:
        for service in services:
            assert service.stdout is not None
            assert service.stdout.readline() == "ready\n"
        for service in services:
            assert service.stdin is not None
            service.stdin.write("go\n")
            service.stdin.flush()
        return [answer for service in services for answer in json.loads(service.communicate(timeout=60)[0])]
    finally:
        for service in services:
            service.kill()
            service.wait()


async def test_sixteen_triggers_of_one_request_are_one_entry_with_equal_answers(engine: Engine) -> None:
    await office(engine)
    answers = answers_of(engine.dsn, "r-1")
    assert len(answers) == CALLERS
    assert all(answer == answers[0] for answer in answers)
    assert (answers[0]["applied"], answers[0]["lifecycle"]) == (True, 1)
    assert len(deliveries(engine.dsn)) == 1
    assert rows(engine.dsn, "select count(*) from holdfast.instances") == [(1,)]


async def test_5_4_of_sixteen_conflicting_events_one_applies(engine: Engine) -> None:
    await office(engine)
    answers = answers_of(engine.dsn, "")
    assert sorted(answer["reason"] or "" for answer in answers) == ["", *["not_applicable"] * (CALLERS - 1)]
    assert len({answer["instance"] for answer in answers}) == 1
    assert len(deliveries(engine.dsn)) == 1
