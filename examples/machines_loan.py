"""A loan that two services check side by side before anything else may happen to it.

    python examples/machines_loan.py

    Requested ── Apply ── Checking ── Pass ──┬ up to 5,000 ─────────────────── Granted ── Pay ── PaidOut
                              │              └ more ── Deciding ── Grant ────────┘
                              └ Fail ── Declined

Entering `Checking` sends two hooks of one phase: credit and fraud. Both are gates, so the loan waits for both verdicts.
Then one fact, the completion, names the event to send, and the desk sends it. The bank books the payment in the
transaction that acknowledges it. It runs on the database of HOLDFAST_DSN, otherwise on the embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from holdfast import ConsumerEvent, Engine, Machine, Trigger, Verdict
from holdfast.errors import Forbidden

MACHINES = Path(__file__).parent / "machines"
RUN = uuid4().hex[:8]  # loans of their own for each run of this program
SCORES = {"ann": 710, "ben": 680, "eve": 790}

verdicts: dict[str, list[str]] = {}
bureau_is_open = asyncio.Event()


def ref(loan: str) -> str:
    return f"{loan}/{RUN}"


def note(event: ConsumerEvent, verdict: str) -> None:
    verdicts.setdefault(event.external_ref, []).append(verdict)


# --- three services and a desk ----------------------------------------------------------------------------------------


def credit(engine: Engine) -> None:
    service = engine.consumer(
        "credit", env="prod", definitions=["loan"], hooks=["LOAN.CHECK.CREDIT"], transitions=False
    )

    @service.hook("LOAN.CHECK.CREDIT")
    async def check(event: ConsumerEvent) -> Verdict:
        if event.payload["amount"] > 5000:
            await bureau_is_open.wait()  # large loans are asked for elsewhere, which takes a while
        least = event.params[0].data["least_score"]
        score = SCORES[event.payload["customer"]]
        note(event, f"credit: {score} of at least {least}")
        return Verdict.success() if score >= least else Verdict.failure(f"a score of {score}")


def fraud(engine: Engine) -> None:
    service = engine.consumer("fraud", env="prod", definitions=["loan"], hooks=["LOAN.CHECK.FRAUD"], transitions=False)

    @service.hook("LOAN.CHECK.FRAUD")
    def check(event: ConsumerEvent) -> Verdict:
        is_blocked = event.payload["account"] in event.params[0].data["blocked"]
        note(event, f"fraud: the account is {'blocked' if is_blocked else 'clean'}")
        return Verdict.failure("a blocked account") if is_blocked else Verdict.success()


def desk(engine: Engine) -> None:
    service = engine.consumer("desk", env="prod", definitions=["loan"], takes_hooks=False)

    @service.complete("Checking")
    async def checked(event: ConsumerEvent) -> Trigger | None:
        if event.send is None or not await event.is_current():
            return None  # the policy names no event, or the loan has moved on by another way
        return Trigger(event.send, {"checks": event.verdict})


def bank(engine: Engine) -> None:
    service = engine.consumer("bank", env="prod", definitions=["loan"], hooks=["LOAN.PAY"], transitions=False)

    @service.hook("LOAN.PAY", transactional=True)
    def pay(event: ConsumerEvent, ctx: Any) -> Trigger:
        ctx.conn.execute("insert into example_payments (loan) values (%s)", [event.external_ref])
        assert event.on_success is not None
        return Trigger(event.on_success)  # payment, ACK and next event: one commit


# --- the story --------------------------------------------------------------------------------------------------------


async def apply(engine: Engine, loan: str, customer: str, amount: int, account: str = "NO-11") -> str:
    wish = {"customer": customer, "amount": amount, "account": account}
    answer = await engine.trigger(
        "prod", "loan", ref(loan), "Apply", wish, by=customer, request_id=f"apply {ref(loan)}"
    )
    again = await engine.trigger("prod", "loan", ref(loan), "Apply", wish, by=customer, request_id=f"apply {ref(loan)}")
    assert again == answer, "a request that is repeated gets the same answer"
    return answer.instance


async def tell(engine: Engine, loan: str, instance: str) -> None:
    await engine.wait(instance, timeout=60)
    entries = (await engine.lifecycle(instance)).entries
    print(f"{loan}: {' → '.join(entry.to_state for entry in entries)}")
    for verdict in sorted(verdicts[ref(loan)]):
        print(f"    {verdict}")


async def main() -> None:
    machine = Machine.load(MACHINES / "loan_approval.blueprint.json", MACHINES / "loan_approval.policy.json")
    async with Engine() as engine:
        with psycopg.connect(engine.dsn) as db:
            db.execute("create table if not exists example_payments (loan text primary key)")
        await engine.import_machine(machine)
        for service in (credit, fraud, desk, bank):
            service(engine)
        async with engine.worker():
            await engine.drain(timeout=60)  # the consumers are registered
            small = await apply(engine, "L-1", "ann", 3_000)
            crooked = await apply(engine, "L-2", "ben", 2_000, account="XX-99")
            large = await apply(engine, "L-3", "eve", 90_000)

            early = await engine.trigger("prod", "loan", ref("L-3"), "Withdraw", by="eve")
            print(f"L-3 cannot be withdrawn while it is checked: {early.reason}")
            assert (early.applied, early.reason) == (False, "blocked")
            bureau_is_open.set()

            await tell(engine, "L-1", small)
            await tell(engine, "L-2", crooked)

            await engine.drain(timeout=60)
            assert (await engine.machine("prod", "loan", ref("L-3"))).state == "Deciding"
            try:
                await engine.trigger("prod", "loan", ref("L-3"), "Grant", by="ann")
            except Forbidden as refusal:
                print(f"Ann may not grant it: {refusal.code}")
            await engine.trigger("prod", "loan", ref("L-3"), "Grant", by="dan", capabilities=["loans.grant"])
            await tell(engine, "L-3", large)
        with psycopg.connect(engine.dsn) as db:
            paid = db.execute(
                "select loan from example_payments where loan like %s order by loan", [f"%/{RUN}"]
            ).fetchall()
    assert [loan for (loan,) in paid] == [ref("L-1"), ref("L-3")]
    print("Two loans were paid, each once.")


if __name__ == "__main__":
    asyncio.run(main())
