"""The engine: what a user holds. It wires the parts together and speaks their verbs; it decides nothing itself.

async with Engine() as engine:                # embedded PostgreSQL; Engine("postgresql://…") for yours
    engine.register("reserve", reserve)
    await engine.publish(Flow("order").step("reserve", "reserve").build())
    instance = await engine.start("order", {"amount": 5}, key="order-17")
    await engine.drain()
"""

from __future__ import annotations

from holdfast.runtime.engine.acknowledging import Acknowledging
from holdfast.runtime.engine.contracting import Contracting
from holdfast.runtime.engine.deciding import Deciding
from holdfast.runtime.engine.invoking import Invoking
from holdfast.runtime.engine.operating import Operating
from holdfast.runtime.engine.reporting import Reporting
from holdfast.runtime.engine.running import Running
from holdfast.runtime.engine.stepping import Stepping
from holdfast.runtime.engine.triggering import Triggering

__all__ = ["Engine"]


class Engine(Running, Triggering, Acknowledging, Stepping, Deciding, Contracting, Operating, Reporting, Invoking):
    """One class in several files, each with the verbs of one kind."""
