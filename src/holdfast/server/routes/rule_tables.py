"""Decision tables: publish them, and read them back."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from holdfast.doors.envelope.decision_tables.building import table_data
from holdfast.server.access.identity import CurrentIdentity
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.tenants import TenantEngine
from holdfast.server.http.contract import CHANGES, api_router
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, shown_of
from holdfast.server.models.base import Listed, Version
from holdfast.server.models.rule_tables import PublishedTableView, PublishTable, TableName, TableVersionView, TableView

router = api_router("rule-tables")


@router.post("", operation_id="publish_rule_table", responses=CHANGES, dependencies=[needs(Scope.PUBLISH)])
async def publish_rule_table(wish: PublishTable, engine: TenantEngine, identity: CurrentIdentity) -> PublishedTableView:
    """Publish a decision table, or list everything that is wrong with it. The same content again changes nothing."""
    return PublishedTableView.of(await engine.publish_table(wish.table, by=identity.subject, reason=wish.reason))


@router.get("", operation_id="list_rule_tables", dependencies=[needs(Scope.READ)])
async def list_rule_tables(
    engine: TenantEngine, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[TableVersionView]:
    """The newest version of every decision table, by name."""
    listing = Listing(engine.org, "rule tables")
    found = await engine.tables(after=listing.position(cursor), limit=limit + 1)
    page, last = shown_of(found, limit)
    return Listed(items=[TableVersionView.of(one) for one in page], next=listing.cursor(last and last.name))


@router.get("/{name}", operation_id="get_rule_table", dependencies=[needs(Scope.READ)])
async def get_rule_table(
    name: Annotated[TableName, Path(description="The name of a table.", examples=["limits"])],
    engine: TenantEngine,
    version: Annotated[Version | None, Query(description="One of its versions; else the newest.")] = None,
) -> TableView:
    """One version of a decision table, as it was written."""
    found = await engine.table(name, version)
    facts = {name: getattr(found, name) for name in TableVersionView.model_fields}
    return TableView(**facts, table=table_data(found.table))
