"""Decision tables: publish them, read them back unaltered, and collect those that a patch names."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from holdfast.doors.envelope.decision_tables.building import pin_table, read_pinned, table_data, table_hash
from holdfast.doors.envelope.decision_tables.model import TableDefinition
from holdfast.doors.envelope.model import PatchDefinition
from holdfast.doors.envelope.reading.load import require_table
from holdfast.doors.envelope.tables import PinnedTable, Tables
from holdfast.errors import DefinitionError, NotFound
from holdfast.payloads import canonical
from holdfast.runtime.publishing import version_taken
from holdfast.store.decision_tables import NewTable, StoredTable, TableVersion, insert_table, page_tables, read_tables
from holdfast.store.pg.session import Session

_NAMED: Final = 200  # tables that a misspelt name is compared with


class PublishedTable(msgspec.Struct, frozen=True):
    """A decision table as it was published."""

    name: str
    version: int
    hash: str
    new: bool  # False: the very same table was there already


class TableDocument(TableVersion, frozen=True):
    """A published decision table as it was written."""

    table: TableDefinition


async def publish_table(
    session: Session, org: str, table: TableDefinition, by: str, reason: str | None
) -> PublishedTable:
    """Store a version of a table; one that is there already must say the same."""
    pinned = await asyncio.to_thread(_sound, table)
    row = NewTable(org, pinned.name, pinned.version, canonical(pinned.table), pinned.hash, by, reason)
    is_new = await insert_table(session, row)
    if not is_new and (await read_table(session, org, row.name, row.version)).hash != row.hash:
        raise version_taken(row.name, row.version)
    return PublishedTable(row.name, row.version, row.hash, is_new)


async def read_table(session: Session, org: str, name: str, version: int | None) -> TableDocument:
    """Read a table, proved to be the one that was published."""
    found, newest = await read_tables(session, org, ((name, version), (name, None)))
    if found is not None:
        return _document(found)
    if newest is None:
        raise NotFound(
            f"There is no decision table {name!r}.",
            code="TABLE_UNKNOWN",
            hint="Publish it, and check the organisation.",
        )
    raise NotFound(
        f"The decision table {name!r} has no version {version}.",
        code="VERSION_UNKNOWN",
        hint="Publish it, or leave the version out.",
    )


async def tables_of(session: Session, org: str, patch: PatchDefinition) -> Tables:
    """Collect the tables that a patch names, an organisation's own before the system's."""
    nodes = (node for steps in patch.slots.values() for node in steps.nodes)
    wanted = list(dict.fromkeys((node.table, node.table_version) for node in nodes if node.table is not None))
    if not wanted:
        return Tables()
    found = await read_tables(session, org, wanted)
    known = await page_tables(session, org, "", _NAMED) if None in found else []
    pinned = await asyncio.to_thread(lambda: [_pinned(one) for one in found if one is not None])
    return Tables(pinned, known=(table.name for table in known))


def _sound(table: TableDefinition) -> PinnedTable:
    """Check a table that may have been made without its builder."""
    return pin_table(require_table(table_data(table)))


def _document(found: StoredTable) -> TableDocument:
    table = read_pinned(found.content)
    version = found.version
    if (table.name, table.version, table_hash(table)) != (version.name, version.version, version.hash):
        raise DefinitionError(
            f"The decision table {version.name!r} version {version.version} does not match its hash.",
            code="WORKFLOW_HASH_MISMATCH",
            hint="It was changed after publication: publish it as a new version.",
        )
    return TableDocument(**msgspec.structs.asdict(version), table=table)


def _pinned(found: StoredTable) -> PinnedTable:
    return pin_table(_document(found).table)
