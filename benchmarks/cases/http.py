"""The HTTP API under load: beside a bare application on the same database, and over a long past."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from benchmarks import http_past
from benchmarks.bench import Bench
from benchmarks.children import Child, begin
from benchmarks.report import Bar, Row

CONNECTIONS = 32
POOL = 16  # connections to PostgreSQL of the bare application: more made it slower
LONGEST = 120.0  # seconds of one measurement
OURS, BARE, LOAD = ((sys.executable, "-m", f"benchmarks.http_{name}") for name in ("ours", "bare", "load"))
LISTS = {
    "all": "/ui/workflows?limit=50",
    "open": "/ui/workflows?limit=50&status=active",
    "of one workflow": "/ui/workflows?limit=50&workflow_id=approval",
    "of one person": "/ui/workflows?limit=50&subject_id=alice",
    "instances": "/api/v1/instances?limit=50",
}
INBOXES = {
    "mine": "/api/v1/tasks?mine=true&limit=50",
    "of a role": "/api/v1/tasks?role=approver&limit=50",
}


@contextmanager
def serving(command: tuple[str, ...], **task: Any) -> Generator[tuple[Child, dict[str, Any]]]:
    with begin(command, task) as server:
        facts = server.hear()
        yield server, {"url": facts["url"], "keys": facts.get("keys")}
        server.close_input()


def measured(server: Child, **task: Any) -> dict[str, Any]:
    """What a load took, with the seconds of processor time that the server spent on it as `served`."""
    with begin(LOAD, {"connections": CONNECTIONS, "seconds": LONGEST, **task}) as callers:
        callers.hear(LONGEST + 30)
        before = cpu(server)
        callers.say("go")
        answer = callers.finish(LONGEST + 60)
    return {**answer, "served": cpu(server) - before}


def cpu(server: Child) -> float:
    server.say("cpu")
    return server.hear()["cpu"]


class Contest:
    """Start and advance beside inserts, each server in a fresh database, as often as there are rounds."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._turns = bench.size(6_000, 300)
        self._found: dict[str, list[dict[str, float]]] = {}

    def bare(self) -> float:
        return self._run("bare", BARE, {"pool": POOL}, {"mode": "bare"})

    def ours(self, workflow: str) -> float:
        return self._run(workflow, OURS, {}, {"mode": "approval", "workflow": workflow})

    def _run(self, name: str, command: tuple[str, ...], options: dict[str, Any], load: dict[str, Any]) -> float:
        database = f"bench_http_{name}"
        self._bench.server.fresh(database)
        with serving(command, dsn=self._bench.server.dsn(database), **options) as (server, facts):
            answer = measured(server, turns=self._turns, **load, **facts)
        self._bench.server.drop(database)
        took = sorted(second for kind in answer["took"].values() for second in kind)
        figures = {
            "rate": len(took) / answer["seconds"],
            "p50": at(took, 0.5) * 1000,
            "p99": at(took, 0.99) * 1000,
            "cpu": answer["served"] / len(took) * 1000,
        }
        self._found.setdefault(name, []).append(figures)
        return figures["rate"]

    def median(self, name: str, figure: str) -> float:
        return statistics.median(figures[figure] for figures in self._found[name])


def load(bench: Bench) -> list[Row]:
    """Somebody starts an approval, somebody else approves, against two inserts."""
    contest = Contest(bench)
    bench.alternate(
        {
            "bare": contest.bare,
            "approval": lambda: contest.ours("approval"),
            "with two automatic steps": lambda: contest.ours("chain"),
        }
    )
    ours, bare, chain = (contest.median(name, "rate") for name in ("approval", "bare", "chain"))
    costs = {name: contest.median(name, "cpu") for name in ("approval", "bare", "chain")}
    p99 = {name: contest.median(name, "p99") for name in ("approval", "bare")}
    return [
        Row(
            "start and advance requests/s against bare FastAPI inserts",
            ours / bare,
            Bar("≥", 0.5),
            f"{ours:,.0f} against {bare:,.0f} requests/s; processor time of the server process "
            f"{costs['approval']:.2f} against {costs['bare']:.2f} ms a request; with two automatic steps behind the "
            f"approval {chain:,.0f} requests/s, {costs['chain']:.2f} ms",
        ),
        Row(
            "p99 of start and advance against bare FastAPI inserts",
            p99["approval"] / p99["bare"],
            Bar("≤", 2.0),
            f"{p99['approval']:.1f} against {p99['bare']:.1f} ms",
        ),
    ]


def pages(bench: Bench) -> list[Row]:
    """The same pages of lists and inboxes, by few callers, in a database of few and in one of many workflows."""
    many, few = bench.size(1_000_000, 20_000), bench.size(10_000, 1_000)
    databases = {count: filled(bench, count) for count in (many, few)}
    found: dict[tuple[int, str], list[float]] = {}

    def look(count: int) -> float:
        dsn = bench.server.dsn(databases[count])
        with serving(OURS, dsn=dsn) as (server, facts):
            took = measured(
                server, mode="looks", connections=2, turns=bench.size(100, 30), targets={**LISTS, **INBOXES}, **facts
            )["took"]
        for name, seconds in took.items():
            found.setdefault((count, name), []).append(at(sorted(seconds), 0.95) * 1000)
        return found[count, "mine"][-1]

    bench.alternate({"inbox p95 ms, few": lambda: look(few), "many": lambda: look(many)}, times=3)
    for database in databases.values():
        bench.server.drop(database)
    medians = {place: statistics.median(values) for place, values in found.items()}
    return [
        slowest(f"p95 of {word}, {many:,} workflows against {few:,}", names, medians, many, few)
        for word, names in (("lists", LISTS), ("inboxes", INBOXES))
    ]


def slowest(
    title: str, names: dict[str, str], medians: dict[tuple[int, str], float], many: int, few: int
) -> Row:  # fmt: skip
    """The page that grew most speaks for its kind."""
    ratios = {name: medians[many, name] / medians[few, name] for name in names}
    detail = ", ".join(f"{name} {medians[many, name]:.1f} against {medians[few, name]:.1f} ms" for name in names)
    return Row(title, max(ratios.values()), Bar("≤", 1.5), detail)


def filled(bench: Bench, workflows: int) -> str:
    """Half of them open, with a task each in the inbox of the same role."""
    database = f"bench_http_past_{workflows}"
    bench.server.fresh(database)
    with serving(OURS, dsn=bench.server.dsn(database)) as (server, facts):
        measured(server, mode="approval", workflow="approval", turns=100, **facts)
        measured(server, mode="starts", workflow="approval", turns=100, **facts)
    bench.say(f"filling {database}")
    http_past.fill(bench.server.dsn(database), workflows, bench.say)
    return database


def at(ordered: list[float], share: float) -> float:
    return ordered[int(len(ordered) * share)]
