"""A vendor registers: services check and score it, and only some vendors need a person.

    python examples/machines_vendor.py

    Submitted ── CheckVendorRegistered ── PendingPQValidation ──┬ score ≥ 90 ──────────────────── Registered
                          │                      │              └ less ── AwaitingApproval ── ───────┘
                          └──────────────────────┴ Rejected

Nobody owns the registration. The registry answers one hook, the scoring service two gates, the desk sends the event
that the gates' completion names, and the mailer only looks on. The registry writes its own table in the transaction
that acknowledges the hook. It runs on the database of HOLDFAST_DSN, otherwise on the embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from holdfast import ConsumerEvent, Engine, Machine, Trigger, TriggerResult, Verdict
from holdfast.errors import Forbidden

MACHINES = Path(__file__).parent / "machines"
VENDOR = "vendorregistration"
RUN = uuid4().hex[:8]  # vendors of their own for each run of this program
SCORES = {"Acme": 95, "Globex": 70, "Initech": 0}

letters: dict[str, list[str]] = {}


def ref(vendor: str) -> str:
    return f"{vendor}/{RUN}"


def name(event: ConsumerEvent) -> str:
    return event.external_ref.split("/")[0]


# --- four services, of which none knows another -----------------------------------------------------------------------


def registry(engine: Engine) -> None:
    """Know whom we deal with. The write and the answer are one commit, so no vendor is entered twice."""
    service = engine.consumer(
        "registry", env="prod", definitions=[VENDOR], hooks=["APP.REG.CHECK.VENDOR_REGISTERED"], transitions=False
    )

    @service.hook("APP.REG.CHECK.VENDOR_REGISTERED", transactional=True)
    def check(event: ConsumerEvent, ctx: Any) -> Trigger:
        ctx.conn.execute("insert into example_vendors (vendor) values (%s)", [event.external_ref])
        assert event.on_success is not None
        return Trigger(event.on_success)


def scoring(engine: Engine) -> None:
    """Fetch the prequalification, then score it: two gates, of which the second comes after the first."""
    service = engine.consumer(
        "scoring", env="prod", definitions=[VENDOR], hooks=["APP.REG.PQ.FETCH", "APP.REG.PQ.SCORE"], transitions=False
    )

    @service.hook("APP.REG.PQ.FETCH")
    async def fetch(event: ConsumerEvent) -> None:
        """No answer is a success."""

    @service.hook("APP.REG.PQ.SCORE")
    async def score(event: ConsumerEvent) -> Verdict:
        return Verdict.success() if SCORES[name(event)] else Verdict.failure("no prequalification")


def desk(engine: Engine) -> None:
    """Send the next event: the one that the policy names for the verdict of the gates."""
    service = engine.consumer("desk", env="prod", definitions=[VENDOR], takes_hooks=False)

    @service.complete("PendingPQValidation")
    async def scored(event: ConsumerEvent) -> Trigger:
        assert event.send is not None
        return Trigger(event.send, {"score": SCORES[name(event)]})


def mailer(engine: Engine) -> None:
    """Look on: it gets every transition, in order, and moves nothing."""
    service = engine.consumer("mailer", env="prod", definitions=[VENDOR], takes_hooks=False, critical=False)

    @service.on()
    async def write(event: ConsumerEvent) -> None:
        letters.setdefault(event.external_ref, []).append(f"{event.event} by {event.actor}: {event.to_state}")


# --- the story --------------------------------------------------------------------------------------------------------


async def receive(engine: Engine, vendor: str) -> TriggerResult:
    sent = {"country": "NO", "name": vendor}
    return await engine.trigger("prod", VENDOR, ref(vendor), 1000, sent, by="portal", request_id=ref(vendor))


async def main() -> None:
    machine = Machine.load(
        MACHINES / "vendor_registration.blueprint.json", MACHINES / "vendor_registration.policy.json"
    )
    async with Engine() as engine:
        with psycopg.connect(engine.dsn) as db:
            db.execute("create table if not exists example_vendors (vendor text primary key)")
        await engine.import_machine(machine)
        for service in (registry, scoring, desk, mailer):
            service(engine)
        async with engine.worker():
            await engine.drain(timeout=60)  # the consumers are registered
            for vendor in SCORES:
                await receive(engine, vendor)
            again = await receive(engine, "Acme")
            print(f"A portal that asks twice gets one answer: {again.from_state} → {again.to_state}")
            await engine.drain(timeout=60)

            for vendor in SCORES:
                print(f"{vendor}:")
                for letter in letters[ref(vendor)]:
                    print(f"    {letter}")

            waiting = await engine.machine("prod", VENDOR, ref("Globex"))
            assert waiting.state == "AwaitingApproval"
            try:
                await engine.trigger("prod", VENDOR, ref("Globex"), "Approved", by="eve", expected=waiting.lifecycle)
            except Forbidden as refusal:
                print(f"Eve may not approve Globex: {refusal.code}")
            approved = await engine.trigger(
                "prod", VENDOR, ref("Globex"), "Approved", by="ann", capabilities=["vendors.approve"],
                expected=waiting.lifecycle,
            )  # fmt: skip
            print(f"Ann may: {approved.from_state} → {approved.to_state}")
            late = await engine.trigger("prod", VENDOR, ref("Globex"), "Refused", by="ben")
            print(f"Ben refuses it a moment later: {late.reason}")
            await engine.drain(timeout=60)  # what is over is told, too
        with psycopg.connect(engine.dsn) as db:
            known = db.execute("select count(*) from example_vendors where vendor like %s", [f"%/{RUN}"]).fetchone()
    assert (approved.applied, late.applied, late.reason) == (True, False, "terminal")
    assert known == (3,)
    assert letters[ref("Globex")][-1] == "Approved by ann: Registered"
    print("Three vendors checked once each, two registered, one rejected.")


if __name__ == "__main__":
    asyncio.run(main())
