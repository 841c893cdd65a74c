"""Failures of a call of an operation: final, or only this time. Handlers raise these; the step records the code."""

from __future__ import annotations

from typing import Any

from holdfast.errors import DefinitionError
from holdfast.runtime.worker.handlers import DoNotRetry


class CallRefused(DoNotRetry):
    """Final failure: another call would end the same way."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CallFailed(Exception):
    """Temporary failure: another call may work; `retry_after` is the delay the service asked for, in seconds."""

    def __init__(self, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class DocumentError(DefinitionError):
    """The OpenAPI document cannot be used."""

    code = "OPENAPI_INVALID"


def unfit(message: str) -> CallRefused:
    """Refuse an input that cannot be sent; no request was made."""
    return CallRefused("OPERATION_INPUT_INVALID", message)


def unsupported(message: str) -> CallRefused:
    return CallRefused("OPERATION_UNSUPPORTED", message)


def shown(value: Any, most: int = 80) -> str:
    """A name or value from outside, safe inside a message."""
    text = ascii(value)
    return text if len(text) <= most else text[: most - 1] + "…"
