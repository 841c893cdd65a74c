"""Logins that attack what an organisation has published, each with raw SQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from attackers import ATTACKERS, Db
from document_office import approved_by, invoice
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast import Engine


@pytest.fixture
async def published(engine: Engine) -> Engine:
    """A contract, a patch in force, an archived one, and a draft."""
    await engine.publish_contract(invoice(), by="ann")
    for role in ("finance", "board"):
        await engine.save_patch_draft(approved_by(role), by="ann")
        await engine.publish_patch("invoice", by="ann")
    await engine.archive_patch("invoice", 2, by="ann")
    await engine.save_patch_draft(approved_by("nobody"), by="ann")
    return engine


@pytest.fixture
def logins(holdfast_dsn: str) -> Iterator[dict[str, Db]]:
    """A connection per attacker: the owner of the tables, one of each role, and a login that has none."""
    with ExitStack() as stack:
        owner = stack.enter_context(psycopg.connect(holdfast_dsn, autocommit=True))
        found = {"owner": owner}
        for who in ATTACKERS[1:]:
            role = None if who == "stranger" else f"holdfast_{who}"
            found[who] = stack.enter_context(_login(owner, holdfast_dsn, role))
        yield found


@contextmanager
def _login(owner: Db, dsn: str, role: str | None) -> Iterator[Db]:
    name, password = f"attacker_{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    owner.execute(sql.SQL("create role {} login password {}").format(sql.Identifier(name), sql.Literal(password)))
    if role is not None:
        owner.execute(sql.SQL("grant {} to {}").format(sql.Identifier(role), sql.Identifier(name)))
    try:
        with psycopg.connect(make_conninfo(dsn, user=name, password=password), autocommit=True) as connection:
            yield connection
    finally:
        owner.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))
