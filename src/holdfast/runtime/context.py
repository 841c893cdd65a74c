"""What a handler is told about the call it serves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from uuid import UUID

import msgspec

from holdfast.core.ids import FORWARD
from holdfast.payloads import canonical


class Context:
    """The step a handler runs for. `idempotency_key` is the same on every call of this step with this input."""

    __slots__ = ("_input", "_is_lost", "attempt", "flow", "instance_id", "logger", "node", "org", "step_id", "token")

    def __init__(
        self,
        *,
        instance: bytes,
        step: bytes,
        node: str,
        token: str,
        attempt: int,
        flow: str,
        org: str,
        input: bytes,
        is_lost: Callable[[], bool],
    ) -> None:
        self.instance_id = UUID(bytes=instance)
        self.step_id = UUID(bytes=step)
        self.node = node
        self.token = token
        self.attempt = attempt
        self.flow = flow
        self.org = org
        self.logger = logging.getLogger("holdfast.handlers")
        self._input = input
        self._is_lost = is_lost

    @property
    def instance(self) -> str:
        return str(self.instance_id)

    @property
    def step(self) -> str:
        return self.node

    @property
    def tenant(self) -> str:
        return self.org

    @property
    def idempotency_key(self) -> str:
        """Pass it to the outside world: stable over attempts, new for new input."""
        digest = sha256(canonical(msgspec.json.decode(self._input))).hexdigest()
        parts = f"{self.instance_id}|{self.node}|{self.token}|{FORWARD}|{digest}"
        return sha256(parts.encode()).hexdigest()

    @property
    def lost(self) -> bool:
        """True when another worker may run this step by now: stop, the result would be refused."""
        return self._is_lost()

    def heartbeat(self) -> bool:
        """Still ours? The lease itself is kept by the process; a long handler asks now and then and stops when it is not."""
        return not self._is_lost()
