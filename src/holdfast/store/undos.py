"""The compensations that a rollback has still to run, read from their rows by whoever has not planned them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.core.snapshot import completed
from holdfast.core.state import Instance
from holdfast.core.undos import Undo, Undos, undo_of
from holdfast.errors import HoldfastError
from holdfast.store.session import rows
from holdfast.store.statements import SQL, Query
from holdfast.store.wire import read_int


def undos_query(ids: Iterable[bytes]) -> Query:
    return SQL.read_undos.rows([(id, id[15]) for id in ids])


def complete(instances: dict[bytes, Instance], ids: Iterable[bytes], result: Any) -> dict[bytes, HoldfastError]:
    """Give these instances the compensations that were read. Those whose snapshots tell otherwise are taken out."""
    undos: dict[bytes, list[Undo]] = {id: [] for id in ids}
    for instance, node, path, hop, id, at, fence, run, detail in rows(result):
        undos[instance].append(
            undo_of(
                node.decode(),
                path.decode(),
                read_int(hop),
                id,
                read_int(at),
                read_int(fence),
                read_int(run),
                detail[1:],
            )
        )
    unreadable: dict[bytes, HoldfastError] = {}
    for id, found in undos.items():
        try:
            instances[id] = completed(instances[id], Undos(found))
        except HoldfastError as failure:
            del instances[id]
            unreadable[id] = failure
    return unreadable
