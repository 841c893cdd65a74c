"""S10: many processes advance the same instances at once, with the same signals and from the same queue."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from faults import check
from faults.flows import journey
from faults.profile import Profile
from faults.report import NONE, ROOT, Figure
from faults.scene import Stage, prepared
from holdfast import Engine

TICKS = 1
KNOWN = ("ok", "busy", "claims", "overclaimed")  # what a rival counts beside failures
BRANCHES = ("a", "b", "c", "d")
CONTEST: dict[str, Any] = {
    "name": "contest",
    "entry": "count",
    "nodes": [
        {"id": "count", "kind": "state"},
        {"id": "race", "kind": "split"},
        *({"id": name, "kind": "task", "handler": "work"} for name in BRANCHES),
        {"id": "met", "kind": "join", "mode": "all"},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "tick", "source": "count", "target": "count", "on": "tick"},
        {"id": "stop", "source": "count", "target": "race", "on": "stop"},
        *({"id": f"to {name}", "source": "race", "target": name} for name in BRANCHES),
        *({"id": f"from {name}", "source": name, "target": "met"} for name in BRANCHES),
        {"id": "over", "source": "met", "target": "end"},
    ],
}
ADVANCES = """
select count(*) filter (where ticks <> %s or stops <> 1) from (
    select count(*) filter (where outcome = 'tick') ticks, count(*) filter (where outcome = 'stop') stops
    from holdfast.steps where instance_id in (select id from holdfast.instances where flow = 'contest')
    group by instance_id) each
"""
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


def run(profile: Profile, seed: int) -> list[Figure]:
    processes, instances = profile.size(16, 3), profile.size(500, 60)
    with prepared() as stage:
        tally = _contest(stage, random.Random(seed), processes, instances)
        entries = stage.witness.entries()
        verdict = check.judge(stage.dsn, entries)
        wrong = stage.ask(ADVANCES, TICKS)
        deadlocks = stage.ask(DEADLOCKS)
    again = sum(count - 1 for count in Counter(entry.step_id for entry in entries).values())
    if verdict.broken():
        print(verdict.report())
    sends = processes * instances * (TICKS + 1)
    unanswered = sum(count for word, count in tally.items() if word not in KNOWN)
    valid = tally["ok"] + unanswered == sends and verdict.share_finished >= 0.95
    told = f"{processes} processes, {instances} instances, {sends:,} sends of {instances * (TICKS + 1):,} signals"
    return [
        Figure(
            "S10: double advances",
            wrong + again + verdict.broken(),
            NONE,
            seed,
            f"{told}, {verdict.counts['steps']:,} steps",
            valid,
        ),
        Figure(
            "S10: deadlocks not retried, sends without an answer",
            unanswered,
            NONE,
            seed,
            f"{deadlocks} deadlocks, {tally['busy']} times busy and asked again {_failures(tally)}".rstrip(),
            valid,
        ),
        Figure(
            "S10: claims that brought more than was asked for",
            tally["overclaimed"],
            NONE,
            seed,
            f"of {tally['claims']:,} claims that brought something",
            valid and tally["claims"] > 0,
        ),
    ]


def _failures(tally: Counter[str]) -> str:
    return ", ".join(f"{word} {count}" for word, count in tally.items() if word not in KNOWN)


def _contest(stage: Stage, luck: random.Random, processes: int, instances: int) -> Counter[str]:
    ids = asyncio.run(_start(stage, instances))
    rivals = [_rival(stage, luck.randrange(2**31)) for _ in range(processes)]
    try:
        for rival in rivals:
            _hear(rival)
        asyncio.run(_fill_queue(stage, instances))
        for rival in rivals:
            _say(rival, json.dumps(ids))
        tally: Counter[str] = Counter()
        for rival in rivals:
            tally.update(_hear(rival))
        deadline = time.monotonic() + 120
        while stage.unfinished() and time.monotonic() < deadline:
            time.sleep(0.05)
        return tally
    finally:
        for rival in rivals:
            rival.kill()
            rival.wait()
            for stream in (rival.stdin, rival.stdout):
                if stream is not None:
                    stream.close()


async def _start(stage: Stage, instances: int) -> list[str]:
    async with Engine(stage.dsn) as engine:
        await engine.publish(CONTEST)
        await engine.publish(journey("queued", 2))
        ids = [str(i.id) for i in await engine.start_many("contest", [{"n": n} for n in range(instances)])]
        await engine.drain(timeout=60)
    return ids


async def _fill_queue(stage: Stage, instances: int) -> None:
    """For all rivals to claim from, at once."""
    async with Engine(stage.dsn) as engine:
        await engine.start_many("queued", [{"n": n} for n in range(instances * 8)])


def _rival(stage: Stage, seed: int) -> subprocess.Popen[str]:
    task = {"dsn": stage.dsn, "sink": stage.witness.port, "seed": seed, "ticks": TICKS}
    return subprocess.Popen(
        [sys.executable, "-m", "faults.rival", json.dumps(task)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _say(rival: subprocess.Popen[str], text: str) -> None:
    assert rival.stdin is not None
    rival.stdin.write(text + "\n")
    rival.stdin.flush()


def _hear(rival: subprocess.Popen[str]) -> dict[str, Any]:
    assert rival.stdout is not None
    for text in rival.stdout:
        if text.startswith("{"):
            return json.loads(text)
    raise RuntimeError(f"rival {rival.pid} ended early")
