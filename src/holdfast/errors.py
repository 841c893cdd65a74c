"""Every error a user can meet, as data: a stable code, a sentence, what to do about it, an HTTP status, an exit code.

    HoldfastError
    ├── DefinitionError        the definition is wrong              (carries diagnostics)
    │   └── ExpressionError    … inside an expression               (carries the position)
    ├── NotFound               no such flow, version, instance, node, handler
    ├── Conflict               right request, wrong moment: other input, other version, already over
    ├── Refused                the signal is not legal here; nothing changed
    │   └── InputInvalid       … because its data does not fit a schema (carries the misfits)
    ├── InstanceFailed         an instance that was waited for ended without a result (carries its step and error)
    ├── Unauthenticated        the caller cannot be identified      (carries the challenge to answer with)
    ├── Forbidden              the actor lacks a capability; nothing changed
    ├── PayloadError           a value that cannot be stored
    ├── StoreError             the database is missing, too old, too new, or refuses us
    ├── Unavailable            a service that is needed does not answer
    └── Busy                   another writer holds the instance; try again

The class docstring is the default message; codes are upper snake case and never change meaning.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HoldfastError(Exception):
    """Something went wrong in Holdfast."""

    code: str = "HOLDFAST_ERROR"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "", *, code: str = "", hint: str = "", **detail: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.code = code or type(self).code
        self.hint = hint
        self.detail = detail
        super().__init__(f"[{self.code}] {self.message}" + (f" {hint}" if hint else ""))


class DefinitionError(HoldfastError):
    """The definition is not valid."""

    code = "DEFINITION_INVALID"
    http_status = 422
    exit_code = 2

    def __init__(self, message: str = "", *, diagnostics: tuple[Any, ...] = (), **options: Any) -> None:
        self.diagnostics = diagnostics
        super().__init__(message, **options)


class ExpressionError(DefinitionError):
    """The expression is not valid."""

    code = "EXPRESSION_INVALID"

    def __init__(self, message: str = "", *, expression: str = "", position: int = 0, **options: Any) -> None:
        self.expression = expression
        self.position = position
        super().__init__(message, **options)


class NotFound(HoldfastError):
    """There is no such thing."""

    code = "NOT_FOUND"
    http_status = 404
    exit_code = 4


class Conflict(HoldfastError):
    """The request contradicts what is already there."""

    code = "CONFLICT"
    http_status = 409
    exit_code = 5


class Refused(HoldfastError):
    """The signal is not legal in this state; nothing changed."""

    code = "SIGNAL_REFUSED"
    http_status = 422
    exit_code = 6


class InputInvalid(Refused):
    """The data does not fit what is asked for; nothing changed."""

    code = "INPUT_INVALID"

    def __init__(self, message: str = "", *, misfits: tuple[Any, ...] = (), **options: Any) -> None:
        self.misfits = misfits
        super().__init__(message, **options)


class InstanceFailed(HoldfastError):
    """The instance ended without completing."""

    code = "INSTANCE_FAILED"
    http_status = 409
    exit_code = 5

    def __init__(
        self, message: str = "", *, instance: Any = None, step: str | None = None, error: Any = None, **options: Any
    ) -> None:
        self.instance = instance
        self.step = step  # the one that failed; None where it was cancelled, aborted or out of time
        self.error = error  # as the step recorded it: code, message and more
        super().__init__(message, **options)


class Unauthenticated(HoldfastError):
    """The request does not say who it comes from in a way that can be believed."""

    code = "UNAUTHENTICATED"
    http_status = 401
    exit_code = 9

    def __init__(self, message: str = "", *, challenge: str = "Bearer", **options: Any) -> None:
        self.challenge = challenge  # the value of WWW-Authenticate
        super().__init__(message, **options)


class Forbidden(HoldfastError):
    """The actor may not do this; nothing changed."""

    code = "FORBIDDEN"
    http_status = 403
    exit_code = 8


class PayloadError(HoldfastError):
    """The value cannot be stored."""

    code = "PAYLOAD_INVALID"
    http_status = 422
    exit_code = 2


class StoreError(HoldfastError):
    """The database cannot be used."""

    code = "STORE_UNAVAILABLE"
    http_status = 503
    exit_code = 7


class Unavailable(HoldfastError):
    """A service that is needed for this does not answer; try again later."""

    code = "SERVICE_UNAVAILABLE"
    http_status = 503
    exit_code = 7


class Busy(HoldfastError):
    """Somebody else is changing this instance; try again."""

    code = "INSTANCE_BUSY"
    http_status = 409
    exit_code = 5


class DoNotRetry(Exception):
    """Raise it in a handler: the step, or the fact, has failed for good, another call would not help."""
