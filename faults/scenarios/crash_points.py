"""S2: a process is killed at its first point, its second, its third … and another one finishes each time.

For each kind of step one process is caller and worker in one. It dies before its n-th statement, after its n-th
COMMIT, before or after a handler or a delivery, for n = 1, 2, 3 … until it comes through alive. Its heir asks for the
same thing under the same key. After each death every invariant is judged from the database and the witness.

A kill before BEGIN, or before a statement that only sets or reads something, is the same event as a kill after the
COMMIT before it, so those points are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from faults import cluster, flows, scene
from faults.check import judge
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage
from faults.victim import Life, Nursery, nursery
from faults.worker import Hands
from holdfast import Context, Engine
from holdfast.testing.wiring import statements

IDLE: Final = ("begin", "rollback", "pin_", "use_", "read_clock", "read_next_due", "notify_workers", "count_open_work")
PLACES: Final = (
    "commit.after_commit", "handler.before", "handler.after", "call.before", "call.after", "delivery.before",
    "delivery.after", "lease.before_register",
)  # fmt: skip
RETRY: Final = {"calls": flows.CALLS}
WORKER: Final = {"lease": 20.0, "scan": 5.0}
KILLED: Final = -9
FAR: Final = 1_000_000
BOOKED: Final = "create table if not exists public.booked (instance text, step text)"
LANES: Final = 2


@dataclass(frozen=True)
class Kind:
    """A flow around one kind of step; the rest says how its process behaves."""

    name: str
    nodes: list[dict[str, Any]]
    edges: list[tuple[str, ...]]  # source, target, and what it leaves on if that is not the usual
    keyed: bool = True
    event: str = ""
    decision: str = ""
    lingers: bool = False

    @property
    def graph(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "entry": self.nodes[0]["id"],
            "nodes": [*self.nodes, {"id": "end", "kind": "end"}],
            "edges": [{"id": f"{a}>{b}", "source": a, "target": b, **_on(*on)} for a, b, *on in self.edges],
        }

    def life(self, key: str, failpoint: str = "") -> Life:
        return Life(self.name, key, failpoint, self.keyed, self.event, self.decision, self.lingers)


def _on(*event: str) -> dict[str, str]:
    return {"on": event[0]} if event else {}


def _task(id: str, handler: str = "work", **retry: float) -> dict[str, Any]:
    return {"id": id, "kind": "task", "handler": handler, "retry": {**RETRY, **retry}}


PLAIN: Final = [_task("one"), _task("two")]
KINDS: Final = [
    Kind("call", [{"id": "book", "kind": "action", "handler": "book", "retry": RETRY}, _task("after")],
         [("book", "after"), ("after", "end")]),
    Kind("timer", [{"id": "pause", "kind": "wait_timer", "delay": 0.02}, _task("after")],
         [("pause", "after"), ("after", "end")]),
    Kind("event", [{"id": "wait", "kind": "wait_event", "wait": {"event": "go", "key": "context.key"}}, _task("after")],
         [("wait", "after"), ("after", "end")], event="go"),
    Kind("split", [{"id": "both", "kind": "split"}, _task("left"), _task("right"),
                   {"id": "met", "kind": "join", "mode": "all"}],
         [("both", "left"), ("both", "right"), ("left", "met"), ("right", "met"), ("met", "end")]),
    Kind("child", [{"id": "inner", "kind": "sub_flow", "child": {"flow": "inner"}}], [("inner", "end")]),
    Kind("effect", [{"id": "tell", "kind": "effect", "handler": "witness", "retry": RETRY}, _task("after")],
         [("tell", "after"), ("after", "end")], lingers=True),
    Kind("receipt", [{"id": "tell", "kind": "effect", "handler": "witness", "awaits": True, "retry": RETRY},
                     _task("after")],
         [("tell", "after"), ("after", "end")]),
    Kind("human", [{"id": "ask", "kind": "human"}, _task("after")],
         [("ask", "after", "approved"), ("after", "end")], decision="approved"),
    Kind("retried", [_task("shaky", "flaky", delay=0.02)], [("shaky", "end")]),
    Kind("plain", PLAIN, [("one", "two"), ("two", "end")]),
    Kind("fresh", PLAIN, [("one", "two"), ("two", "end")], keyed=False),
]  # fmt: skip


@dataclass
class Tally:
    points: int = 0
    violations: int = 0


def register(engine: Engine, hands: Hands) -> None:
    """`book` leaves a row in the application's own table, in the transaction of its step."""

    async def book(ctx: Context, data: Any) -> Any:
        await ctx.conn.execute("insert into public.booked values (%s, %s)", (ctx.instance, ctx.step))
        return data

    engine.call("book")(book)


def points() -> str:
    told = sorted(f"statement.before.{name}" for name in statements() if not name.startswith(IDLE))
    return "+".join((*PLACES, *told))


def run(profile: Profile, seed: int) -> list[Figure]:
    luck = random.Random(seed)
    kinds = KINDS[: profile.size(full=len(KINDS), short=2)]
    stride = profile.size(full=1, short=14)
    ways = [(kind, luck.randrange(stride)) for kind in kinds]
    with ThreadPoolExecutor(LANES) as lanes:
        found = list(lanes.map(lambda way: enumerate_kind(way[0], stride, way[1]), ways))
    told = ", ".join(f"{kind.name} {tally.points}" for kind, tally in zip(kinds, found, strict=True))
    total = sum(tally.points for tally in found)
    return [
        Figure("S2: violations", sum(t.violations for t in found), NONE, seed, f"of {total} crash points: {told}"),
        Figure(
            "S2: crash points", total, Bar("≥", profile.size(full=200, short=10)), seed, f"{len(kinds)} kinds of step"
        ),
    ]


def enumerate_kind(kind: Kind, stride: int, first: int) -> Tally:
    tally = Tally()
    with staged() as stage:
        asyncio.run(_prepare(stage, kind))
        task = stage.task(nap=0.0, worker=WORKER, extras=[f"{__name__}:register"])
        with nursery(task) as births:
            for n in itertools.count(first, stride):
                if not _die_and_inherit(stage, births, kind, n, tally):
                    return tally
    raise AssertionError("the count has no end")


async def _prepare(stage: Stage, kind: Kind) -> None:
    with psycopg.connect(stage.dsn) as connection:
        connection.execute(BOOKED)
    async with Engine(stage.dsn) as engine:
        await engine.publish(flows.CHILD)
        await engine.publish(kind.graph)


def _die_and_inherit(stage: Stage, births: Nursery, kind: Kind, n: int, tally: Tally) -> bool:
    """False: the process came through, there are no more points."""
    key = f"{kind.name}-{n}"
    ended = births.live(kind.life(key, f"{points()}:kill:after={n}"))
    if ended["code"] == 0:
        return False
    if ended["code"] != KILLED:
        raise RuntimeError(f"{key} ended with {ended['code']} instead of being killed")
    tally.points += 1
    births.bury()
    heir = births.live(kind.life(key))
    found = [f"the heir ended with {heir['code']}"] if heir["code"] else []
    verdict = judge(stage.dsn, stage.witness.entries())
    found += verdict.report().splitlines()
    found += [f"{key} booked {count} times" for count in _booked_wrongly(stage)]
    if found:
        tally.violations += 1
        print(f"    {kind.name}, killed at point {n}: {'; '.join(found)}", flush=True)
    return True


def _booked_wrongly(stage: Stage) -> list[int]:
    """The application's own table: one row per call that is completed, none without."""
    rows = cluster.ask(
        stage.dsn,
        "select count(b.instance) from holdfast.steps s left join public.booked b"
        " on b.instance = s.instance_id::text and b.step = s.node"
        " where s.behaviour = 'call' group by s.instance_id, s.node having count(b.instance) <> 1",
    )
    return [row[0] for row in rows]


_staging = threading.Lock()


@contextlib.contextmanager
def staged() -> Iterator[Stage]:
    """Lanes share a cluster, which is asked for one thing at a time."""
    ways = scene.prepared()
    with _staging:
        stage = ways.__enter__()
    try:
        yield stage
    finally:
        with _staging:
            ways.__exit__(None, None, None)
