"""Seeded defects: each of the twenty-one is switched on in turn, and the scenario made for it has to turn red.

Every probe is also run with the engine as it is, where it has to be green: a probe that is always red catches nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from faults import cluster
from faults.defects import DEFECTS, Defect
from faults.profile import Profile
from faults.report import NONE, ROOT, Bar, Figure

SHORT = ("no_fence", "receipt_overwritten", "claim_in_limit", "session_tenant", "gate_early")
LANES = 2
PATIENCE = 120


def run(profile: Profile, seed: int) -> list[Figure]:
    chosen = [defect for defect in DEFECTS if not profile.is_short or defect.name in SHORT]
    place = templates(profile.is_short)
    with ThreadPoolExecutor(LANES) as lanes:
        red = list(lanes.map(lambda defect: _is_red(defect.name, defect, seed, place), chosen))
        green = list(lanes.map(lambda defect: not _is_red("-", defect, seed, place), chosen))
    for defect, caught, sound in zip(chosen, red, green, strict=True):
        verdict = "caught" if caught and sound else "NOT CAUGHT" if sound else "red without a defect"
        print(f"    {defect.name} ({defect.scenario}): {defect.what}: {verdict}", flush=True)
    caught = sum(red)
    told = f"{caught} of {len(chosen)}, by " + ", ".join(sorted({d.scenario for d in chosen}))
    return [
        Figure("seeded defects caught", caught, Bar("≥", len(chosen)), seed, told, all(green)),
        Figure("probes red without a defect", green.count(False), NONE, seed, f"of {len(chosen)}"),
    ]


def templates(is_short: bool) -> list[str]:
    """The cluster and its templates, made here once, for the processes of the probes."""
    server = cluster.shared()
    server.drop(server.database())
    if not is_short:
        server.drop(server.database(movable_clock=True))
    names = {"movable" if movable else "plain": name for movable, name in server._templates.items()}
    return [str(server.directory.parent), json.dumps(names)]


def _is_red(change: str, defect: Defect, seed: int, place: list[str]) -> bool:
    figures = _probe(change, defect, seed, place)
    if change == "-":
        for figure in figures:
            if not figure["ok"]:
                print(f"    without a defect: {figure}", flush=True)
    return any(not figure["ok"] for figure in figures)


def _probe(change: str, defect: Defect, seed: int, place: list[str]) -> list[dict[str, Any]]:
    answer = subprocess.run(
        [sys.executable, "-m", "faults.defects", change, defect.name, str(seed), *place],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE,
        check=False,
    )
    if answer.returncode:
        raise RuntimeError(f"{defect.name} with {change} broke: {answer.stderr[-2000:]}")
    return json.loads(answer.stdout.splitlines()[-1])
