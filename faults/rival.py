"""One of many processes that advance the same instances: `python -m faults.rival <task as JSON>`.

It waits for a line on its standard input, then sends every instance the same signals under the same ids as all its
rivals do, in an order of its own, while it also works. It answers with what became of its sends.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import uuid
from collections import Counter
from typing import Any

from faults.worker import Hands, Task
from holdfast import Engine
from holdfast.errors import Busy, HoldfastError
from holdfast.runtime.commit import committer
from holdfast.store.queue import work as queue

AT_ONCE = 32


async def send(engine: Engine, instance: str, event: str, number: int, tally: Counter[str]) -> None:
    id = uuid.uuid5(uuid.UUID(instance), f"{event}-{number}")
    while True:
        try:
            await engine.signal(instance, event, {"number": number}, id=id)
        except Busy:
            tally["busy"] += 1
        except HoldfastError as failure:
            tally[failure.code] += 1
            return
        else:
            tally["ok"] += 1
            return


def watch_claims(tally: Counter[str]) -> None:
    """Whether a claim of work, or of signals, ever brings more than it was asked for."""
    claim_work, lock = queue.claim_work, committer.lock

    async def claim(session: Any, queues: Any, limit: int, worker: bytes) -> Any:
        claimed = await claim_work(session, queues, limit, worker)
        note(len(claimed), limit)
        return claimed

    async def lock_and_claim(session: Any, known: Any, claim: int, signals: int, **options: Any) -> Any:
        locked = await lock(session, known, claim, signals, **options)
        note(locked.claimed, claim)
        return locked

    def note(got: int, limit: int) -> None:
        tally["claims"] += got > 0
        tally["overclaimed"] += got > limit

    queue.claim_work, committer.lock = claim, lock_and_claim


async def compete(task: dict[str, Any]) -> None:
    luck = random.Random(task["seed"])
    tally: Counter[str] = Counter()
    watch_claims(tally)
    hands = Hands(Task(dsn=task["dsn"], sink=task["sink"], nap=0.01))
    async with Engine(task["dsn"]) as engine:
        hands.register(engine)
        async with engine.worker(lease=30.0):
            print(json.dumps({"ready": True}), flush=True)
            instances: list[str] = json.loads(await asyncio.to_thread(sys.stdin.readline))
            for event, number in [*(("tick", n) for n in range(task["ticks"])), ("stop", 0)]:
                luck.shuffle(instances)
                left = iter(instances)

                async def lane(event: str = event, number: int = number, left: Any = left) -> None:
                    for instance in left:
                        await send(engine, instance, event, number, tally)

                await asyncio.gather(*(lane() for _ in range(AT_ONCE)))
            print(json.dumps(tally), flush=True)
            await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(compete(json.loads(sys.argv[1])))
