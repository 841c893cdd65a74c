"""`python -m faults`: every scenario in turn, each with its seed; `--short` is what the test suite runs."""

from __future__ import annotations

import argparse
import importlib
import logging
import pkgutil
import random
import signal
import sys
import time
import traceback
from types import ModuleType

from faults import cluster, nursery, report, scenarios
from faults.profile import FULL, SHORT, Profile
from faults.report import NONE, Figure


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(scenarios.__path__))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes: a few minutes in all")
    parser.add_argument("--only", nargs="+", choices=names(), metavar="NAME", help=f"some of: {', '.join(names())}")
    parser.add_argument("--seed", type=int, help="repeat a run; without it a new one is drawn and printed")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an early end cleans up, too
    logging.basicConfig(level=logging.ERROR)  # that the database is away is news to nobody here
    profile = SHORT if options.short else FULL
    seed = random.SystemRandom().randrange(1, 2**31) if options.seed is None else options.seed
    print(f"seed {seed}, {profile.name} profile", flush=True)
    if profile.is_short:
        cluster.hurry()
    begin = time.monotonic()
    try:
        found = [figure for name in options.only or names() for figure in run_scenario(name, profile, seed)]
        figures = report.in_order(found)
        facts = {"PostgreSQL": cluster.shared().version(), "seed": str(seed)}
    finally:
        nursery.close_shared()
        cluster.stop_shared()
    facts["took"] = f"{(time.monotonic() - begin) / 60:.0f} minutes"
    print(f"\n{report.table(figures)}\n")
    whole = not options.short and not options.only
    print(f"written to {report.write_json(figures, whole=whole).relative_to(report.ROOT)}")
    if whole:
        report.write_page(figures, facts)
    missed = [figure for figure in figures if not figure.ok]
    for figure in missed:
        print(f"not ok: {report.line(figure)} · repeat with --seed {figure.seed}")
    return 1 if missed else 0


def run_scenario(name: str, profile: Profile, seed: int) -> list[Figure]:
    """A scenario that breaks is a figure that failed, and the others still run."""
    module = importlib.import_module(f"faults.scenarios.{name}")
    print(f"{name}: {subject(module)}", flush=True)
    begin = time.monotonic()
    try:
        figures = module.run(profile, seed)
    except Exception as failure:
        traceback.print_exc()
        sys.stderr.flush()
        figures = [Figure(f"{name}: did not finish", None, NONE, seed, type(failure).__name__)]
    for figure in figures:
        print(f"    {report.line(figure)}", flush=True)
    print(f"    took {time.monotonic() - begin:.1f} s", flush=True)
    return figures


def subject(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
