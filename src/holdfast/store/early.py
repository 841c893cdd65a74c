"""Events sent to a key: which of them a node of an instance has taken."""

from __future__ import annotations

from holdfast.store.session import Session
from holdfast.store.statements import SQL


async def mark_taken(session: Session, instance: bytes, org: str, event: bytes, node: str) -> None:
    """Inside the commit that takes it: no later lap through the node takes this event again."""
    await session.run([SQL.mark_events.rows([(instance, instance[15], f"{_uuid(event)}:{node}", org)])])


def _uuid(id: bytes) -> str:
    digits = id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
