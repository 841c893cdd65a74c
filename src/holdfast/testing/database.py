"""Databases for tests: a migrated template made once per schema, copied for each test in a fraction of a second.

The template's name holds a checksum of everything that shapes it, so checkouts of different releases can share a
server. It is built under an advisory lock and under another name, and renamed when complete: a template with the final
name is good.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from holdfast.errors import StoreError
from holdfast.store.admin.schema import migrations
from holdfast.testing import sql
from holdfast.testing.clock import install

TEMPLATES = "holdfast_template_"
COPIES = "holdfast_test_"
EMPTY = "template0"

Admin = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Database:
    name: str
    dsn: str


@contextmanager
def copied_database(admin_dsn: str) -> Generator[Database]:
    """A database of its own with the current schema and a movable clock; dropped at the end."""
    with _administering(admin_dsn) as admin:
        template = _ensure_template(admin, admin_dsn)
        name = f"{COPIES}{uuid.uuid4().hex[:16]}"
        _copy(admin, template, name)
        try:
            yield Database(name, make_conninfo(admin_dsn, dbname=name))
        finally:
            admin.execute(sql.naming("drop_database", database=name))


def drop_leftovers(admin_dsn: str) -> None:
    """Remove copies that killed sessions left and templates of other schemas; only for the sole user of a server."""
    with _administering(admin_dsn) as admin:
        for name in [*_names(admin, COPIES), *_names(admin, TEMPLATES)]:
            if name != template_name():
                admin.execute(sql.naming("drop_database", database=name))


def template_name() -> str:
    shape = hashlib.sha256(sql.text("install_clock"))
    for migration in migrations():
        shape.update(migration.checksum.encode())
    return f"{TEMPLATES}{shape.hexdigest()[:16]}"


def _ensure_template(admin: Admin, admin_dsn: str) -> str:
    template = template_name()
    if template not in _names(admin, template):
        # On a connection of its own: the lock lasts exactly as long as the building.
        with _administering(admin_dsn) as builder:
            builder.execute(sql.text("lock_template"), {"template": template})
            if template not in _names(builder, template):
                _build_template(builder, admin_dsn, template)
    return template


def _build_template(admin: Admin, admin_dsn: str, template: str) -> None:
    unfinished = f"{template}_new"
    admin.execute(sql.naming("drop_database", database=unfinished))
    _copy(admin, EMPTY, unfinished)
    install(make_conninfo(admin_dsn, dbname=unfinished))
    admin.execute(sql.naming("close_database", database=unfinished))
    admin.execute(sql.naming("rename_database", database=unfinished, new_name=template))


def _copy(admin: Admin, template: str, name: str) -> None:
    [[strategy]] = admin.execute(sql.text("read_copy_strategy")).fetchall()
    admin.execute(sql.naming("create_database", database=name, template=template, strategy=strategy))


def _names(admin: Admin, prefix: str) -> list[str]:
    return [row[0] for row in admin.execute(sql.text("find_databases"), {"prefix": prefix})]


@contextmanager
def _administering(admin_dsn: str) -> Generator[Admin]:
    try:
        connection = psycopg.connect(admin_dsn, autocommit=True)
    except psycopg.Error as failure:
        raise StoreError(
            f"The server for test databases does not answer: {failure}",
            code="STORE_UNREACHABLE",
            hint="Correct HOLDFAST_TEST_DSN, or leave it out to use an embedded server.",
        ) from None
    with connection:
        yield connection
