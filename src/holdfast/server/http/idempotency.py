"""The same request sent twice counts once: the header Idempotency-Key, and what it becomes inside.

A start keeps the key itself, unique within tenant and workflow. A change of an instance becomes the id of its signal,
made from tenant, person, instance and key: a repeat is recognised by the kernel wherever it arrives, and a key says
nothing elsewhere, or to anybody else.
"""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID, uuid5

from fastapi import Depends, Header
from pydantic import AfterValidator

from holdfast.server.access.identity import Identity
from holdfast.server.http.refusals import Invalid

_NAMESPACE: Final = UUID("6b1b36e0-8d53-4a0e-9a0f-5f2a4f2f7c11")
_MOST: Final = 255
_PATTERN: Final = r"^[\x21-\x7e]{1,255}$"


def _bare(given: str | None) -> str | None:
    """Strip the quotes that some callers put around the key."""
    if given is None:
        return None
    key = given[1:-1] if len(given) > 2 and given[0] == given[-1] == '"' else given
    if not key.isascii() or not key.isprintable() or len(key) > _MOST:
        raise Invalid("The header Idempotency-Key must have 1 to 255 visible ASCII characters.")
    return key


# As a parameter of a route (`key: KeyHeader = None`) it costs less than as a dependency.
KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Chosen by the caller, one per intended change: sent again, the change counts once.",
        pattern=_PATTERN,
        examples=["5f0c1c8e-order-17"],
    ),
    AfterValidator(_bare),
]


async def _key(given: KeyHeader = None) -> str | None:
    return given


IdempotencyKey = Annotated[str | None, Depends(_key)]


def signal_id(identity: Identity, changed: object, key: str | None, verb: str = "") -> UUID | None:
    """The id that this person's change of something (an instance, a task) has for the kernel; None without a key."""
    if key is None:
        return None
    parts = (identity.tenant, identity.subject, str(changed), verb, key)
    return uuid5(_NAMESPACE, "".join(f"{len(part)}:{part}" for part in parts))
