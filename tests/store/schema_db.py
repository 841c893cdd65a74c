"""Databases for the tests of the schema: on the server of HOLDFAST_TEST_DSN, else on an embedded one of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.store import embedded
from holdfast.store.admin.schema import migrate

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="session")
def admin_dsn() -> Iterator[str]:
    if dsn := os.environ.get("HOLDFAST_TEST_DSN"):
        yield dsn
        return
    # Not below pytest's own temporary directory: that one is closed to the account the server runs under.
    directory = Path(tempfile.gettempdir()) / f"holdfast-schema-{os.getuid()}-{os.getpid()}"
    server = embedded.start(directory)
    try:
        yield server.dsn
    finally:
        embedded.stop(directory)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def new_database(admin_dsn: str) -> Iterator[str]:
    name = f"schema_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
        try:
            yield make_conninfo(admin_dsn, dbname=name)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def empty_dsn(admin_dsn: str) -> Iterator[str]:
    """A database without a schema; nobody else knows it."""
    with new_database(admin_dsn) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def schema_dsn(admin_dsn: str) -> Iterator[str]:
    """A migrated database, shared: whoever commits here spoils it for others."""
    with new_database(admin_dsn) as dsn:
        migrate(dsn)
        yield dsn


@pytest.fixture
def private_dsn(empty_dsn: str) -> str:
    """A migrated database for tests that have to commit."""
    migrate(empty_dsn)
    return empty_dsn


@pytest.fixture
def db(schema_dsn: str) -> Iterator[Connection]:
    """A connection as administrator; everything done on it is rolled back. Names are always written with the schema."""
    connection = psycopg.connect(schema_dsn, options="-c search_path=pg_catalog")
    try:
        yield connection
    finally:
        connection.rollback()
        connection.close()
