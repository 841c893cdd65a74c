"""One measurement of Absurd: a task as JSON in the first argument, one JSON line on standard output.

Runs in the peers' environment, so it imports nothing of ours. The schema comes with the `absurdctl` package.
"""

import asyncio
import json
import os
import sys
import threading
import time
from importlib.metadata import version

import absurdctl
import psycopg
import uvloop
from absurd_sdk import Absurd, AsyncAbsurd

QUEUE = "bench"
UNFINISHED = "select exists (select from absurd.t_bench where state not in ('completed', 'failed', 'cancelled'))"
COMPLETED = "select count(*) from absurd.t_bench where state = 'completed'"
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # the loop that we run on


def open_queue(url: str) -> Absurd:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
    app = Absurd(url, QUEUE)
    app.create_queue(QUEUE)
    return app


def sync_worker(url: str, steps: int) -> Absurd:
    app = Absurd(url, QUEUE)

    @app.register_task("flow")
    def flow(params, context):
        for number in range(steps):
            context.step(f"step_{number}", lambda: number)  # noqa: B023

    return app


def async_worker(url: str, steps: int) -> AsyncAbsurd:
    app = AsyncAbsurd(url, QUEUE)

    @app.register_task("flow")
    async def flow(params, context):
        async def work():
            return 1

        for number in range(steps):
            await context.step(f"step_{number}", work)

    return app


def await_idle(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            row = connection.execute(UNFINISHED).fetchone()
            if row is not None and not row[0]:
                return
            time.sleep(0.05)


def drain(task: dict) -> float:
    """Only the draining is timed; each worker thread has a client, and so a connection, of its own."""
    admin = open_queue(task["url"])
    for number in range(task["flows"]):
        admin.spawn("flow", {"n": number}, queue=QUEUE)
    threads = []
    for _ in range(task["workers"]):
        if task["mode"] == "threads":
            app = sync_worker(task["url"], task["steps"])
            options = {"concurrency": task["concurrency"], "batch_size": task["batch"]}
            threads.append(threading.Thread(target=app.start_worker, kwargs=options, daemon=True))
        else:
            other = async_worker(task["url"], task["steps"])
            run = lambda app=other: asyncio.run(app.start_worker(concurrency=task["concurrency"]))  # noqa: E731
            threads.append(threading.Thread(target=run, daemon=True))
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    await_idle(task["url"])
    return time.perf_counter() - begin


def alone(task: dict) -> list[float]:
    open_queue(task["url"])
    app = sync_worker(task["url"], task["steps"])
    took = []
    for _ in range(task["flows"]):
        begin = time.perf_counter()
        app.spawn("flow", {}, queue=QUEUE)
        app.work_batch(batch_size=1)
        took.append(time.perf_counter() - begin)
    return took


def check(task: dict) -> None:
    """A figure counts only if the work behind it is in the tables."""
    with psycopg.connect(task["url"]) as connection:
        row = connection.execute(COMPLETED).fetchone()
    if row is None or row[0] != task["flows"]:
        raise SystemExit(f"Absurd {task['mode']}: {row} tasks are completed instead of {task['flows']}")


def main() -> None:
    task = json.loads(sys.argv[1])
    result = alone(task) if task["mode"] == "alone" else drain(task)
    check(task)
    key = "latencies" if isinstance(result, list) else "seconds"
    print(json.dumps({key: result, "version": version("absurd-sdk")}), flush=True)
    # The worker threads poll until told to stop, which would only delay the next measurement.
    os._exit(0)


if __name__ == "__main__":
    main()
