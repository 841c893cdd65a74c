"""The schema as text, to be compared with what stands beside this file.

Write the reference again after a migration was added:

    python tests/store/schema_dump.py postgresql://…    (a server where databases may be created)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psycopg

HERE = Path(__file__).parent
REFERENCE = HERE / "schema.reference.txt"


def dump(connection: psycopg.Connection[Any]) -> str:
    connection.execute("set local search_path = pg_catalog")
    rows = connection.execute((HERE / "schema_dump.sql").read_bytes()).fetchall()
    return "".join(f"{line}\n" for (line,) in rows)


def main(admin_dsn: str) -> None:
    from schema_db import new_database  # here, because pytest wants to import that module first

    from holdfast.store.admin.schema import migrate

    with new_database(admin_dsn) as dsn:
        migrate(dsn)
        with psycopg.connect(dsn) as connection:
            REFERENCE.write_text(dump(connection))


if __name__ == "__main__":
    main(sys.argv[1])
