"""Decision tables of a server: publish them, and read them back."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.client.connection import EVERYTHING, Connection, given, part, taken
from holdfast.doors.envelope.decision_tables.building import table_data
from holdfast.doors.envelope.decision_tables.model import TableDefinition
from holdfast.doors.envelope.reading.load import require_table
from holdfast.runtime.envelopes.tables import PublishedTable, TableDocument
from holdfast.store.decision_tables import TableVersion


class ClientTables:
    def __init__(self, server: Connection) -> None:
        self._server = server

    def publish(
        self, table: TableDefinition | Mapping[str, Any], *, by: str | None = None, reason: str | None = None
    ) -> PublishedTable:
        """Publish a decision table; the key needs the scope `publish`."""
        data = table_data(table) if isinstance(table, TableDefinition) else {**table}
        return taken(PublishedTable, self._server.act("/rule-tables", given(table=data, reason=reason), by))

    def list(self, *, limit: int = EVERYTHING) -> builtins.list[TableVersion]:
        """List decision tables by name, each in its newest version."""
        return [taken(TableVersion, item) for item in self._server.pages("/rule-tables", limit)]

    def get(self, name: str, version: int | None = None) -> TableDocument:
        """Read one version of a decision table, by default the newest."""
        told = self._server.get(f"/rule-tables/{part(name)}", version=version)
        return taken(TableDocument, {**told, "table": msgspec.to_builtins(require_table(told["table"]))})
