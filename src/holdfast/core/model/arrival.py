"""Arrival: the event that moves a machine's token, for as long as a decision walks."""

from __future__ import annotations

import msgspec


class Arrival(msgspec.Struct, frozen=True, gc=False):
    event: str
    came_from: str
    occurred_at: int
    needs_ack: bool = True
    by_timeout: bool = False
    by: str | None = None  # who sent it, where that is not the actor of the decision
    is_past: bool = False  # nobody is told of it
