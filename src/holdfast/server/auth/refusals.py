"""Refusals of credentials: enough to mend the request, nothing of its content."""

from __future__ import annotations

from typing import Final

from holdfast.errors import Unauthenticated

REALM: Final = 'Bearer realm="holdfast"'


def missing() -> Unauthenticated:
    """The refusal of a request without credentials; its challenge names no error, since nothing was wrong."""
    return Unauthenticated(
        "The request carries no credentials.",
        code="CREDENTIALS_MISSING",
        hint="Send `Authorization: Bearer …` with a token or an API key.",
        challenge=REALM,
    )


def ambiguous() -> Unauthenticated:
    return Unauthenticated(
        "The request carries several credentials.",
        code="CREDENTIALS_AMBIGUOUS",
        hint="Send one token or one API key, in `Authorization: Bearer …`.",
        challenge=f'{REALM}, error="invalid_request"',
    )


def unfit(problem: str, *, code: str = "TOKEN_INVALID", hint: str = "") -> Unauthenticated:
    return Unauthenticated(problem, code=code, hint=hint, challenge=f'{REALM}, error="invalid_token"')
