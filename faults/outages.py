"""What happens to parcels and their consumers in S27: processes are killed, the database crashes, and nobody pulls.

`Ordeal` sends the first event of parcels as long as there are faults to come, and afterwards waits until the consumers
that live have everything. Then the one that was down comes up.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from faults import cluster, parcels
from faults.client import Client
from faults.fleet import Fleet, Member
from faults.parcels import DOWN, ENV, FLAPPING, NAME, SLOW, Account, Target
from faults.scene import Stage, until
from holdfast import Engine
from holdfast.errors import NotFound

ENGINES = 3
PULLERS = 2
LEASE = 1.5
AHEAD = 3  # shares of the work that are under way at once
LITTLE = 20  # parcels
TOGETHER = 200  # triggers at a time
WITHIN = 4  # every so many-th parcel is sent within a transaction of the harness
RECHECK = 0.5  # seconds between two probes of the one that is down
PATIENCE = 1_200.0
HASTE = {**parcels.HASTE, "HOLDFAST_CONSUMER_RECHECK": str(RECHECK)}
IN_HAND = """
select count(*) from holdfast.ack_consumers where ack_id = any(%s::uuid[]) and consumer_id = %s and closed_at is null
"""
ATTEMPTS = "select coalesce(sum(attempts), 0) from holdfast.ack_consumers where consumer_id = %s"
OPEN = "select count(*) from holdfast.ack_consumers where consumer_id = any(%s::uuid[]) and closed_at is null"
IDS = "select name, id from holdfast.consumers"
BACKENDS = "select count(*) from pg_stat_activity where application_name = %s"


@dataclass
class Tally:
    """What was done to the run, and what was seen meanwhile."""

    refs: list[str] = field(default_factory=list)
    kills: int = 0
    engines: int = 0  # kills that hit: the process had facts in hand
    pullers: int = 0
    crashes: int = 0
    held: int = 0  # facts that were in the hands of killed processes
    pauses: int = 0  # in which nobody pulled
    burned: int = 0  # attempts that were counted of a consumer that was down
    waiting: int = 0  # facts for the one that was down all the time
    healed: float = 0.0
    caught_up: float = 0.0

    @property
    def hits(self) -> int:
        return self.engines + self.pullers

    @property
    def faults(self) -> int:
        return self.kills + self.crashes


@dataclass(frozen=True)
class Plan:
    parcels: int
    engines: int
    flaps: int
    crashes: int
    hits: int  # kills that have to find facts in hand

    @property
    def faults(self) -> int:
        return self.engines + self.flaps * PULLERS + self.crashes


class Ordeal:
    def __init__(self, stage: Stage, target: Target, account: Account, luck: random.Random, plan: Plan) -> None:
        self._stage = stage
        self._target = target
        self._account = account
        self._luck = luck
        self._plan = plan
        self._tally = Tally()
        self._ids: dict[str, Any] = {}

    async def run(self) -> Tally:
        stage = self._stage
        worker = stage.task(worker={"lease": LEASE}, nap=0.3, extras=["faults.parcels:slow"])
        pulling = stage.task(
            dsn=make_conninfo(stage.dsn, application_name=FLAPPING),
            works=False, nap=0.3, chores=["faults.parcels:flap"],
        )  # fmt: skip
        environment = {**HASTE, "HOLDFAST_EFFECTS_ALLOW": self._target.address}
        async with Engine(stage.dsn) as engine:
            client = Client(engine)
            await self._open(engine)
            with (
                Fleet(worker, stage.place, environment=environment) as engines,
                Fleet(pulling, stage.place, eyes=stage.dsn, environment=environment) as pullers,
            ):
                await asyncio.to_thread(engines.grow, ENGINES)
                await until(lambda: self._is_known(engine, SLOW), 30, "the slow one is registered")
                self._ids = dict(cluster.ask(stage.dsn, IDS))
                await self._begin(client, 1)
                await until(lambda: self._is_down(engine), 30, "the one that is down is found to be down")
                await asyncio.to_thread(pullers.grow, PULLERS)
                feeding = asyncio.create_task(self._feed(client))
                await self._break_things(engines, pullers)
                await feeding
                await self._heal(engine, engines)
        return self._tally

    async def _open(self, engine: Engine) -> None:
        await engine.import_machine(parcels.machine())
        wishes: dict[str, Any] = {"max_attempts": parcels.ATTEMPTS, "in_flight": parcels.IN_HAND}
        await engine.register_consumer(ENV, FLAPPING, **wishes)
        await engine.register_consumer(
            ENV, DOWN, way="push", target={"url": self._target.url, "signed": False}, **wishes
        )

    async def _is_known(self, engine: Engine, consumer: str) -> bool:
        try:
            await engine.known_consumer(ENV, consumer)
        except NotFound:
            return False
        return True

    async def _is_down(self, engine: Engine) -> bool:
        return not (await engine.get_consumer(ENV, DOWN)).alive

    # --- work --------------------------------------------------------------------------------------------------------

    async def _feed(self, client: Client) -> None:
        """New parcels all the way: as many as the faults have earned, and a few whenever there is nothing to hit."""
        tally, plan = self._tally, self._plan
        share = -(-plan.parcels // plan.faults)
        while tally.faults < plan.faults or len(tally.refs) < plan.parcels:
            earned = (tally.faults + AHEAD) * share
            if len(tally.refs) < min(earned, plan.parcels):
                await self._begin(client, min(share, TOGETHER))
            elif await self._is_idle():
                await self._begin(client, LITTLE)
            else:
                await asyncio.sleep(0.02)

    async def _is_idle(self) -> bool:
        try:
            return await asyncio.to_thread(self._stage.unfinished) < LITTLE
        except psycopg.OperationalError:  # in the middle of a crash
            return False

    async def _begin(self, client: Client, count: int) -> None:
        """Send the first event of new parcels until each is known to be heard."""
        tally = self._tally
        refs = [f"p-{n}" for n in range(len(tally.refs), len(tally.refs) + count)]
        within, directly = refs[::WITHIN], [ref for n, ref in enumerate(refs) if n % WITHIN]
        sent = [client.insist(lambda ref=ref: self._send(client.engine, ref)) for ref in directly]
        await asyncio.gather(self._send_within(client, within), *sent)
        tally.refs += refs

    async def _send(self, engine: Engine, ref: str, conn: Any = None) -> None:
        done = await engine.trigger(ENV, NAME, ref, "Begin", {"ref": ref}, request_id=ref, conn=conn)
        assert done.applied is not False, done

    async def _send_within(self, client: Client, refs: list[str]) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(self._stage.dsn) as mine:
                    for ref in refs:
                        await client.insist(lambda ref=ref: self._send(client.engine, ref, mine))
            except psycopg.OperationalError:  # whether it was committed nobody knows: the request ids do
                await asyncio.sleep(0.05)
            else:
                return

    # --- faults ------------------------------------------------------------------------------------------------------

    async def _break_things(self, engines: Fleet, pullers: Fleet) -> None:
        plan = ["engine"] * self._plan.engines + ["flap"] * self._plan.flaps + ["crash"] * self._plan.crashes
        self._luck.shuffle(plan)
        for fault in plan:
            await asyncio.sleep(self._luck.uniform(0.05, 0.5))
            if fault == "engine":
                await asyncio.to_thread(self._kill, engines, SLOW)
                await asyncio.to_thread(engines.grow, 1)
            elif fault == "flap":
                await asyncio.to_thread(self._flap, pullers)
            else:
                await asyncio.to_thread(self._crash)

    def _kill(self, fleet: Fleet, consumer: str) -> None:
        """kill -9 of one that has just been given something."""
        victim = self._busy(fleet, consumer)
        victim.kill()
        fleet.members.remove(victim)
        guids = [one.guid for one in self._account.read() if one.pid == victim.pid and one.consumer == consumer]
        held = self._stage.ask(IN_HAND, guids, self._ids[consumer])
        self._tally.kills += 1
        self._tally.held += held
        if held and consumer == SLOW:
            self._tally.engines += 1
        elif held:
            self._tally.pullers += 1

    def _busy(self, fleet: Fleet, consumer: str) -> Member:
        """Some member that the witness has heard of since now."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            known = len(self._account.read())
            time.sleep(0.02)
            heard = {one.pid for one in self._account.read()[known:] if one.consumer == consumer}
            found = [member for member in fleet.members if member.pid in heard]
            if found:
                return self._luck.choice(found)
        raise TimeoutError(f"nobody was given a fact for {consumer} within a minute")

    def _flap(self, pullers: Fleet) -> None:
        """All processes of the flapping one die, and new ones come after a while."""
        for _ in range(PULLERS):
            self._kill(pullers, FLAPPING)
        deadline = time.monotonic() + 30
        while self._stage.ask(BACKENDS, FLAPPING):  # what they have sent may still be carried out
            assert time.monotonic() < deadline, "the server still works for processes that are dead"
            time.sleep(0.01)
        before = self._stage.ask(ATTEMPTS, self._ids[FLAPPING])
        time.sleep(self._luck.uniform(0.2, 1.0))
        self._tally.burned += self._stage.ask(ATTEMPTS, self._ids[FLAPPING]) - before
        self._tally.pauses += 1
        pullers.grow(PULLERS)

    def _crash(self) -> None:
        self._stage.cluster.crash()
        time.sleep(self._luck.uniform(0.0, 0.3))
        self._stage.cluster.restart()
        self._tally.crashes += 1

    # --- afterwards --------------------------------------------------------------------------------------------------

    async def _heal(self, engine: Engine, engines: Fleet) -> None:
        tally, begin = self._tally, time.monotonic()
        others = [self._ids[FLAPPING], self._ids[SLOW]]
        await until(lambda: self._stage.ask(OPEN, others) == 0 == self._stage.unfinished(), PATIENCE, "all is over")
        tally.healed = time.monotonic() - begin
        tally.burned += await self._burned()
        tally.waiting = self._stage.ask(OPEN, [self._ids[DOWN]])
        begin = time.monotonic()
        async with self._target.opened():
            await asyncio.to_thread(engines.kill, self._luck.choice(engines.members))
            await asyncio.to_thread(engines.grow, 1)
            await until(lambda: self._stage.ask(OPEN, [self._ids[DOWN]]) == 0, PATIENCE, "it has caught up")
        tally.caught_up = time.monotonic() - begin

    async def _burned(self) -> int:
        """Attempts of the one that is down. One that is being made now is given back within the patience."""
        deadline = time.monotonic() + 5
        while (burned := self._stage.ask(ATTEMPTS, self._ids[DOWN])) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return burned
