"""One measurement of DBOS: a task as JSON in the first argument, one JSON line on standard output.

Runs in the peers' environment, so it imports nothing of ours. Every mode starts from a fresh database and a fresh
process: DBOS keeps its engine in a global, and closing an event loop takes its executor down with it.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import psycopg
import sqlalchemy
import uvloop
from dbos import DBOS, DBOSClient

QUEUE = "bench"
WARM_UP = 20
UNFINISHED = "select exists (select from dbos.workflow_status where status in ('ENQUEUED', 'PENDING'))"
COUNT = "select count(*) from dbos.workflow_status where status = %s"
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # the loop that we run on


@DBOS.step()
def step(number: int) -> int:
    return number


@DBOS.step()
async def async_step(number: int) -> int:
    return number


@DBOS.workflow()
def flow(steps: int) -> int:
    for number in range(steps):
        step(number)
    return steps


@DBOS.workflow()
async def async_flow(steps: int) -> int:
    for number in range(steps):
        await async_step(number)
    return steps


def launch(task: dict) -> None:
    tuning = {} if task["ping"] else {"db_engine_kwargs": {"pool_pre_ping": False}}
    DBOS(
        config={
            "name": "bench",
            "system_database_url": task["url"],
            "sys_db_pool_size": task["pool"],
            "log_level": "ERROR",
            **tuning,
        }
    )
    DBOS.launch()


def from_threads(width: int, count: int, call: Callable[[int], object]) -> float:
    with ThreadPoolExecutor(width) as pool:
        begin = time.perf_counter()
        for _ in pool.map(call, range(count)):
            pass
        return time.perf_counter() - begin


def threads(task: dict) -> float:
    return from_threads(task["in_flight"], task["flows"], lambda _: flow(task["steps"]))


def started(task: dict) -> float:
    return from_threads(
        task["in_flight"], task["flows"], lambda _: DBOS.start_workflow(flow, task["steps"]).get_result()
    )


def coroutines(task: dict) -> float:
    async def run() -> float:
        left = iter(range(task["flows"]))

        async def one() -> None:
            for _ in left:
                await async_flow(task["steps"])

        begin = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(task["in_flight"])))
        return time.perf_counter() - begin

    return asyncio.run(run())


def await_idle(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            row = connection.execute(UNFINISHED).fetchone()
            if row is not None and not row[0]:
                return
            time.sleep(0.05)


def open_queue(task: dict) -> None:
    DBOS.register_queue(QUEUE, worker_concurrency=task["in_flight"], polling_interval_sec=task["polling"])


def drain(task: dict) -> float:
    """Only the draining is timed: the flows were enqueued before the queue had a worker. That favours the peer."""
    body = async_flow if task["mode"] == "queue_async" else flow
    from_threads(16, task["flows"], lambda _: DBOS.enqueue_workflow(QUEUE, body, task["steps"]))
    begin = time.perf_counter()
    open_queue(task)
    await_idle(task["url"])
    return time.perf_counter() - begin


def queue_with_starts(task: dict) -> float:
    open_queue(task)
    begin = time.perf_counter()
    from_threads(task["in_flight"], task["flows"], lambda _: DBOS.enqueue_workflow(QUEUE, flow, task["steps"]))
    await_idle(task["url"])
    return time.perf_counter() - begin


def enqueue(task: dict) -> float:
    return from_threads(task["in_flight"], task["flows"], lambda _: DBOS.enqueue_workflow(QUEUE, flow, task["steps"]))


def enqueue_options() -> dict:
    return {"queue_name": QUEUE, "workflow_name": "flow"}


def own_engine(task: dict) -> sqlalchemy.Engine:
    """The client's own pool always pings before use; an engine given to it does as `ping` says."""
    url = task["url"].replace("postgresql://", "postgresql+psycopg://", 1)
    return sqlalchemy.create_engine(url, pool_size=task["pool"], pool_pre_ping=task["ping"])


def client_enqueue(task: dict) -> float:
    client = DBOSClient(system_database_engine=own_engine(task))
    return from_threads(task["in_flight"], task["flows"], lambda _: client.enqueue(enqueue_options(), task["steps"]))


def enqueue_in_transactions(task: dict) -> float:
    """DBOS has no bulk enqueue; many enqueues in one caller's transaction is the nearest thing."""
    engine = own_engine(task)
    client = DBOSClient(system_database_engine=engine)
    begin = time.perf_counter()
    for first in range(0, task["flows"], task["batch"]):
        with engine.begin() as connection:
            for _ in range(first, min(first + task["batch"], task["flows"])):
                client.enqueue_in_transaction(connection, enqueue_options(), task["steps"])
    return time.perf_counter() - begin


def alone(call: Callable[[int], object]) -> Callable[[dict], list[float]]:
    def measure(task: dict) -> list[float]:
        took = []
        for _ in range(task["flows"]):
            begin = time.perf_counter()
            call(task["steps"])
            took.append(time.perf_counter() - begin)
        return took

    return measure


MODES: dict[str, Callable[[dict], float | list[float]]] = {
    "threads": threads,
    "started": started,
    "coroutines": coroutines,
    "queue": drain,
    "queue_async": drain,
    "queue_with_starts": queue_with_starts,
    "enqueue": enqueue,
    "client_enqueue": client_enqueue,
    "enqueue_in_transactions": enqueue_in_transactions,
    "alone": alone(flow),
    "alone_started": alone(lambda steps: DBOS.start_workflow(flow, steps).get_result()),
}


def check(task: dict) -> None:
    """A figure counts only if the work behind it is in the tables."""
    status = "ENQUEUED" if "enqueue" in task["mode"] else "SUCCESS"
    wanted = task["flows"] + (0 if status == "ENQUEUED" else WARM_UP)
    with psycopg.connect(task["url"]) as connection:
        row = connection.execute(COUNT, (status,)).fetchone()
    if row is None or row[0] != wanted:
        raise SystemExit(f"DBOS {task['mode']}: {row} workflows are {status} instead of {wanted}")


def main() -> None:
    task = json.loads(sys.argv[1])
    launch(task)
    for _ in range(WARM_UP):
        flow(task["steps"])
    result = MODES[task["mode"]](task)
    check(task)
    key = "latencies" if isinstance(result, list) else "seconds"
    print(json.dumps({key: result, "version": version("dbos")}), flush=True)
    # Its threads may outlive a closed loop; the figure is printed, nothing is left to save.
    os._exit(0)


if __name__ == "__main__":
    main()
