"""The statements of the test databases: one per file, named verb_noun, the first line says its purpose."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import LiteralString, cast

from psycopg.sql import SQL, Composed, Identifier


@cache
def text(name: str) -> bytes:
    return (resources.files("holdfast.testing.sql") / f"{name}.sql").read_bytes()


def naming(name: str, **identifiers: str) -> Composed:
    """The statement with its identifiers quoted into place: PostgreSQL takes no parameters for names of databases."""
    statement = SQL(cast(LiteralString, text(name).decode()))
    return statement.format(**{place: Identifier(value) for place, value in identifiers.items()})
