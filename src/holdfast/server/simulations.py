"""Simulations over HTTP: the answers of a machine and the way of a document, as much as a page holds."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import Refused
from holdfast.runtime.envelopes.simulated import Simulation
from holdfast.runtime.machines.machine import Machine
from holdfast.server.http.pages import MOST_BYTES
from holdfast.server.http.replies import encoded
from holdfast.server.models.machines import Simulate


def simulate(machine: Machine, wish: Simulate) -> dict[str, Any]:
    """Try the events, and encode the answers as long as they fit into one."""
    done = machine.simulate(
        [each if isinstance(each, int | str) else (each.event, each.payload) for each in wish.events],
        actor=wish.actor,
        capabilities=wish.capabilities,
        now=wish.now,
        data=wish.data,
    )
    entries, size = list[msgspec.Raw](), 0
    for entry in done.entries:  # each has a copy of its rule, with all parameters
        entries.append(msgspec.Raw(encoded(entry)))
        size += len(entries[-1])
        if size > MOST_BYTES:
            raise Refused(
                f"The answers to {len(entries)} of {len(done.entries)} events have more than {MOST_BYTES} bytes.",
                code="SIMULATION_TOO_LARGE",
                hint="Send fewer events.",
            )
    told = {"initial": done.initial, "state": done.state, "states": done.states, "is_over": done.is_over}
    return {**told, "entries": entries, "data": done.data}


def encoded_document(done: Simulation) -> bytes:
    """Encode the way of a document, if it fits into one answer."""
    content = encoded(done)
    if len(content) > MOST_BYTES:
        raise Refused(
            f"The way of the document has more than {MOST_BYTES} bytes.",
            code="SIMULATION_TOO_LARGE",
            hint="Send fewer inputs, or a smaller document.",
        )
    return content
