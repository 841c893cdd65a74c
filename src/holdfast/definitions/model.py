"""A saga as it was written: plain frozen values, in the order of the builder's calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

Function = Callable[..., Any]


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="item", tag="step"):
    """One call of a handler. Durations are seconds."""

    name: str
    handler: str
    retries: int = 1  # all calls, the first included; below 1 means 1
    retry_delay: float = 0.0
    max_delay: float = 3600.0
    backoff: str = "fixed"
    jitter: float = 0.0
    timeout: float | None = None  # per call
    deadline: float | None = None  # for the whole step, all calls included
    idempotent: bool = True
    priority: int = 50
    queue: str | None = None
    metadata: dict[str, Any] = {}


class Human(msgspec.Struct, frozen=True, kw_only=True, tag_field="item", tag="human"):
    """A person decides before the flow goes on. Durations are seconds."""

    name: str
    form: dict[str, Any] | None = None
    roles: tuple[str, ...] = ()
    due: float | None = None
    priority: int = 50
    metadata: dict[str, Any] = {}


Item = Step | Human  # each further construct of the builder adds its tagged value to this union


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What `Flow.build` answers and `engine.publish` takes."""

    name: str
    version: int
    items: tuple[Item, ...]
    handlers: dict[str, Function] = {}  # the functions among the handlers; the others are known by name only

    @property
    def source(self) -> dict[str, Any]:
        """The definition as JSON data, to be kept beside the compiled graph; functions stay behind."""
        return {
            "kind": "saga",
            "name": self.name,
            "version": self.version,
            "items": [msgspec.to_builtins(item) for item in self.items],
        }
