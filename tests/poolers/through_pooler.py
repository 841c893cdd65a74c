"""A plugin for pytest: every test's own database is reached through a transaction pooler.

HOLDFAST_THROUGH says which. The tests themselves ask the database with a driver that prepares on its own after a few
repetitions; that is switched off, the engine's own connections say so themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest
from bouncer import pgbouncer

from holdfast.testing import Database
from proxy import pooling_proxy

SIZE = 4


class ThroughPooler:
    @pytest.fixture
    def holdfast_dsn(self, holdfast_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        monkeypatch.setenv("HOLDFAST_DIRECT_DSN", holdfast_database.dsn)
        if os.environ["HOLDFAST_THROUGH"] == "pgbouncer":
            with pgbouncer(holdfast_database.dsn, SIZE) as address:
                yield address
        else:
            with pooling_proxy(holdfast_database.dsn, SIZE) as (address, _):
                yield address


def pytest_configure(config: pytest.Config) -> None:
    """After the plugins that came with packages, so that the fixture above is the one that counts."""
    for kind in (psycopg.Connection, psycopg.AsyncConnection):
        kind.connect.__func__.__kwdefaults__["prepare_threshold"] = None  # type: ignore[attr-defined]
    config.pluginmanager.register(ThroughPooler(), "through-pooler")
