"""Callers that start, advance and look again for some seconds, and count what they were answered."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from benchmarks.http_load import DECISION, ORDER, Connection, Unexpected, written
from holdfast import run

LAST_STEP = "approved"


class Callers:
    def __init__(self, task: dict[str, Any]) -> None:
        self._address = urlsplit(task["url"])
        self._alice, self._bob = task["keys"]["alice"], task["keys"]["bob"]
        self._until = time.monotonic() + task["seconds"]
        self.statuses: Counter[int] = Counter()
        self.broken: list[str] = []
        self.wrong: list[str] = []  # a finished workflow that names another step than its last
        self.finished = 0

    async def call(self) -> None:
        connection = await self._connected()
        while time.monotonic() < self._until:
            try:
                await self._turn(connection)
            except Unexpected as answer:
                self._note(str(answer))
                connection.close()
                connection = await self._connected()
        connection.close()

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, self._address.hostname, self._address.port)
        return connection

    async def _turn(self, connection: Connection) -> None:
        started = await self._ask(connection, written("POST", "/ui/workflows/chain/start", ORDER, self._alice), 201)
        id = started["id"]
        decide = written("POST", f"/ui/workflows/{id}/advance", DECISION, self._bob)
        self._check(id, await self._ask(connection, decide, 200))
        self._check(id, await self._ask(connection, written("GET", f"/ui/workflows/{id}", key=self._bob), 200))

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
    await asyncio.gather(*(callers.call() for _ in range(task["clients"])))
    answer = {
        "statuses": {str(status): count for status, count in callers.statuses.items()},
        "finished": callers.finished,
        "wrong": callers.wrong[:10],
        "wrongs": len(callers.wrong),
        "broken": callers.broken[:5],
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    run(main())
