"""`python -m benchmarks.load`: many clients against a server and a worker that share one database.

It fails when an answer is a 5xx, a finished workflow names the wrong step, a history is out of order, a stream tells
another story than the trail, or memory grows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from benchmarks import server
from benchmarks.children import begin

DATABASE = "holdfast_load"
PROCESS, CLIENTS = ((sys.executable, "-m", f"benchmarks.load_{name}") for name in ("process", "clients"))
GROWTH = 1.1  # of the last quarter over the second: caches are full by then
UNORDERED = {
    "events": """
        select count(*) from (
            select created_at < lag(created_at) over (partition by instance_id order by version, ordinal) as is_back
            from holdfast.events where ordinal < 1000) x
        where is_back""",
    "steps": """
        select count(*) from (
            select created_at < lag(created_at) over o or closed_at < created_at as is_back from holdfast.steps
            window o as (partition by instance_id order by opened_version, opened_ordinal)) x
        where is_back""",
    "instances": """
        select count(*) from holdfast.instances i
        where updated_at is distinct from (select max(created_at) from holdfast.events where instance_id = i.id)""",
}
SLOW = """
    create function holdfast.dawdle() returns trigger language plpgsql as
        'begin perform pg_sleep(case when random() < 0.3 then {} else 0 end); return null; end';
    create trigger dawdles after insert on holdfast.statistics_deltas
    for each statement execute function holdfast.dawdle()
"""
TRAILS = """
    select count(*) from (
        select from holdfast.events e join holdfast.instances i on i.id = e.instance_id
        where i.status = 'completed' group by e.instance_id) x"""


class Load(msgspec.Struct):
    """What came of it."""

    requests: int
    finished: int
    failed: dict[str, int]  # by status, 0: the connection was closed
    wrong: int
    unordered: dict[str, int]
    trails: int
    followed: int
    missed: int  # streams that lacked a line, or had it in another place
    memory: dict[str, tuple[float, float]]  # MiB in the second and in the last quarter
    examples: list[str]

    @property
    def faults(self) -> list[str]:
        found = [f"{count} answers {status}" for status, count in self.failed.items() if status[0] in "05"]
        found += [f"{count} {what} out of order" for what, count in self.unordered.items() if count]
        found += [f"{self.wrong} times a wrong current_step"] if self.wrong else []
        found += [f"{self.missed} of {self.followed} streams are not the trail"] if self.missed else []
        found += [
            f"the {who} grew from {before:.0f} to {after:.0f} MiB"
            for who, (before, after) in self.memory.items()
            if after > before * GROWTH
        ]
        found += [] if self.finished else ["nothing finished"]
        return found + ([] if self.followed else ["no stream was followed"])


class Memory:
    """What processes hold, looked at as long as the load lasts."""

    def __init__(self, pids: dict[str, int], seconds: float) -> None:
        self._pids, self._pause = pids, seconds / 60
        self._seen: dict[str, list[float]] = {who: [] for who in pids}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(self._pause):
            for who, pid in self._pids.items():
                self._seen[who].append(_resident(pid))

    def end(self) -> dict[str, tuple[float, float]]:
        self._over.set()
        self._thread.join()
        return {who: _quarters(seen) for who, seen in self._seen.items()}


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _quarters(seen: list[float]) -> tuple[float, float]:
    quarter = max(1, len(seen) // 4)
    return statistics.median(seen[quarter : 2 * quarter] or seen), statistics.median(seen[-quarter:])


def load(dsn: str, *, clients: int, seconds: float, slow: float = 0.0) -> Load:
    task: dict[str, Any] = {"dsn": dsn}
    with begin(PROCESS, {**task, "mode": "server"}) as serving:
        facts = serving.hear()
        if slow:
            with psycopg.connect(dsn) as connection:
                connection.execute(SLOW.format(slow))
        with begin(PROCESS, {**task, "mode": "worker"}) as working:
            working.hear()
            memory = Memory({"server": serving.pid, "worker": working.pid}, seconds)
            asked = {"url": facts["url"], "keys": facts["keys"], "clients": clients, "seconds": seconds}
            with begin(CLIENTS, asked) as callers:
                answer = callers.finish(seconds + 120)
            held = memory.end()
    with psycopg.connect(dsn) as connection:
        unordered = {what: _count(connection, question) for what, question in UNORDERED.items()}
        trails = _count(connection, TRAILS)
    statuses: dict[str, int] = answer["statuses"]
    failed = {status: count for status, count in statuses.items() if not status.startswith("2")}
    return Load(
        sum(statuses.values()), answer["finished"], failed, answer["wrongs"], unordered, trails,
        answer["followed"], len(answer["missed"]), held,
        [*answer["wrong"], *answer["missed"][:5], *answer["broken"]],
    )  # fmt: skip


def _count(connection: psycopg.Connection, question: Any) -> int:
    row = connection.execute(question).fetchone()
    assert row is not None
    return row[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--slow", type=float, default=0.0, help="seconds that some commits take longer, at random")
    parser.add_argument("--dsn", help="use this PostgreSQL (a superuser's address) instead of a private one")
    chosen = parser.parse_args()
    with server.running(chosen.dsn) as postgres:
        postgres.fresh(DATABASE)
        found = load(postgres.dsn(DATABASE), clients=chosen.clients, seconds=chosen.seconds, slow=chosen.slow)
        postgres.drop(DATABASE)
    print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    for fault in found.faults:
        print(f"FAULT: {fault}")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
