"""`python -m benchmarks`: everything in one run, on one PostgreSQL, with the peers beside us."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import report, server
from benchmarks.bench import Bench
from benchmarks.cases import commits, comparison, http, machines, machines_past, past, priorities, sagas, scale
from benchmarks.report import Bar, Row


@dataclass(frozen=True)
class Case:
    """A measurement and what it is about."""

    run: Callable[[Bench], list[Row]]
    subject: str


CASES = {
    "throughput": Case(comparison.throughput, "five-step flows under load, against DBOS and Absurd"),
    "one-step": Case(comparison.one_step, "one-step flows, against DBOS"),
    "starts": Case(comparison.starts, "starts, against DBOS enqueue"),
    "alone": Case(comparison.alone, "one flow alone, against DBOS and Absurd"),
    "ceiling": Case(commits.ceiling, "our share of the raw ceiling"),
    "statements": Case(commits.statements, "commits per step and statements per commit"),
    "history": Case(past.million, "a million finished instances against few"),
    "months": Case(past.months, "three years of months against a new database"),
    "processes": Case(scale.processes, "two and four worker processes against one"),
    "awaiting": Case(scale.awaiting, "handlers that await 100 ms"),
    "memory": Case(scale.memory, "memory with 10,000 flows in flight"),
    "claims": Case(priorities.claims, "claims out of a thousand and out of a million queued steps"),
    "starvation": Case(priorities.starvation, "the least urgent among the most urgent"),
    "keys": Case(scale.keys, "concurrent starts that share keys"),
    "sagas": Case(sagas.throughput, "compensations: defined, and run"),
    "rollback": Case(sagas.alone, "one flow that is taken back, alone"),
    "branches": Case(sagas.branches, "10, 100 and 1,000 parallel branches in one flow"),
    "branches-back": Case(sagas.branches_back, "10, 100 and 1,000 parallel branches of one flow that are taken back"),
    "cancel": Case(sagas.cancel, "a cancel of 1,000 running branches"),
    "triggers": Case(machines.triggers, "triggers with a consumer, against events of the same graph without"),
    "facts": Case(machines.facts, "trigger, handler, processed, against plain steps; three consumers against one"),
    "told": Case(machines.told, "from a trigger to a handler in another process, against a start to its step"),
    "backlog": Case(machines_past.backlog, "a consumer with 100,000 facts behind it, against facts as they come"),
    "down": Case(machines_past.down, "a million open records: living consumers beside them, and claims"),
    "resting": Case(machines_past.resting, "a million machines that rest"),
    "lives": Case(machines_past.lives, "long lives: triggers after 100,000 transitions, timelines of 10,000 entries"),
    "http": Case(http.load, "start and advance over HTTP, against a bare FastAPI application"),
    "pages": Case(http.pages, "lists and inboxes over HTTP, a million workflows against few"),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes and one round: does it run, not how fast")
    parser.add_argument("--only", nargs="+", choices=list(CASES), metavar="NAME", help=f"some of: {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, help="alternated rounds; the medians are reported (3, or 1 with --quick)")
    parser.add_argument("--dsn", help="measure on this PostgreSQL (a superuser's address) instead of a private one")
    chosen = parser.parse_args()
    if chosen.rounds is None:
        chosen.rounds = 1 if chosen.quick else 3
    return chosen


def main() -> int:
    options = arguments()
    names = options.only or list(CASES)
    with server.running(options.dsn) as postgres:
        bench = Bench(postgres, options.rounds, options.quick)
        rows: list[Row] = []
        for name in names:
            rows += run_case(name, CASES[name], bench)
            report.write_json(rows, whole=False)  # what an early end leaves
        facts = report.facts(postgres.settings(), bench.versions, options.rounds)
    print(f"\n{report.table(rows)}\n\n{facts}\n")
    whole = not options.quick and not options.only and options.rounds >= 3
    print(f"written to {report.write_json(rows, whole=whole).relative_to(report.ROOT)}")
    if whole:
        report.write_page(rows, facts)
    elif not options.quick and options.rounds >= 3:
        report.replace_rows(rows)
    return 0 if all(row.ok for row in rows) else 1


def run_case(name: str, case: Case, bench: Bench) -> list[Row]:
    """A case that breaks costs its own rows, not the hour spent on the others."""
    print(f"{name}: {case.subject}", flush=True)
    begin = time.monotonic()
    try:
        rows = case.run(bench)
    except Exception:
        traceback.print_exc()
        return [Row(f"{name}: {case.subject}", None, Bar("=", 0, ""), "did not finish")]
    for row in rows:
        bench.say(f"{row.name}: {row.as_json()['value']} (bar {row.bar}) {'ok' if row.ok else 'MISSED'} {row.detail}")
    print(f"    took {time.monotonic() - begin:.0f} s", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
