"""A machine is published, stored and read back like any other flow."""

from __future__ import annotations

import pytest
from machine_samples import vendor

from holdfast import Engine, code_of
from holdfast.doors.machine import MachineSource
from holdfast.doors.registry import open_source

pytestmark = pytest.mark.anyio


async def test_a_machine_is_published_once_and_printed_back(engine: Engine) -> None:
    await engine.publish(vendor())
    kept = await engine.flow("prod.vendorregistration")
    assert (kept.version, code_of(kept)) == (1, vendor().code())
    source = open_source(kept.source)
    assert isinstance(source, MachineSource)
    assert source.machine.hash == vendor().hash
    await engine.publish(vendor())
    assert (await engine.flow("prod.vendorregistration")).version == 1
