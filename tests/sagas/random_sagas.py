"""Random sagas on a real database, many at once: worker processes that die, operators and people that interfere."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import psycopg
from faults.report import NONE, Bar, Figure
from promises import Call, Row, Tale, check, fork_depths
from saga_process import SHORT, TABLE, may_hang

from doors.saga.random_flows import PathT, Pick, Shape, Writer
from holdfast import Engine, Flow, Retry, Undo
from holdfast.doors.saga.model import Definition, WaitEvent, every_item
from holdfast.errors import HoldfastError
from holdfast.testing import advance

WORKERS: Final = 2
LEASE: Final = 4.0
ROUND: Final = 25.0  # seconds of the sagas' own time between two looks
MOST_ROUNDS: Final = 80
LONGEST_LIFE: Final = 2000  # seconds of its own time that a saga may take, all its pauses and repairs included
DEEPEST: Final = 4  # forks inside each other
LONGEST: Final = "select ceil(extract(epoch from max(completed_at - created_at)))::int from holdfast.instances"
QUIET: Final = """
select (select count(*) from holdfast.work where queue <> ''), (select count(*) from holdfast.signals),
    (select count(*) from holdfast.timers where due_at <= holdfast.clock())
"""
UNDONE: Final = """
select i.flow, i.status, s.node, s.status, s.calls, w.* from holdfast.work w
join holdfast.instances i on i.id = w.instance_id left join holdfast.steps s on s.id = w.step_id
"""
LEFT: Final = """
select (select count(*) from holdfast.work), (select count(*) from holdfast.signals),
    (select count(*) from holdfast.timers), (select count(*) from holdfast.tasks where closed_at is null),
    (select count(*) from holdfast.key_waits)
"""
# A step that failed tells in its own row that the instance turned back; a cancel and a timeout have a row for it.
TURNED_BACK: Final = """
select instance_id, closed_version, closed_ordinal from holdfast.steps
where closing ->> 'fate' = 'rollback' or (node = '@fate' and detail ->> 'fate' = 'rollback')
"""


class SagaWriter(Writer):
    """Some steps have a time limit, because some handlers hang. `forks` stand inside each other for sure."""

    def __init__(self, pick: Pick, shape: Shape, forks: int) -> None:
        super().__init__(pick, shape)
        self.forks = forks

    def item(self, path: PathT, depth: int, *, is_top: bool) -> tuple[PathT, int]:
        if not self.forks:
            return super().item(path, depth, is_top=is_top)
        self.forks -= 1
        self.left -= 1
        if self.maybe(2):
            path = self.simple(path, "step", depth)
        return self.simple(path, "fork", depth), 0

    def options(self) -> dict[str, Any]:
        return {**super().options(), **({"timeout": SHORT} if may_hang(f"step{self.names}") else {})}


def random_saga(seed: int) -> Definition:
    luck = Random(seed)
    shape = Shape(depth=DEEPEST, size=luck.choice([8, 14, 24]), delays=luck.random() < 0.4)
    options = {
        "dlq": luck.random() < 0.2,
        "attempts": luck.randint(1, 3),
        "timeout": luck.choice([None] * 8 + [30, 120]),
    }
    forks = DEEPEST if luck.random() < 0.12 else 0  # by chance alone few get there
    return SagaWriter(luck.randint, shape, forks).flow(Flow(f"random-{seed}", **options)).build()


CHILD: Final = (
    Flow("child")
    .step("c1", "work", undo=Undo("undo", name="undo_c1", retry=Retry(attempts=2)), retry=Retry(attempts=2))
    .step("c2", "work", undo=Undo("undo", name="undo_c2"))
    .build()
)


class Crowd:
    """Some sagas, started together and driven to their ends."""

    def __init__(self, engine: Engine, connection: psycopg.AsyncConnection[Any], seeds: range) -> None:
        self.engine = engine
        self.connection = connection
        self.definitions = {(d := random_saga(seed)).name: d for seed in seeds} | {"child": CHILD}
        self.luck = Random(seeds.start)
        self.killed: set[int] = set()
        self.bereaved: set[str] = set()  # sagas that were under way when a worker died
        self.suspended: set[str] = set()
        self.rounds = 0
        self.counted: Counter[str] = Counter()
        self.broken: list[str] = []  # promises, each with its saga
        self._processes: list[subprocess.Popen[str]] = []

    async def run(self, kills: int) -> None:
        for definition in self.definitions.values():
            await self.engine.publish(definition)
        async with self._workers():
            for name in self.definitions.keys() - {"child"}:
                value = self.luck.choice([{}, {"n": 2, "ok": True}, {"n": 3, "kind": "a"}, {"n": 0}])
                await self.engine.start(name, value)
            when = {self.luck.randint(0, 3) for _ in range(kills)}
            while await self._alive():
                self.rounds += 1
                assert self.rounds < MOST_ROUNDS, f"{len(await self._alive())} sagas come to no end"
                if self.rounds - 1 in when:
                    await self._kill_one()
                await self._interfere(is_early=self.rounds < 12)
                await self._quiet()
                await self._help()
                await advance(self.engine, seconds=ROUND)
            await self._repair()

    # --- workers ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _workers(self) -> AsyncIterator[None]:
        try:
            for _ in range(WORKERS):
                self._processes.append(_worker(self.engine.dsn))
            yield
        finally:
            for process in self._processes:
                process.kill()
                process.wait()
                process.stdout.close()  # type: ignore[union-attr]

    async def _kill_one(self) -> None:
        """In the middle of whatever it does; another one takes its place."""
        victim = self.luck.choice(self._processes)
        victim.kill()
        victim.wait()
        victim.stdout.close()  # type: ignore[union-attr]
        self._processes.remove(victim)
        self.killed.add(victim.pid)
        self.bereaved.update(await self._alive())
        self._processes.append(_worker(self.engine.dsn))

    # --- what people and operators do -------------------------------------------------------------------------------

    async def _alive(self) -> list[str]:
        return [str(id) for (id,) in await self._ask(
            "select id from holdfast.instances where status not in ('completed', 'failed', 'cancelled', 'aborted')"
        )]  # fmt: skip

    async def _interfere(self, *, is_early: bool) -> None:
        """While handlers run; what is too late by then is refused."""
        chance = 0.06 if is_early else 0.15  # what has been going on for long is brought to an end
        for id in await self._alive():
            roll = self.luck.random()
            if roll < chance:
                await self._try("cancels", self.engine.cancel(id, by="ops", reason="enough"))
            elif roll < chance * 1.3:
                await self._try("aborts", self.engine.abort(id, by="ops", reason="enough"))
            elif is_early and roll < chance * 4:  # a failure meanwhile must not be forgotten, nor repeated
                await self._try("suspended", self.engine.suspend(id))
                self.suspended.add(id)

    async def _help(self) -> None:
        for id in self.suspended:
            await self._try("resumed", self.engine.resume(id))
        self.suspended.clear()
        for task in await self.engine.tasks(limit=1000):
            decision = "rejected" if self.luck.random() < 0.1 else "confirmed"
            await self._try(decision, self.engine.decide(task.id, by="ann", decision=decision, data={"n": 4}))
        for id, node, event in await self._awaited_events():
            await self._try("events", self.engine.signal(id, event, {"n": 5}, node=node))
        for letter in await self.engine.dead_letters(source="step", limit=1000):
            await self._try("requeued", self.engine.requeue(letter.id, input={"lucky": True, "n": 3}))

    async def _awaited_events(self) -> list[tuple[str, str, str]]:
        waiting = await self._ask("select instance_id, node from holdfast.steps where status = 'waiting'")
        flows = dict(await self._ask("select id, flow from holdfast.instances"))
        return [
            (str(id), node, event)
            for id, node in waiting
            if (event := _event_of(self.definitions[flows[id]], node)) is not None
        ]

    async def _repair(self) -> None:
        """Compensations that failed run again while their instances stay what they are."""
        letters = await self.engine.dead_letters(source="compensation", limit=1000)
        for letter in letters:
            if self.luck.random() < 0.5:
                await self._try("repaired", self.engine.requeue(letter.id, input={"lucky": True}))
        await self._quiet()

    async def _try(self, what: str, action: Awaitable[Any]) -> None:
        with suppress(HoldfastError):  # somebody or something was faster
            await action
            self.counted[what] += 1

    async def _quiet(self) -> None:
        """Nothing is due any more; until then the workers have something to do."""
        deadline = time.monotonic() + 60
        while any((await self._ask(QUIET))[0]):
            assert time.monotonic() < deadline, f"left undone: {await self._ask(QUIET)} {await self._ask(UNDONE)}"
            await asyncio.sleep(0.03)

    async def _ask(self, question: str) -> list[Any]:
        return await (await self.connection.execute(question)).fetchall()  # type: ignore[arg-type]

    # --- what became of them ----------------------------------------------------------------------------------------

    async def verify(self) -> None:
        """The queue is empty, and every saga has kept its promises; counts how they ended."""
        assert set((await self._ask(LEFT))[0]) == {0}, "something is still queued"
        for name, tale in (await self._tales()).items():
            try:
                check(tale)
            except AssertionError as broken:
                self.broken.append(f"{name}: {broken}\n{tale}")
            self._count(tale)

    def _count(self, tale: Tale) -> None:
        visited = {row.node for row in tale.rows}
        depth = max((depth for name, depth in fork_depths(tale.definition.items) if name in visited), default=0)
        self.counted.update({
            tale.status: 1,
            "sub-flows": tale.definition is CHILD,
            "disturbed": tale.is_disturbed,
            "rolled back": "@rollback" in visited,
            "out of time": "@expire" in visited,
            "compensations": sum(row.kind == "compensate" for row in tale.rows),
            "larger": sum(row.kind == "forward" for row in tale.rows) >= 10,
            "calls": sum(call.what == "begun" for call in tale.calls),
            f"forks {depth} deep": 1,
        })  # fmt: skip

    async def _tales(self) -> dict[str, Tale]:
        rows: defaultdict[Any, list[Row]] = defaultdict(list)
        calls: defaultdict[str, list[Call]] = defaultdict(list)
        for id, *row, v0, o0, v1, o1, code, made in await self._ask(
            "select instance_id, node, kind, run, status, outcome, opened_version, opened_ordinal, closed_version,"
            " closed_ordinal, error ->> 'code', calls from holdfast.steps where behaviour <> 'end'"
        ):
            rows[id].append(Row(*row, (v0, o0), None if v1 is None else (v1, o1), code, made))
        for id, version, ordinal in await self._ask(TURNED_BACK):
            moment = version, ordinal
            rows[id].append(Row("@rollback", "control", 0, "completed", "completed", moment, moment))
        for id, *call in await self._ask(
            "select instance, seq, step, attempt, what, pid from public.tale order by seq"
        ):
            calls[id].append(Call(*call))
        answered: defaultdict[Any, list[str]] = defaultdict(list)
        for id, node in await self._ask(
            "select instance_id, envelope ->> 'node' from holdfast.dead_letters where resolution = 'replayed'"
        ):
            answered[id].append(node)
        to_root = {id for (id,) in await self._ask(
            "select instance_id from holdfast.steps where node = '@rollback' and (detail ->> 'root')::bool"
        )}  # fmt: skip
        instances = await self._ask("select id, flow, status from holdfast.instances")
        # A process that was starved for a whole lease goes on under a new id, and others repeat what it had begun.
        renamed = await self._ask("select pid from holdfast.workers group by pid having count(*) > 1")
        starved = {pid for (pid,) in renamed}
        return {
            f"{flow} {id}": Tale(
                self.definitions[flow],
                status,
                rows[id],
                calls[str(id)],
                id in to_root,
                frozenset(starved | (self.killed if str(id) in self.bereaved else set())),
                tuple(answered[id]),
            )
            for id, flow, status in instances
        }


@dataclass
class Run:
    """What became of a crowd, or of many."""

    counted: Counter[str] = field(default_factory=Counter)
    longest: int = 0  # seconds of its own time that any saga took
    took: float = 0.0  # seconds of ours
    broken: list[str] = field(default_factory=list)

    def add(self, other: Run) -> None:
        self.counted.update(other.counted)
        self.longest = max(self.longest, other.longest)
        self.took += other.took
        self.broken += other.broken

    @property
    def deepest(self) -> int:
        """Of the forks inside each other that were really run."""
        return max(depth for depth in range(DEEPEST + 9) if self.counted[f"forks {depth} deep"])


def _event_of(definition: Definition, node: str) -> str | None:
    return next((i.event for i in every_item(definition.items) if isinstance(i, WaitEvent) and i.name == node), None)


def _worker(dsn: str) -> subprocess.Popen[str]:
    options = json.dumps({"lease": LEASE, "scan": 0.5})
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("saga_process.py")), dsn, options],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


async def run_crowd(dsn: str, seeds: range, kills: int) -> Run:
    """Drive these sagas to their ends and check each."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(TABLE)
        async with Engine(dsn) as engine:
            began = time.monotonic()
            crowd = Crowd(engine, connection, seeds)
            await crowd.run(kills)
            await crowd.verify()
            longest = (await crowd._ask(LONGEST))[0][0]
    crowd.counted.update({"sagas": len(seeds), "rounds": crowd.rounds, "kills": len(crowd.killed)})
    return Run(crowd.counted, longest, time.monotonic() - began, crowd.broken)


def figures(run: Run, seed: int, sagas: int) -> list[Figure]:
    """What the bar asks for; `seed` is that of the first of so many sagas."""
    n = run.counted
    ended = ", ".join(f"{n[end]:,} {end}" for end in ("completed", "failed", "cancelled", "aborted"))
    met = (
        "cancels",
        "aborts",
        "confirmed",
        "rejected",
        "events",
        "suspended",
        "resumed",
        "requeued",
        "repaired",
        "out of time",
    )
    forks = ", ".join(f"{depth}: {n[f'forks {depth} deep']:,}" for depth in range(1, run.deepest + 1))
    return [
        Figure("random sagas: broken promises", len(run.broken), NONE, seed,
               f"{n['sagas']:,} flows and {n['sub-flows']:,} sub-flows: {ended}"),
        Figure("random sagas: flows", n["sagas"], Bar("≥", sagas), seed,
               f"{n['calls']:,} calls; {', '.join(f'{n[what]:,} {what}' for what in met)}"),
        Figure("random sagas: rollbacks", n["rolled back"], Bar(">", 0), seed, f"{n['compensations']:,} compensations"),
        Figure("random sagas: workers killed", n["kills"], Bar(">", 0), seed, f"{n['disturbed']:,} instances hit"),
        Figure("random sagas: forks run inside each other", run.deepest, Bar("≥", DEEPEST), seed,
               f"instances by their deepest fork: {forks}"),
        Figure("random sagas: the longest of its own time", run.longest, Bar("≤", LONGEST_LIFE, "s"), seed,
               f"pauses and repairs included; all of them {run.took:.0f} s of ours"),
    ]  # fmt: skip
