"""Steps per second with everything beside the kernel switched on, against the kernel alone."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from faults import cluster
from faults.load import STEPS
from faults.profile import Profile
from faults.report import ROOT, Bar, Figure

SERVICES = ("effects", "maintenance")
IN_FLIGHT = 1024


def run(profile: Profile, seed: int) -> list[Figure]:
    rounds, flows = profile.size(5, 1), profile.size(15_000, 600)
    kernel: list[float] = []
    whole: list[float] = []
    for number in range(rounds):
        # Who goes first changes from round to round: a machine that tires does so for both.
        order = [(kernel, False), (whole, True)]
        for rates, is_on in order if number % 2 == 0 else reversed(order):
            rates.append(_rate(flows, is_on=is_on))
    alone, together = statistics.median(kernel), statistics.median(whole)
    return [
        Figure(
            "throughput with everything on, share of the kernel alone",
            100 * together / alone,
            Bar("≥", profile.size(95, 50), "%"),  # one short round says that it runs, not how fast
            seed,
            f"{together:,.0f} against {alone:,.0f} steps/s, medians of {rounds} alternated rounds of {flows:,} flows",
        )
    ]


def _rate(flows: int, *, is_on: bool) -> float:
    switches = dict.fromkeys(SERVICES, is_on)
    with cluster.database() as (_, dsn):
        task = {"dsn": dsn, "in_flight": IN_FLIGHT, "flows": flows, "worker": switches}
        answer = subprocess.run(
            [sys.executable, "-m", "faults.load", json.dumps(task)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=True,
            timeout=300,
        )
    return flows * STEPS / float(json.loads(answer.stdout.splitlines()[-1])["seconds"])
