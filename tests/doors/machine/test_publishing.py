"""A machine is published, stored and read back like any other flow."""

from __future__ import annotations

import pytest
from machine_samples import vendor

from holdfast import Engine, code_of
from holdfast.doors.machine import MachineSource
from holdfast.doors.registry import open_source

pytestmark = pytest.mark.anyio


async def test_a_machine_is_published_run_and_printed_back(engine: Engine) -> None:
    await engine.publish(MachineSource(vendor(), 3))
    kept = await engine.flow("prod.vendorregistration")
    assert (kept.version, code_of(kept)) == (3, vendor().code())
    source = open_source(kept.source)
    assert isinstance(source, MachineSource)
    assert source.machine.hash == vendor().hash
    started = await engine.start("prod.vendorregistration", {})
    await engine.drain(timeout=30)
    for event, payload in (("Received", {}), ("Validated", {}), ("Validated", {"score": 99})):
        await engine.signal(started.id, event, payload)
    await engine.drain(timeout=30)
    ended = await engine.get(started.id)
    assert (ended.status, ended.data) == ("completed", {"score": 99})
