"""Gates around machines: order and promotion of deliveries, attempts while nobody is there, phases.

Like the other probes they run as the engine is, where they must be green, and with their defect, where they turn red.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from faults import parcels, scene, stays
from faults.parcels import ENV, NAME, PATH, Target
from faults.report import NONE, Figure
from faults.scene import Stage, TooLate, until
from holdfast import ConsumerEvent, EffectOptions, Engine

PARCELS = 5
SETTLED = 10.0  # seconds after which what could happen has; a probe goes on as soon as it has
PROBES = 3
RECHECK = 0.1
FACTS = "select count(*) from holdfast.acks where code = %s"
ATTEMPTS = "select coalesce(sum(attempts), 0) from holdfast.ack_consumers"
NEXT_PROBE = "select reachable_at from holdfast.consumer_beats where reachable_at is not null"


# --- S27: each fact after the one before it ------------------------------------------------------------------------


def in_turn(seed: int) -> list[Figure]:
    """Parcels go their whole way at once; then their consumer comes and takes its time for each fact."""
    with scene.prepared() as stage:
        handled, early = asyncio.run(_in_turn(stage))
    facts = PARCELS * len(PATH)
    return [
        Figure("S27: facts stranded behind an answered one", facts - handled, NONE, seed, f"of {facts}"),
        Figure("S27: facts sent while an earlier one was open", early, NONE, seed, f"of {facts}"),
    ]


async def _in_turn(stage: Stage) -> tuple[int, int]:
    handled, early = 0, 0
    busy: set[str] = set()

    async def take(event: ConsumerEvent) -> None:
        nonlocal handled, early
        early += event.external_ref in busy
        busy.add(event.external_ref)
        await asyncio.sleep(0.05)
        busy.discard(event.external_ref)
        handled += 1

    async with Engine(stage.dsn) as engine:
        await engine.import_machine(parcels.machine())
        consumer = engine.consumer("desk", env=ENV)
        consumer.on()(take)
        await engine.drain(timeout=30)  # which registers it
        for number in range(PARCELS):
            for event in PATH.values():
                assert (await engine.trigger(ENV, NAME, f"p-{number}", event)).applied
        async with engine.worker():
            with suppress(TooLate):
                await until(lambda: handled >= PARCELS * len(PATH), SETTLED, "all is handled")
    return handled, early


# --- S27: an outage counts for nothing -----------------------------------------------------------------------------


def outage(seed: int) -> list[Figure]:
    """A consumer that cannot be connected to is probed several times."""
    with scene.prepared() as stage:
        burned = asyncio.run(_probe(stage))
    return [Figure("S27: attempts burned by probes", burned, NONE, seed, f"{PROBES} probes of {PARCELS} facts")]


async def _probe(stage: Stage) -> int:
    target = Target(stage.witness)
    try:
        async with Engine(stage.dsn) as engine:
            engine.effect_options = EffectOptions(allow=(target.address,))
            engine.consumer_options = msgspec.structs.replace(engine.consumer_options, recheck=RECHECK)
            await engine.import_machine(parcels.machine())
            await engine.register_consumer(ENV, "away", way="push", target={"url": target.url, "signed": False})
            for number in range(PARCELS):
                await engine.trigger(ENV, NAME, f"p-{number}", "Begin")
            async with engine.worker():
                seen: set[Any] = {None}
                while len(seen) <= PROBES:
                    seen.add(await asyncio.to_thread(stage.ask, NEXT_PROBE))
                    await asyncio.sleep(0.005)
            return await asyncio.to_thread(stage.ask, ATTEMPTS)
    finally:
        target.close()


# --- S28: phases ---------------------------------------------------------------------------------------------------


def phases(seed: int) -> list[Figure]:
    """One gate of two is answered: the phase behind them waits. Then the other one is."""
    with scene.prepared() as stage:
        early, late = asyncio.run(_phases(stage))
    return [Figure("S28: hooks that went out before a gate was done", early, NONE, seed, "of 1", late == 1)]


async def _phases(stage: Stage) -> tuple[int, int]:
    async with Engine(stage.dsn) as engine:
        await engine.import_machine(stays.STAYS["phases"].machine)
        await engine.register_consumer(ENV, "desk")
        await engine.trigger(ENV, "phases", "one", "Begin")
        first = await _answer(engine, "CREDIT", {})
        early = await asyncio.to_thread(stage.ask, FACTS, "SIGN")
        await _answer(engine, "STOCK", first)
        return early, await asyncio.to_thread(stage.ask, FACTS, "SIGN")


async def _answer(engine: Engine, hook: str, known: dict[str | None, str]) -> dict[str | None, str]:
    """Answer a gate; what else was received on the way to it is answered but for the other gates."""
    while hook not in known:
        for event in await engine.receive(ENV, "desk", wait=1.0):
            known[event.hook] = event.ack
            if event.kind == "transition":
                await engine.ack(ENV, "desk", event.ack, "processed")
    await engine.ack(ENV, "desk", known[hook], "processed")
    return known
