"""A payout with a wrong account number: it waits in the dead letter queue until somebody corrects it.

    python examples/sagas_dlq.py

    prepare ── pay ┬ transfer       ┬ paid ── confirm
                   └ send_statement ┘

With `dlq=True` a step that is out of calls takes nothing back. It is paused, a dead letter says why, and everything
else goes on as far as it can. It runs on the database of HOLDFAST_DSN, otherwise on the embedded PostgreSQL.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Branch, Context, DoNotRetry, Engine, Flow

Payout = dict[str, Any]
transfers: list[str] = []
statements: list[str] = []


async def prepare(ctx: Context, payout: Payout) -> Payout:
    return {**payout, "reference": f"R-{payout['number']}"}


async def transfer(ctx: Context, payout: Payout) -> Payout:
    if not payout["account"].startswith("NO"):
        raise DoNotRetry(f"{payout['account']!r} is no account of this country.")
    transfers.append(payout["account"])
    return {"transferred": payout["amount"]}


async def send_statement(ctx: Context, payout: Payout) -> Payout:
    statements.append(payout["reference"])
    return {"sent": True}


async def confirm(ctx: Context, paid: dict[str, Any]) -> Payout:
    return paid["outputs"]["transfer"] | paid["outputs"]["send_statement"]


PAYOUT = (
    Flow("payout", dlq=True)
    .step("prepare", prepare)
    .fork("pay", Branch().step("transfer", transfer), Branch().step("send_statement", send_statement))
    .join("paid", "all")
    .step("confirm", confirm)
    .build()
)


async def look(engine: Engine, id: str) -> str:
    await engine.drain(timeout=30)
    seen = await engine.get(id)
    print(f"{seen.status}: {', '.join(f'{s.name} {s.status}' for s in await engine.steps(id))}")
    return seen.status


async def main() -> None:
    async with Engine() as engine:
        await engine.publish(PAYOUT)
        instance = await engine.start("payout", {"number": 7, "amount": 120, "account": "93860111117"})
        assert await look(engine, instance.id) == "dlq"

        [letter] = await engine.dead_letters(instance.id)
        wrong = letter.envelope["input"]
        print(f"Dead letter: {letter.envelope['node']} {letter.error['message']} It was called with {wrong}")

        right = wrong | {"account": f"NO{wrong['account']}"}
        await engine.requeue(letter.id, input=right, by="ann", reason="the country was missing")
        assert await look(engine, instance.id) == "completed"

        ended = await engine.get(instance.id)
        rows = [step for step in await engine.steps(instance.id) if step.name == "transfer"]
        assert [(row.status, row.run) for row in rows] == [("superseded", 0), ("completed", 1)]
        assert await engine.dead_letters(instance.id) == []
    assert transfers == ["NO93860111117"], "the money went out once, to the right account"
    assert statements == ["R-7"], "the branch that was done was not done again"
    print(f"Repaired: {ended.data}")


if __name__ == "__main__":
    asyncio.run(main())
