"""Sub-flows and the instances they belong to. A family shares one bucket."""

from __future__ import annotations

from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL
from holdfast.store.wire import read_int


async def count_ancestors(session: Session, instance: bytes, most: int) -> int:
    """How deep an instance stands, in the transaction that is open; `most` is as far as anybody looks."""
    [result] = await session.run([SQL.count_ancestors.one(instance, instance[15], most)])
    return read_int(rows(result)[0][0])
