"""Work that must wait for a moment outside its queue; the scan frees it then, as it frees what is lost."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.pins import PIN
from holdfast.store.session import Session
from holdfast.store.statements import SQL


async def park_work(session: Session, claims: Sequence[tuple[bytes, str, int, float]], worker: bytes) -> None:
    """(instance, path, fence, seconds): given back as if never claimed, and free for all when the seconds are over."""
    parked = [(instance, instance[15], path, fence, seconds) for instance, path, fence, seconds in claims]
    await session.once(PIN, SQL.park_work.rows(parked, worker))
