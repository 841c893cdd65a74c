"""Answers of a handler to a fact. No answer means that it is processed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import Refused


class Trigger(msgspec.Struct, frozen=True):
    """Answer: processed, and the next event of the same instance, decided in the same commit."""

    event: str | int
    payload: Any = None


class Verdict(msgspec.Struct, frozen=True):
    """Answer to a gate: processed, with success or failure. Another answer is a success."""

    is_success: bool
    message: str | None = None
    then: Trigger | None = None

    @classmethod
    def success(cls, then: Trigger | None = None) -> Verdict:
        return cls(True, None, then)

    @classmethod
    def failure(cls, message: str | None = None, then: Trigger | None = None) -> Verdict:
        return cls(False, message, then)

    @property
    def word(self) -> str:
        return "success" if self.is_success else "failure"


class Postpone(Exception):
    """Answer, returned or raised: send the fact again at another moment, `at` or after `delay` seconds."""

    def __init__(self, *, at: datetime | None = None, delay: float | None = None, message: str | None = None) -> None:
        if (at is None) == (delay is None):
            raise Refused(
                "A postponement names a moment or a delay.",
                code="MOMENT_INVALID",
                hint="Write Postpone(delay=60) or Postpone(at=…).",
            )
        super().__init__(message or "postponed")
        self.at = at
        self.delay = delay
        self.message = message


Answer = Trigger | Verdict | Postpone | None
