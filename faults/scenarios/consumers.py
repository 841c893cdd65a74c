"""S27: three consumers of every parcel, one down, one flapping, one slow, under kill -9 and database crashes.

Parcels are moved by the answers of their consumers. Engine processes, which run the slow consumer and push to the one
that is down, are killed, and so are those that pull for the flapping one; then nobody pulls for a while. The database
crashes in between. The witness has what each consumer was given. When all is over but for the one that is down, that
one comes up, and has to get everything there ever was, in order.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from faults import check, cluster, parcels
from faults.check import Verdict
from faults.outages import RECHECK, Ordeal, Plan, Tally
from faults.parcels import CONSUMERS, DOWN, Account, Target
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage, prepared

ENDED_OTHERWISE = "select count(*) from holdfast.ack_consumers where status <> 'processed'"
COUNTED = """
select c.name, d.ack_id::text, d.attempts
from holdfast.ack_consumers d join holdfast.consumers c on c.id = d.consumer_id
"""


def run(profile: Profile, seed: int) -> list[Figure]:
    plan = Plan(
        profile.size(10_000, 300), profile.size(60, 4), profile.size(24, 2), profile.size(10, 1), profile.size(100, 6)
    )
    with prepared() as stage, _target(stage) as target:
        account = Account(stage.witness)
        tally = asyncio.run(Ordeal(stage, target, account, random.Random(seed), plan).run())
        verdict = parcels.judge(account.read(), tally.refs)
        _compare_counts(stage, account, verdict)
        verdict.counts["otherwise"] = stage.ask(ENDED_OTHERWISE)
        kernel = check.judge(stage.dsn, [])
    for broken in (verdict, kernel):
        if broken.broken():
            print(broken.report())
    return _figures(seed, plan, tally, verdict, kernel)


@contextmanager
def _target(stage: Stage) -> Iterator[Target]:
    target = Target(stage.witness)
    try:
        yield target
    finally:
        target.close()


def _compare_counts(stage: Stage, account: Account, verdict: Verdict) -> None:
    """Every attempt was counted before it was made; one that was counted may have died before it was made."""
    made = Counter((one.consumer, one.guid) for one in account.told)
    for consumer, guid, attempts in cluster.ask(stage.dsn, COUNTED):
        if consumer != DOWN and made[consumer, guid] > attempts:
            verdict.blame("uncounted", f"{guid} reached {consumer} {made[consumer, guid]} times, counted {attempts}")


def _figures(seed: int, plan: Plan, tally: Tally, verdict: Verdict, kernel: Verdict) -> list[Figure]:
    hit = tally.hits >= plan.hits and tally.crashes >= plan.crashes
    valid = hit and tally.waiting >= len(parcels.PATH) * len(tally.refs)
    counts = verdict.counts
    lost = verdict.broken("lost") + counts["otherwise"] + max(0, plan.parcels - len(tally.refs))
    out_of = f"{counts['facts']:,} facts of {len(tally.refs):,} instances for {len(CONSUMERS)} consumers"
    kills = f"{tally.engines} of engines and {tally.pullers} of consumers hit, {tally.crashes} database crashes"
    return [
        Figure("S27: facts lost", lost, NONE, seed,
               f"{out_of}; kills: {kills}; over {tally.healed:.1f} s after the last fault", valid),
        Figure("S27: facts out of order", verdict.broken("order"), NONE, seed, f"{counts['told']:,} witnessed", valid),
        Figure("S27: duplicates under another guid or with other bytes", verdict.broken("changed"), NONE, seed,
               f"{counts['repeated']:,} duplicates of {counts['told']:,} witnessed", valid),
        Figure("S27: attempts burned while down", tally.burned, NONE, seed,
               f"{tally.waiting:,} facts for the one down throughout, probed every {RECHECK:g} s;"
               f" {tally.pauses} pauses of the flapping one", valid),
        Figure("S27: facts that are none, attempts not counted", verdict.broken("unasked", "uncounted"), NONE, seed,
               f"{counts['told']:,} witnessed", valid),
        Figure("S27: facts missing after the one that was down caught up",
               sum(f"reached {DOWN}" in text for text in verdict.violations.get("lost", ())), NONE, seed,
               f"{tally.waiting:,} facts in {tally.caught_up:.1f} s", valid),
        Figure("S27: other invariants broken", kernel.broken(), NONE, seed,
               f"{kernel.counts['instances']:,} instances, {kernel.counts['steps']:,} steps replayed", valid),
        Figure("S27: kill -9 with facts in hand", tally.hits, Bar("≥", plan.hits), seed,
               f"of {tally.kills}; {tally.held:,} facts were in hand; {kills}"),
        Figure("S27: immediate database crashes", tally.crashes, Bar("≥", plan.crashes), seed,
               "each with recovery from the log"),
    ]  # fmt: skip
