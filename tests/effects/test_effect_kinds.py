"""Kinds of effects of one's own: functions, objects, packages."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from effect_flows import flow, run, visited

from holdfast import DoNotRetry, Engine
from holdfast.errors import HoldfastError
from holdfast.graph.model import Retry
from holdfast.runtime.effects.delivery import Delivered, Delivery, EffectFailed

pytestmark = pytest.mark.anyio


async def test_a_function_delivers_effects(engine: Engine) -> None:
    seen: list[tuple[str, int, Any]] = []

    @engine.effect("sms")
    def send(ctx: Delivery, data: dict[str, Any]) -> dict[str, str]:
        seen.append((ctx.key, ctx.attempt, ctx.config))
        if ctx.attempt == 1:
            raise ValueError("busy")
        return {"sent": data["to"]}

    effect = await run(engine, flow("sms", awaits=True, config={"sender": "shop"}), {"to": "+49"})
    assert effect.status == "completed"
    assert seen == [(effect.key, 1, {"sender": "shop"}), (effect.key, 2, {"sender": "shop"})]
    assert (await engine.get(effect.instance_id)).data == {"sent": "+49"}


@pytest.mark.parametrize(
    ("failure", "code", "attempts"),
    [
        (ValueError("nope"), "ValueError", 3),
        (DoNotRetry("never"), "EFFECT_GIVEN_UP", 1),
        (EffectFailed("SHOP_CLOSED", "Come tomorrow.", final=True), "SHOP_CLOSED", 1),
        (ValueError("\x00 \ud800"), "ValueError", 3),
        (EffectFailed("\x00", "\ud800", final=True, evidence={"bad": object()}), "\\0", 1),
    ],
)
async def test_a_function_that_fails(engine: Engine, failure: Exception, code: str, attempts: int) -> None:
    @engine.effect("sms")
    async def send(ctx: Delivery, data: Any) -> None:
        raise failure

    effect = await run(engine, flow("sms", awaits=True))
    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", code, attempts)
    assert await visited(engine, effect) == ["start", "tell", "sorry"]


async def test_a_function_that_hangs_is_cut_off(engine: Engine) -> None:
    @engine.effect("sms")
    async def send(ctx: Delivery, data: Any) -> None:
        await asyncio.Event().wait()

    effect = await run(engine, flow("sms", timeout=0.1, retry=Retry(calls=2)))
    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", "EFFECT_TIMEOUT", 2)


async def test_a_result_that_cannot_be_stored_is_a_failure(engine: Engine) -> None:
    engine.register_effect("sms", lambda ctx, data: object())
    effect = await run(engine, flow("sms", awaits=True))
    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", "PAYLOAD_TYPE", 1)


async def test_a_kind_may_be_an_object_and_replace_a_built_in_one(engine: Engine) -> None:
    class Recorded:
        async def deliver(self, delivery: Delivery) -> Delivered:
            return Delivered({"n": 1}, {"note": delivery.target})

    kind = Recorded()
    engine.register_effect("webhook", kind)
    engine.register_effect("webhook", kind)
    with pytest.raises(HoldfastError) as refusal:
        engine.register_effect("webhook", Recorded())
    assert refusal.value.code == "EFFECT_KIND_DUPLICATE"
    with pytest.raises(HoldfastError) as refusal:
        engine.register_effect(5, kind)  # type: ignore[arg-type]
    assert refusal.value.code == "TEXT_INVALID"
    effect = await run(engine, flow(config={"url": "https://Shop.example/x"}))
    assert effect.evidence == {"attempt": 1, "note": "shop.example"}


async def test_a_kind_nobody_serves_waits(engine: Engine) -> None:
    effect = await run(engine, flow("fax"))
    assert (effect.status, effect.attempts) == ("pending", 0)
    engine.register_effect("fax", lambda ctx, data: None)
    await engine.drain(timeout=30)
    assert (await engine.effects(effect.instance_id))[0].status == "completed"


async def test_kinds_come_from_installed_packages(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package as it lies in site-packages: a module and its metadata. A broken one beside it does no harm."""
    (tmp_path / "courier.py").write_text(
        "from holdfast.runtime.effects.delivery import Delivered\n"
        "def pigeon(ctx, data):\n    return {'by': 'pigeon'}\n"
        "class Drone:\n    async def deliver(self, delivery):\n        return Delivered({'by': 'drone'})\n"
    )
    metadata = tmp_path / "courier-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: courier\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[holdfast.effects]\npigeon = courier:pigeon\ndrone = courier:Drone\nbroken = courier:missing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "courier", raising=False)
    for kind in ("pigeon", "drone"):
        effect = await run(engine, flow(kind, name=kind, awaits=True))
        assert (await engine.get(effect.instance_id)).data == {"by": kind}
    assert (await run(engine, flow("broken", name="broken"))).status == "pending"
