"""Measure this tree against another checkout of it: the same figures, in turns, in one run.

    python -m benchmarks.against ../before --rounds 5

The other tree needs its own `.venv` (`make install` there). Both use the PostgreSQL of this run, each
measurement a fresh database. Within a round the trees take turns, and every other round the other one begins, so that a
slow minute of the machine meets both. A ratio is the median of the rounds' ratios; above 1 this tree is the faster one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cases.http import measured as requests
from benchmarks.children import ROOT, begin
from benchmarks.server import Server, running

BAR = 0.95
DATABASE = "bench_against"
Measure = Callable[[Path, Server], float]


def python(tree: Path) -> str:
    return str(tree / ".venv" / "bin" / "python")


def measured(tree: Path, module: str, server: Server, **task: Any) -> dict[str, Any]:
    """Run one measurement with the code and the environment of a tree."""
    server.fresh(DATABASE)
    command = (python(tree), "-m", f"benchmarks.{module}")
    with begin(command, {"dsn": server.dsn(DATABASE), **task}, tree=tree) as child:
        child.close_input()
        return child.finish(300)


def throughput(tree: Path, server: Server) -> float:
    """Flows of five steps in a second, 1,024 in flight."""
    return 10_000 / measured(tree, "ours", server, mode="load", steps=5, flows=10_000, in_flight=1024)["seconds"]


def starts(tree: Path, server: Server) -> float:
    """Starts in a second, 32 callers."""
    return 20_000 / measured(tree, "ours", server, mode="starts", callers=32, calls=20_000)["seconds"]


def alone(tree: Path, server: Server) -> float:
    """Flows of five steps in a second, one at a time."""
    return 1 / statistics.median(measured(tree, "ours", server, mode="alone", flows=500)["latencies"])


def sagas(tree: Path, server: Server) -> float:
    """Flows in a second that run five steps and take them back, 1,024 in flight."""
    task = {"mode": "load", "flow": "broken", "ends": "failed", "flows": 5_000, "in_flight": 1024}
    return 5_000 / measured(tree, "sagas", server, **task)["seconds"]


def http(tree: Path, server: Server) -> float:
    """Requests in a second that start and advance an approval, 32 connections."""
    server.fresh(DATABASE)
    with begin((python(tree), "-m", "benchmarks.http_ours"), {"dsn": server.dsn(DATABASE)}, tree=tree) as api:
        facts = api.hear()
        address = {"url": facts["url"], "keys": facts.get("keys")}
        answer = requests(api, mode="approval", workflow="approval", turns=3_000, **address)
        api.close_input()
    return sum(map(len, answer["took"].values())) / answer["seconds"]


CASES: dict[str, Measure] = {case.__name__: case for case in (throughput, starts, alone, sagas, http)}


def compare(name: str, other: Path, server: Server, rounds: int) -> float:
    """Print the rounds of one figure and answer with the median ratio."""
    ratios: list[float] = []
    for number in range(rounds):
        trees = [ROOT, other] if number % 2 == 0 else [other, ROOT]
        found = {tree: CASES[name](tree, server) for tree in trees}
        ratios.append(found[ROOT] / found[other])
        print(f"    {name}, round {number + 1}: {found[ROOT]:,.5g} against {found[other]:,.5g}", flush=True)
    ratio = statistics.median(ratios)
    print(f"{name}: {ratio:.3f} (rounds {min(ratios):.3f} to {max(ratios):.3f}; bar ≥ {BAR})", flush=True)
    return ratio


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="another checkout, with its own .venv")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--dsn", help="a PostgreSQL of yours instead of the embedded one")
    options = parser.parse_args()
    other = options.other.resolve()
    with running(options.dsn) as server:
        ratios = [compare(name, other, server, options.rounds) for name in options.only]
    return int(min(ratios) < BAR)


if __name__ == "__main__":
    sys.exit(main())
