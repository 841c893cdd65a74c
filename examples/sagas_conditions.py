"""Nested conditions: loans that take different ways through one flow, and what is taken back when one fails.

    python examples/sagas_conditions.py

    score ── is_small ─yes─ pay_out
                └no─ has_income ─yes─ register_lien ─┐
                        └no─ find_guarantor ─────────┴ come back before pay_out

A false condition takes its `otherwise`. Without `.rejoin()` that way would end there; with it, it comes back. It runs
on the database of HOLDFAST_DSN, otherwise on the embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Branch, Context, DoNotRetry, Engine, Flow

Loan = dict[str, Any]
liens: set[str] = set()


async def score(ctx: Context, loan: Loan) -> Loan:
    return loan


async def register_lien(ctx: Context, loan: Loan) -> Loan:
    liens.add(loan["name"])
    return {**loan, "security": "lien"}


async def remove_lien(ctx: Context, undo: dict[str, Loan]) -> None:
    liens.discard(undo["input"]["name"])


async def find_guarantor(ctx: Context, loan: Loan) -> Loan:
    return {**loan, "security": "guarantor"}


async def release_guarantor(ctx: Context, undo: dict[str, Loan]) -> None:
    pass


async def pay_out(ctx: Context, loan: Loan) -> Loan:
    if loan.get("account") == "closed":
        raise DoNotRetry("The account is closed.")
    return {**loan, "paid": True}


SECURED = (
    Branch()
    .condition(
        "has_income",
        "input.income > 2000",  # a number that is missing reads 0
        otherwise=Branch().step("find_guarantor", find_guarantor, undo=release_guarantor),
    )
    .step("register_lien", register_lien, undo=remove_lien)
    .rejoin()  # closes has_income: the lien and the guarantor meet here …
    .rejoin()  # … and this branch comes back behind is_small
)  # fmt: skip

LOAN = (
    Flow("loan")
    .step("score", score)
    .condition("is_small", "input.amount <= 1000", otherwise=SECURED)
    .step("pay_out", pay_out)
    .build()
)

APPLICATIONS: list[tuple[Loan, str, list[str]]] = [
    ({"name": "ann", "amount": 500}, "completed", ["score", "is_small", "pay_out"]),
    (
        {"name": "ben", "amount": 9000, "income": 3000},
        "completed",
        ["score", "is_small", "has_income", "register_lien", "pay_out"],
    ),
    ({"name": "cleo", "amount": 9000}, "completed", ["score", "is_small", "has_income", "find_guarantor", "pay_out"]),
    (
        {"name": "dan", "amount": 9000, "income": 3000, "account": "closed"},
        "failed",
        ["score", "is_small", "has_income", "register_lien", "pay_out", "remove_lien"],
    ),
]


async def apply(engine: Engine, loan: Loan) -> tuple[str, list[str]]:
    instance = await engine.start("loan", loan)
    await engine.drain(timeout=30)
    ended = await engine.get(instance.id)
    way = [step.name for step in await engine.steps(instance.id)]
    print(f"{loan['name']:<5} {ended.status:<10} {' → '.join(way)}")
    return ended.status, way


async def main() -> None:
    async with Engine() as engine:
        await engine.publish(LOAN)
        for loan, status, way in APPLICATIONS:
            assert await apply(engine, loan) == (status, way), f"{loan['name']} should have gone another way"
    assert liens == {"ben"}, "only the way that was taken is taken back: the lien of dan, and no guarantor"
    print(f"Liens that stand: {sorted(liens)}")


if __name__ == "__main__":
    asyncio.run(main())
