"""Callers that start, advance and look again for some seconds, and count what they were answered.

Some of them follow the stream of what they started, and compare it with the trail once it has ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import httpx2

from benchmarks.http_load import DECISION, ORDER, Connection, Unexpected, written
from holdfast import run

LAST_STEP = "approved"
FOLLOWERS = 16


class Callers:
    def __init__(self, task: dict[str, Any]) -> None:
        self._address = urlsplit(task["url"])
        self._alice, self._bob = task["keys"]["alice"], task["keys"]["bob"]
        self._until = time.monotonic() + task["seconds"]
        self.statuses: Counter[int] = Counter()
        self.broken: list[str] = []
        self.wrong: list[str] = []  # a finished workflow that names another step than its last
        self.finished = 0
        self.followed = 0
        self.missed: list[str] = []  # a stream that told another story than the trail

    async def call(self, *, follows: bool) -> None:
        connection = await self._connected()
        while time.monotonic() < self._until:
            try:
                await self._turn(connection, follows=follows)
            except Unexpected as answer:
                self._note(str(answer))
                connection.close()
                connection = await self._connected()
        connection.close()

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self._address.hostname, self._address.port)
        return connection

    async def _turn(self, connection: Connection, *, follows: bool) -> None:
        started = await self._ask(connection, written("POST", "/ui/workflows/chain/start", ORDER, self._alice), 201)
        id = started["id"]
        stream = asyncio.create_task(self._stream(id)) if follows else None
        decide = written("POST", f"/ui/workflows/{id}/advance", DECISION, self._bob)
        self._check(id, await self._ask(connection, decide, 200))
        self._check(id, await self._ask(connection, written("GET", f"/ui/workflows/{id}", key=self._bob), 200))
        if stream is not None:
            trail = written("GET", f"/api/v1/instances/{id}/events?limit=200", key=self._bob)
            self._compare(id, await stream, await self._ask(connection, trail, 200))

    async def _stream(self, id: str) -> list[Any]:
        """Every line of the instance as the server sends it, until the stream ends with the instance."""
        target = f"/api/v1/instances/{id}/stream"
        headers = {"X-API-Key": self._bob}
        async with (
            httpx2.AsyncClient(base_url=self._address.geturl(), trust_env=False, timeout=60) as client,
            client.stream("GET", target, headers=headers) as answer,
        ):
            self.statuses[answer.status_code] += 1
            return [json.loads(line[6:]) async for line in answer.aiter_lines() if line.startswith("data: ")]

    def _compare(self, id: str, told: list[Any], trail: dict[str, Any]) -> None:
        self.followed += 1
        if told != trail["items"]:
            self.missed.append(f"{id}: {len(told)} of {len(trail['items'])} lines, the last {told[-1:]}")

    async def _ask(self, connection: Connection, request: bytes, wanted: int) -> Any:
        answer = json.loads(await connection.ask(request, wanted))
        self.statuses[wanted] += 1
        return answer

    def _check(self, id: str, told: dict[str, Any]) -> None:
        step = told["current_step"]
        if told["status"] == "completed":
            self.finished += 1
            if (step["id"] if isinstance(step, dict) else step) != LAST_STEP:
                self.wrong.append(f"{id}: {step}")

    def _note(self, answer: str) -> None:
        code = answer[9:12]
        self.statuses[int(code) if answer.startswith("HTTP/") and code.isdigit() else 0] += 1
        self.broken.append(answer[:300])


async def main() -> None:
    task = json.loads(sys.argv[1])
    callers = Callers(task)
    followers = min(FOLLOWERS, task["clients"])
    await asyncio.gather(*(callers.call(follows=n < followers) for n in range(task["clients"])))
    answer = {
        "statuses": {str(status): count for status, count in callers.statuses.items()},
        "finished": callers.finished,
        "wrong": callers.wrong[:10],
        "wrongs": len(callers.wrong),
        "followed": callers.followed,
        "missed": callers.missed,
        "broken": callers.broken[:5],
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    run(main())
