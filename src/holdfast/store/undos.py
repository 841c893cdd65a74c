"""The compensations that a rollback has still to run, read from their rows by whoever has not planned them.

What each is called with is read as well, so that whoever takes a rollback over goes on with it as if it were their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from holdfast.core.snapshot import completed
from holdfast.core.state import Instance
from holdfast.core.undos import LARGEST, Undo, Undos, undo_of
from holdfast.errors import HoldfastError
from holdfast.store.session import rows
from holdfast.store.statements import SQL, Query
from holdfast.store.wire import read_int

_EVER: Final = 0  # as early as any step


def undos_query(instances: Iterable[Instance]) -> Query:
    return SQL.read_undos.rows([(i.id, i.bucket, _planned_at(i)) for i in instances], LARGEST)


def _planned_at(instance: Instance) -> int:
    """When the row of the present one was opened, and those of all others with it; between two there is none."""
    return min((token.at for token in instance.state.tokens.values()), default=_EVER)


def complete(instances: dict[bytes, Instance], ids: Iterable[bytes], result: Any) -> dict[bytes, HoldfastError]:
    """Give these instances the compensations that were read. Those whose snapshots tell otherwise are taken out."""
    undos: dict[bytes, list[Undo]] = {id: [] for id in ids}
    inputs: dict[bytes, list[bytes | None]] = {id: [] for id in undos}
    for instance, node, path, hop, id, at, fence, run, detail, input in rows(result):
        hop, at, fence, run = map(read_int, (hop, at, fence, run))
        undos[instance].append(undo_of(node.decode(), path.decode(), hop, id, at, fence, run, detail[1:]))
        inputs[instance].append(None if input is None else input[1:])
    unreadable: dict[bytes, HoldfastError] = {}
    for id, found in undos.items():
        try:
            instances[id] = completed(instances[id], Undos(found, inputs[id]))
        except HoldfastError as failure:
            del instances[id]
            unreadable[id] = failure
    return unreadable
