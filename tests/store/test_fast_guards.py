"""Planted defects on every fast statement: without one of its guards it does not refuse what it must.

The statement as it is refuses (HF001). The same text without the guard goes through, or comes as far as the triggers of
the tables. So what refuses is that guard, and a change that loses it turns the first half of the test red.
"""

from __future__ import annotations

import re

import psycopg
import pytest
from store_batches import batch, commit, opened, read_now, refused
from test_plain_rollback import BREAKS, Life, names, saga

from holdfast.store.commit.rows import Entry
from holdfast.store.pg.session import DatabaseError
from holdfast.store.pg.statements import LONELY, SQL, TEXTS, base_name

pytestmark = pytest.mark.anyio

STRIDES = ("advance_steps", "finish_instances", "begin_rollbacks", "undo_steps", "end_rollbacks")
BACKWARDS = STRIDES[2:]
STEPS = 4
OWN_RULES = "HF002"  # triggers of the tables: a second wall behind some of the guards
# What each break is refused by, and the text without it; a parameter stays, or its type could not be told.
GUARDS = {
    "another version": (r"t\.version = u\.version - \d", "true"),
    "another fence": (r"t\.fence = \w\.\w+(?: - 1)?", "true"),
    "another worker": (r"t\.worker is not distinct from (\$\d+)::uuid", r"\1::uuid is not distinct from \1::uuid"),
    "a step that is over": (r"num_nulls\(t\.closed_at\) = 1|t\.closed_at is null", "true"),
}


async def before(life: Life, now: int, stride: str) -> Entry:
    """The life up to the commit that this statement writes."""
    await life.begin(now)
    entry, done = life.done(now), 1
    while names(batch(now, entry)) != [stride]:
        await life.commit(entry, now)
        done += 1
        entry = await life.failed(now) if stride in BACKWARDS and done == STEPS else life.done(now)
    return entry


def plant(monkeypatch: pytest.MonkeyPatch, name: str, guard: str, without: str) -> None:
    statement = SQL.all[name]
    text, found = re.subn(guard, without, statement.sql.decode())
    assert found, f"{name} has no such guard"
    monkeypatch.setattr(statement, "sql", text.encode())
    monkeypatch.setitem(TEXTS, statement.name, text.encode())


@pytest.mark.parametrize("what", GUARDS)
@pytest.mark.parametrize("stride", STRIDES)
async def test_a_fast_statement_refuses_by_this_guard(
    holdfast_dsn: str, monkeypatch: pytest.MonkeyPatch, stride: str, what: str
) -> None:
    for name in LONELY:
        monkeypatch.setattr(SQL.all[name], "is_lonely", False)
    async with opened(holdfast_dsn) as session:
        now = await read_now(session)
        entry = await before(Life(session, saga(last_has_one=True), plain=True), now, stride)
        with psycopg.connect(holdfast_dsn) as db:
            db.execute(BREAKS[what].encode())
        await refused(session, batch(now, entry), "HF001", stride)
    plant(monkeypatch, stride, *GUARDS[what])
    async with opened(holdfast_dsn) as session:
        refusal = None
        try:
            await commit(session, batch(now, entry))
        except DatabaseError as error:
            refusal = error.sqlstate
    assert refusal in (None, OWN_RULES)


async def test_a_start_is_stored_once(holdfast_dsn: str) -> None:
    """A start has no row to guard: the keys of its tables refuse a second one."""
    async with opened(holdfast_dsn) as session:
        now = await read_now(session)
        life = Life(session, saga(last_has_one=True), plain=True)
        fresh = life.instance
        await life.begin(now)
        life.instance = fresh
        with pytest.raises(DatabaseError) as caught:
            await life.begin(now)
    assert (caught.value.sqlstate, base_name(caught.value.statement)) == ("23505", "begin_instances")
