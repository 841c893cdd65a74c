"""The demo (`make demo`): 300 orders, two workers, one of which is killed in the middle.

It runs on an embedded PostgreSQL in a directory of its own, takes a database of its own there, and counts in the end
what the outside world has seen: the shop's tables and the gateway's book. Exit code 0 means that the count is right.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from holdfast import Engine, embedded
from holdfast.errors import HoldfastError
from holdfast.store.admin.schema import migrate
from holdfast.store.embedded.binaries import find_installation
from order_gateway import Gateway, running_gateway
from order_shop import FLOW, ITEMS, STEPS, STOCK_PER_ITEM, create_tables, new_order
from order_view import View

HERE = Path(__file__).resolve().parent
LOGS = HERE.parent / "build" / "demo"
DATABASES = "demo_%"
LEASE = 3.0
GLANCE = 0.1
PATIENCE = 60.0
HELD = """
    select work.worker::text, work.step_id::text
    from holdfast.work join holdfast.workers on workers.id = work.worker
    where workers.pid = %s
"""


@dataclass
class Worker:
    name: str
    process: subprocess.Popen[bytes]
    log: Path


@dataclass
class Crash:
    """What the killed worker left behind, and when others had it."""

    at: float
    worker: str  # its id in the database
    steps: list[str]
    recovered: float | None = None
    finished: float | None = None


@dataclass
class Demo:
    dsn: str
    orders: int
    gateway: Gateway
    view: View
    workers: list[Worker]
    connection: psycopg.Connection
    began: float = field(default_factory=time.monotonic)
    crash: Crash | None = None

    # --- the run ------------------------------------------------------------------------------------------------------

    async def run(self) -> bool:
        async with Engine(self.dsn) as engine:
            await engine.publish(FLOW)
            numbers = range(1, self.orders + 1)
            placed = await engine.start_many(
                "order", [new_order(n) for n in numbers], keys=[f"order-{n}" for n in numbers]
            )
            self.view.note(f"{len(placed)} orders placed; two workers share them")
            self.began = time.monotonic()
            await self._watch()
            ended = time.monotonic()
            wrong = [*await self._wrong_steps(engine, [i.id for i in placed]), *self._wrong_effects()]
        self._report(ended - self.began, wrong)
        return not wrong

    async def _watch(self) -> None:
        deadline = time.monotonic() + PATIENCE
        done = -1
        while done < self.orders:
            by_step = dict(
                self._rows("select node, count(*) from holdfast.steps where status = 'completed' group by node")
            )
            [(done,)] = self._rows("select count(*) from holdfast.instances where status = 'completed'")
            self.view.update(done, {step: by_step.get(step, 0) for step in STEPS})
            if self.crash is None and done >= self.orders // 3:
                self._kill_one()
            self._follow_recovery()
            self._check_alive()
            if time.monotonic() > deadline:
                raise SystemExit(f"Only {done} of {self.orders} orders were done in time; the logs are in {LOGS}.")
            await asyncio.sleep(GLANCE)

    def _kill_one(self) -> None:
        """SIGKILL, at a moment when it holds leases: no handler, no `finally`, no goodbye."""
        victim = self.workers[0]
        pid = victim.process.pid
        if not self._rows(HELD, pid):
            return
        victim.process.send_signal(signal.SIGKILL)
        at = time.monotonic()
        victim.process.wait()
        left = self._rows(HELD, pid)
        if not left:
            raise SystemExit("The killed worker had just finished what it held: please run the demo again.")
        self.crash = Crash(at, left[0][0], [step for _, step in left])
        self.view.note(f"{victim.name} (pid {pid}) was killed with SIGKILL; it held {len(left)} steps under a lease")

    def _follow_recovery(self) -> None:
        crash = self.crash
        if crash is None or crash.finished is not None:
            return
        if crash.recovered is None:
            [(left,)] = self._rows("select count(*) from holdfast.work where worker = %s", crash.worker)
            if left == 0:
                crash.recovered = time.monotonic()
                self.view.note(f"its {len(crash.steps)} steps were taken over after {crash.recovered - crash.at:.1f} s")
        [(open_,)] = self._rows(
            "select count(*) from holdfast.steps where id = any(%s::uuid[]) and closed_at is null", crash.steps
        )
        if open_ == 0:
            crash.finished = time.monotonic()

    def _check_alive(self) -> None:
        for worker in self.workers:
            code = worker.process.poll()
            if code is not None and not (self.crash and code == -signal.SIGKILL):
                raise SystemExit(f"{worker.name} ended with {code}; its log is {worker.log}.")

    # --- the count ----------------------------------------------------------------------------------------------------

    async def _wrong_steps(self, engine: Engine, ids: list[str]) -> list[str]:
        """Every order is completed by exactly the steps of the flow, in their order."""
        wrong: list[str] = []
        for id in ids:
            instance = await engine.get(id)
            steps = [step for step in await engine.steps(id) if step.behaviour == "work"]
            if instance.status != "completed" or [s.name for s in steps if s.status == "completed"] != list(STEPS):
                wrong.append(f"order {instance.key} is {instance.status}: {[(s.name, s.status) for s in steps]}")
        return wrong

    def _wrong_effects(self) -> list[str]:
        """The outside world has seen each effect once."""
        orders = [new_order(number) for number in range(1, self.orders + 1)]
        sold = {item: sum(o["quantity"] for o in orders if o["item"] == item) for item in ITEMS}
        stock = dict(self._rows("select item, quantity from shop.stock"))
        [(reservations,)] = self._rows("select count(*) from shop.reservations")
        [(shipments,)] = self._rows("select count(distinct order_no) from shop.shipments")
        facts = {
            "reservations": (reservations, self.orders),
            "shipments": (shipments, self.orders),
            "charges": (len(self.gateway.charges), self.orders),
            "money taken": (sum(self.gateway.charges.values()), sum(o["amount"] for o in orders)),
            "stock left": (stock, {item: STOCK_PER_ITEM - sold[item] for item in ITEMS}),
            "workers killed": (int(self.crash is not None), 1),
        }
        return [f"{what}: {seen}, expected {right}" for what, (seen, right) in facts.items() if seen != right]

    def _report(self, seconds: float, wrong: list[str]) -> None:
        [(steps, calls)] = self._rows("select count(*), sum(calls) from holdfast.steps where behaviour = 'work'")
        [(reserved, reserve_calls)] = self._rows("select count(*), sum(calls) from shop.reservations")
        [(shipped, ship_calls)] = self._rows("select count(*), sum(calls) from shop.shipments")
        facts = {
            "orders": f"{self.orders} in {seconds:.1f} s",
            "steps": f"{steps} completed, {steps / seconds:.0f} a second (the handlers are slow on purpose)",
            "calls of handlers": f"{calls}: {calls - steps} were retries or repeated what the killed worker had begun",
            "charges": f"{len(self.gateway.charges)} made in {sum(self.gateway.calls.values())} calls",
            "reservations": f"{reserved} made in {reserve_calls} calls",
            "shipments": f"{shipped} made in {ship_calls} calls",
        }
        if self.crash is not None and self.crash.recovered is not None and self.crash.finished is not None:
            facts["killed worker"] = (
                f"{len(self.crash.steps)} steps taken over after {self.crash.recovered - self.crash.at:.1f} s "
                f"(lease {LEASE:.0f} s), completed after {self.crash.finished - self.crash.at:.1f} s"
            )
        self.view.report(facts, wrong)

    def _rows(self, query: str, *values: object) -> list[tuple]:
        return self.connection.execute(query, values or None).fetchall()


# --- what it needs around it ------------------------------------------------------------------------------------------


@contextmanager
def running_server(view: View, *, keep: bool) -> Iterator[embedded.Server]:
    directory = embedded.default_directory().with_name("demo")
    was_running = embedded.status(directory) is not None
    view.note(f"PostgreSQL keeps its data in {directory}")
    server = embedded.start(directory)
    try:
        yield server
    finally:
        if not (was_running or keep):
            embedded.stop(directory)


def new_database(server: embedded.Server) -> str:
    """A fresh one per run; those of earlier runs go, unless somebody is still looking at them."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for (old,) in connection.execute(
            "select datname from pg_database where datname like %s", [DATABASES]
        ).fetchall():
            try:
                connection.execute(sql.SQL("drop database {}").format(sql.Identifier(old)))
            except psycopg.errors.ObjectInUse:
                continue
        name = f"demo_{time.strftime('%Y%m%d_%H%M%S')}_{os.getpid()}"
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    return server.dsn.replace("/holdfast?", f"/{name}?", 1)


@contextmanager
def running_workers(dsn: str, port: int) -> Iterator[list[Worker]]:
    LOGS.mkdir(parents=True, exist_ok=True)
    workers: list[Worker] = []
    try:
        workers += [_start_worker(1, dsn, port)]
        workers += [_start_worker(2, dsn, port)]
        yield workers
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.terminate()
        for worker in workers:
            worker.process.wait()


def _start_worker(number: int, dsn: str, port: int) -> Worker:
    log = LOGS / f"worker-{number}.log"
    command = [sys.executable, "-m", "holdfast.cli", "worker", "order_shop:configure"]
    environment = os.environ | {"HOLDFAST_DSN": dsn, "DEMO_GATEWAY_PORT": str(port)}
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*command, "--concurrency=4", f"--lease={LEASE}"], cwd=HERE, env=environment, stdout=output, stderr=output
        )
    return Worker(f"worker {number}", process, log)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=300, help="how many orders to place (at least 100)")
    parser.add_argument("--keep", action="store_true", help="leave PostgreSQL running to look around")
    arguments = parser.parse_args()
    view = View(max(100, arguments.orders), STEPS)
    with ExitStack() as stack:
        server = stack.enter_context(running_server(view, keep=arguments.keep))
        gateway = stack.enter_context(running_gateway())
        dsn = new_database(server)
        migrate(dsn)
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        create_tables(connection)
        workers = stack.enter_context(running_workers(dsn, gateway.port))
        with view:
            is_right = asyncio.run(Demo(dsn, view.orders, gateway, view, workers, connection).run())
    is_running = embedded.status(server.directory) is not None
    view.next_steps(server.directory, dsn, find_installation().bin / "psql", is_running=is_running)
    return 0 if is_right else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HoldfastError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
