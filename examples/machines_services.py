"""The last part of the demo (`make demo`): vendors register with two services, and one of them is killed.

    python examples/machines_services.py

`checks` and `mail` are `holdfast worker` processes of their own. `checks` answers hooks and gates and sends the next
event; `mail` writes a letter for every transition. In the middle `mail` is killed with SIGKILL. Vendors go on
registering: nobody waits for who only looks on, and nothing is sent to who is down. When `mail` is back it gets what it
missed, each vendor's letters in their order. In the end the letters are compared with the lives of the vendors. It runs
on the database of HOLDFAST_DSN, otherwise on the embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from holdfast import ConsumerEvent, Engine, Machine, Trigger, Verdict
from holdfast.errors import HoldfastError

HERE = Path(__file__).resolve().parent
MACHINES = HERE / "machines"
LOGS = HERE.parent / "build" / "demo"
ENV, VENDOR = "demo", "vendorregistration"
VENDORS = 24
PATIENCE = 60.0
HASTE = {  # a killed service is found out and served again within seconds, not minutes
    "HOLDFAST_CONSUMER_TTL": "2",
    "HOLDFAST_ACK_DELIVERED_RESEND": "3",
    "HOLDFAST_LOG": "warning",
}
TABLE = """create table if not exists example_letters (
    id bigint generated always as identity, vendor text, entry int, state text, process int, unique (vendor, entry))"""
WRITE = "insert into example_letters (vendor, entry, state, process) values (%s, %s, %s, %s)"


# --- the two services ------------------------------------------------------------------------------------------------


def checks(engine: Engine) -> None:
    service = engine.consumer("checks", env=ENV, definitions=[VENDOR])

    @service.hook("APP.REG.CHECK.VENDOR_REGISTERED")
    async def check(event: ConsumerEvent) -> Trigger | None:
        return Trigger(event.on_success) if event.on_success else None

    @service.hook()
    async def gate(event: ConsumerEvent) -> Verdict:
        return Verdict.success()

    @service.complete("PendingPQValidation")
    async def scored(event: ConsumerEvent) -> Trigger | None:
        return Trigger(event.send, {"score": 95}) if event.send else None


def mail(engine: Engine) -> None:
    service = engine.consumer("mail", env=ENV, definitions=[VENDOR], takes_hooks=False)

    @service.on(transactional=True)
    def write(event: ConsumerEvent, ctx: Any) -> None:
        time.sleep(0.1)  # printers are slow
        ctx.conn.execute(WRITE, [event.external_ref, event.lifecycle, event.to_state, os.getpid()])


class Service:
    """One of them as a process."""

    def __init__(self, name: str, dsn: str) -> None:
        self.name = name
        command = [sys.executable, "-m", "holdfast.cli", "worker", f"{Path(__file__).stem}:{name}"]
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log = LOGS / f"{name}.log"
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                command, cwd=HERE, env=os.environ | HASTE | {"HOLDFAST_DSN": dsn}, stdout=output, stderr=output
            )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()


# --- the story -------------------------------------------------------------------------------------------------------


class Demo:
    def __init__(self, engine: Engine, db: psycopg.Connection) -> None:
        self.engine = engine
        self.db = db
        self.run = uuid4().hex[:8]
        self.services: list[Service] = []

    async def play(self) -> None:
        engine = self.engine
        self.services = [Service(name, engine.dsn) for name in ("checks", "mail")]
        await self.until(self.are_registered, "the services did not come up")
        print(f"• checks (pid {self.services[0].process.pid}) and mail (pid {self.services[1].process.pid}) are up")
        sent = [await engine.trigger(ENV, VENDOR, self.ref(n), 1000, by="portal") for n in range(VENDORS)]
        print(f"• {VENDORS} vendors register; checks moves each through three states, mail writes a letter for each")

        await self.until(lambda: self.letters() >= VENDORS // 2, "mail wrote no letters")
        self.services[1].kill()
        written = self.letters()
        print(f"• mail was killed with SIGKILL after {written} letters")
        ends = [await engine.wait(one.instance, timeout=PATIENCE) for one in sent]
        assert {end.status for end in ends} == {"completed"}
        await self.until(self.is_down, "mail was not found to be down")
        waiting = (await engine.get_consumer(ENV, "mail")).open
        print(f"• nobody waited for it: all {VENDORS} vendors are registered, and {waiting} facts are kept for mail")

        self.services.append(Service("mail", engine.dsn))
        back = time.monotonic()
        await self.until(self.is_idle, "mail did not catch up")
        print(f"• mail came back and caught up in {time.monotonic() - back:.1f} s")
        await self.compare([one.instance for one in sent], written)

    async def compare(self, instances: list[str], before: int) -> None:
        """What was written, beside what has happened."""
        for n, instance in enumerate(instances):
            entries = (await self.engine.lifecycle(instance)).entries[1:]
            letters = self.rows("select entry, state from example_letters where vendor = %s order by id", self.ref(n))
            assert letters == [(entry.number, entry.to_state) for entry in entries], (letters, entries)
        again = await self.engine.notices(code="ACK_RETRY", consumer="mail", limit=200)
        repeated = sum(1 for notice in again.items if notice.instance_id in instances)
        print()
        print(f"  letters     {self.letters()} for {VENDORS} vendors: {before} before the kill, the rest after it")
        print(f"  sent again  {repeated}: what the killed process had in hand, under the same handle")
        print()
        print("Nothing was lost, nothing was written twice, and every vendor's letters are in order.")

    # --- what it looks at ----------------------------------------------------------------------------------------

    def ref(self, number: int) -> str:
        return f"V-{number}/{self.run}"

    def letters(self) -> int:
        [(count,)] = self.rows("select count(*) from example_letters where vendor like %s", f"%/{self.run}")
        return count

    async def are_registered(self) -> bool:
        return {c.name for c in await self.engine.consumers(ENV) if c.alive} == {"checks", "mail"}

    async def is_down(self) -> bool:
        return not (await self.engine.get_consumer(ENV, "mail")).alive

    async def is_idle(self) -> bool:
        return (await self.engine.get_consumer(ENV, "mail")).open == 0

    async def until(self, condition: Callable[[], Any], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            for service in self.services:
                if service.process.poll() not in (None, -signal.SIGKILL):
                    raise SystemExit(f"{service.name} ended by itself; its log is {service.log}.")
            if time.monotonic() > deadline:
                raise SystemExit(f"After {PATIENCE:.0f} s {otherwise}; the logs are in {LOGS}.")
            await asyncio.sleep(0.02)

    def rows(self, query: str, *values: object) -> list[tuple]:
        return self.db.execute(query, values).fetchall()


async def main() -> None:
    blueprint = json.loads((MACHINES / "vendor_registration.blueprint.json").read_text())
    machine = Machine.load(blueprint | {"environment": ENV}, MACHINES / "vendor_registration.policy.json")
    async with Engine() as engine:
        await engine.import_machine(machine)
        with psycopg.connect(engine.dsn, autocommit=True) as db:
            db.execute(TABLE)
            demo = Demo(engine, db)
            try:
                await demo.play()
            finally:
                for service in demo.services:
                    service.stop()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except HoldfastError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
