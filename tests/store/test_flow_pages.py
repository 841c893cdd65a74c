"""Pages of published flows cost the same however many versions there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from store_plans import Db, accesses, be_tenant, buffers, measure

from holdfast.testing import copied_database

FLOWS = 100
FEW, MANY = 3, 300
PAGES: dict[str, tuple[str, list[Any]]] = {
    "flows": ("page_flows", ["acme", "", 21]),
    "flows behind one": ("page_flows", ["acme", "flow-050", 21]),
    "versions": ("page_versions", ["acme", "flow-050", False, 2**31 - 1, "", 2]),
    "older versions": ("page_versions", ["acme", "flow-050", False, 3, "saga", 2]),
}

_FILL = """
    insert into holdfast.definitions (id, org_id, kind, name, version, status, nodes, edges, compiled, hash,
        compiler_version, created_at, published_at)
    select gen_random_uuid(), org, 'saga', 'flow-' || lpad(f::text, 3, '0'), v, 'published', '[]', '[]', '{}', 'h', '1',
        clock_timestamp(), clock_timestamp()
    from unnest(array['acme', 'other']) org, generate_series(1, %s) f, generate_series(1, %s) v
"""


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def grown(request: pytest.FixtureRequest, holdfast_server: str) -> Iterator[tuple[Db, Db]]:
    with (
        copied_database(holdfast_server) as small,
        copied_database(holdfast_server) as large,
        psycopg.connect(small.dsn, autocommit=True, prepare_threshold=None) as few,
        psycopg.connect(large.dsn, autocommit=True, prepare_threshold=None) as many,
    ):
        for db, versions in ((few, FEW), (many, MANY)):
            db.execute("alter table holdfast.definitions set (autovacuum_enabled = off)")
            db.execute(_FILL, [FLOWS, versions])
            if request.param == "analysed":
                db.execute("analyze holdfast.definitions")
        yield few, many


@pytest.mark.parametrize("what", PAGES)
def test_a_page_costs_the_same_whatever_was_published(grown: tuple[Db, Db], what: str) -> None:
    few, many = (_touched(db, *PAGES[what]) for db in grown)
    # A level or two of the B-tree for every probe: eight a name to find the next one, eight to find its newest version.
    assert many <= few * 2, (few, many)


def _touched(db: Db, name: str, values: list[Any]) -> int:
    with db.transaction(force_rollback=True):
        be_tenant(db, "acme")
        plan = measure(db, name, values)
    db.execute("deallocate all")
    assert plan["Actual Rows"] == values[-1]
    assert {access.index for access in accesses(plan)} == {"definitions_org_id_kind_name_version_key"}
    return buffers(plan)
