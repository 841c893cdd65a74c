"""Dead letters across organisations, for the operators of an installation. No tenant's session reads them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from holdfast.store.admin.connection import WORKER, Desk
from holdfast.store.dead_letters import DeadLetter, Wanted


class LetterOfTenant(msgspec.Struct, frozen=True):
    """A dead letter, whose it is, and the process that gave up; that is forgotten a day after it ended."""

    tenant: str
    host: str | None
    pid: int | None
    letter: DeadLetter


def list_all_dead_letters(
    dsn: str, wanted: Wanted, instance: bytes | None, after: bytes | None, limit: int
) -> list[LetterOfTenant]:
    with Desk(dsn) as desk, desk.transaction(WORKER) as errand:
        wished = msgspec.json.encode(wanted).decode()
        found = errand.run("repair", "list_all_dead_letters", wished, after, limit, instance)
    return [LetterOfTenant(org, host, pid, DeadLetter(*_texts(row))) for org, host, pid, *row in found]


def _texts(row: list[Any]) -> list[Any]:
    return [str(value) if isinstance(value, UUID) else value for value in row]
