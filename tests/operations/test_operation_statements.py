"""Every statement outside the hot path fits the schema, under the rights it runs with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.store.admin.connection import MAINTENANCE, WORKER
from holdfast.store.admin.doctor import CHECKS
from holdfast.testing import copied_database

FOLDER = Path(holdfast.__file__).parent / "store" / "sql" / "admin"
FILES = sorted(file for name in ("doctor", "repair", "upkeep") for file in (FOLDER / name).glob("*.sql"))
FORGETS = {
    "list_old_partitions",
    "drop_partition",
    "purge_instances",
    "prune_receipts",
    "prune_passed_receipts",
    "prune_dead_letters",
    "prune_statistics",
}
NO_ROLE = {"limit_transaction", "use_role"}


@pytest.fixture(scope="module")
def dsn(holdfast_server: str) -> Iterator[str]:
    with copied_database(holdfast_server) as database:
        yield database.dsn


def role_of(name: str) -> str | None:
    return None if name in NO_ROLE else MAINTENANCE if name in FORGETS else WORKER


@pytest.mark.parametrize("file", [f for f in FILES if f.stem != "vacuum_queues"], ids=lambda file: file.stem)
def test_it_can_be_planned_with_the_rights_it_has(dsn: str, file: Path) -> None:
    text = file.read_text()
    kinds = {int(n): kind for n, kind in re.findall(r"\$(\d+)::([a-z0-9]+(?:\[\])?)", text)}
    assert sorted(kinds) == list(range(1, len(kinds) + 1))
    types = f"({', '.join(kinds[n] for n in sorted(kinds))})" if kinds else ""
    nothing = f"({', '.join(['null'] * len(kinds))})" if kinds else ""
    connection: psycopg.Connection[Any]
    with psycopg.connect(dsn) as connection:
        if (role := role_of(file.stem)) is not None:
            connection.execute("select set_config('role', %s, true)", [role])
        connection.execute(f"prepare it{types} as {text}".encode())
        connection.execute(f"explain execute it{nothing}".encode())
        connection.rollback()


def test_each_check_has_statements_of_its_own() -> None:
    assert len([file for file in FILES if file.parent.name == "doctor"]) == len(CHECKS)
