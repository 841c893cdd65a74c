"""No handler is called for a step whose receipt could not be written (WF-14): the receipt comes first, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Branch, Context, Engine, Flow
from running import Evidence

pytestmark = pytest.mark.anyio

ONE_AFTER_THE_OTHER = Flow("line").step("first", "note").step("second", "note").step("third", "note").build()
SIDE_BY_SIDE = (
    Flow("fork")
    .step("first", "note")
    .fork("both", Branch().step("second", "note"), Branch().step("third", "note"))
    .join("met", "all")
    .build()
)


def claim_receipt(evidence: Evidence, instance: str, token: str) -> None:
    """A receipt for a visit that nobody has made yet."""
    evidence.connection.execute(
        "insert into holdfast.step_receipts"
        " select i.id, %s, 'forward', 0, i.bucket, i.org_id, decode(repeat('ab', 32), 'hex'), gen_random_uuid(), now()"
        " from holdfast.instances i where i.id = %s",
        [token, instance],
    )


@pytest.mark.parametrize(
    ("flow", "token", "called"),
    [
        pytest.param(ONE_AFTER_THE_OTHER, "0@0", [], id="the first step"),
        pytest.param(ONE_AFTER_THE_OTHER, "0@1", ["first"], id="a step that would be handed off"),
        pytest.param(SIDE_BY_SIDE, "0/1.1@0", ["first"], id="a branch"),
    ],
)
async def test_a_handler_is_not_called_without_its_receipt(
    flow: Any, token: str, called: list[str], engine: Engine, evidence: Evidence
) -> None:
    calls: list[str] = []

    async def note(ctx: Context, data: Any) -> Any:
        calls.append(ctx.step)
        return data

    engine.register("note", note)
    await engine.publish(flow)
    instance = await engine.start(flow.name, key="it")
    claim_receipt(evidence, instance.id, token)
    await engine.drain(timeout=60)
    assert calls == called
    opened = [step.name for step in await engine.steps(instance.id) if step.behaviour == "work"]
    assert opened == called
    [letter] = await engine.dead_letters(instance.id)
    assert letter.reason == "ATTEMPTS_EXHAUSTED"
    assert "23505" in letter.error["message"]

    # Once the false receipt is gone, it goes on: what could not be committed is called again, the rest once.
    evidence.connection.execute("delete from holdfast.step_receipts where key = decode(repeat('ab', 32), 'hex')")
    await engine.requeue(letter.id, by="ann", reason="the receipt is gone")
    await engine.drain(timeout=60)
    assert (await engine.get(instance.id)).status == "completed"
    assert sorted(calls[len(called) :]) == ["first", "second", "third"]
