"""Tasks in the database: what a commit writes, what nobody may rewrite, what an inbox costs beside a long history."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from schema_rows import NOW, Row, insert
from store_batches import batch, commit, decision, happened, instance, later, new, new_id, opened, read_now, refused
from store_fill import stop_autovacuum
from store_plans import Db, accesses, be_tenant, buffers, measure, node_types

from holdfast.core.model.decision import TaskChange, TaskClosed, TaskFacts, TaskOpened, TaskRenamed
from holdfast.core.model.state import Instance
from holdfast.core.people.ownership import Change, TaskStatus
from holdfast.store.commit.batch import writes
from holdfast.store.commit.rows import Entry
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, Session
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN
from holdfast.store.tasks import (
    MOST_URGENT,
    NEVER,
    Task,
    change_task,
    list_inbox,
    list_task_events,
    list_tasks_of_instance,
    lock_tasks,
    read_task,
)
from holdfast.testing import copied_database

pytestmark = pytest.mark.anyio

FINISHED = {"short": 100_000, "long": 1_000_000}[os.environ.get("HOLDFAST_PROFILE", "short")]
OPEN = 2_000


@pytest.fixture
async def session(holdfast_dsn: str) -> AsyncIterator[Session]:
    async with opened(holdfast_dsn) as found:
        yield found


def asked(of: Instance, **changes: Any) -> TaskOpened:
    fields: dict[str, Any] = {
        "id": new_id(of.id[15]), "step": new_id(of.id[15]), "node": "ask", "token": "0@1", "roles": ("editor", "boss"),
        "priority": 70, "due": None, "form": b'{"type": "object"}', "payload": b'{"n": 1}',
    }  # fmt: skip
    return TaskOpened(**{**fields, **changes})


async def store_open(session: Session, *tasks: TaskOpened, of: Instance | None = None) -> Instance:
    one = of or instance()
    now = await read_now(session)
    await commit(session, batch(now, Entry(one, [decision(one, tasks=list(tasks), events=[happened(1)])], new())))
    return one


async def change(session: Session, one: Instance, *changes: TaskChange) -> None:
    after = later(one)
    now = await read_now(session)
    await commit(session, batch(now, Entry(one, [decision(after, tasks=list(changes), events=[happened(2)])])))


async def end(session: Session, one: Instance, closed: TaskClosed) -> None:
    await change(session, one, closed)


async def found(session: Session, id: bytes) -> Task:
    task = await read_task(session, "acme", id)
    assert task is not None
    return task


# --- a commit ---------------------------------------------------------------------------------------------------------


async def test_a_commit_opens_tasks(session: Session) -> None:
    one = instance()
    task = asked(one)
    await store_open(session, task, of=one)
    read = await found(session, task.id)
    assert (read.status, read.roles, read.priority, read.due_at) == ("open", ["editor", "boss"], 70, None)
    assert (read.payload, read.form, read.flow, read.version) == ({"n": 1}, {"type": "object"}, "order", 1)
    assert (read.instance_id, read.step_id) == (str(UUID(bytes=one.id)), str(UUID(bytes=task.step)))
    [created] = await list_task_events(session, "acme", task.id)
    assert (created.ordinal, created.type, created.actor) == (1, "created", "ann")


async def test_a_task_may_open_in_somebodys_hands(session: Session) -> None:
    one = instance()
    given, free = asked(one, assignee="eve"), asked(one)
    await store_open(session, given, free, of=one)
    read = await found(session, given.id)
    assert (read.status, read.assignee, read.version) == ("assigned", "eve", 2)
    created, assigned = await list_task_events(session, "acme", given.id)
    assert (created.ordinal, created.type, created.assignee) == (1, "created", None)
    assert (assigned.ordinal, assigned.type, assigned.assignee) == (2, "assigned", "eve")
    inbox = await list_inbox(session, "acme", role=None, assignee="eve", status=None, after=MOST_URGENT, limit=9)
    assert [task.id for task in inbox] == [read.id]
    assert await change_task(session, "acme", given.id, 2, Change(TaskStatus.OPEN, None, "released"), "eve")
    await end(session, one, TaskClosed(given.id, given.step, "cancelled", reason="left"))
    assert (await found(session, given.id)).version == 4


async def test_a_commit_ends_tasks(session: Session, holdfast_dsn: str) -> None:
    one = instance()
    task = asked(one)
    await store_open(session, task, of=one)
    await end(session, one, TaskClosed(task.id, task.step, "completed", "approved", "good", b'{"x": 1}'))
    read = await found(session, task.id)
    assert (read.status, read.decision, read.comment, read.data) == ("completed", "approved", "good", {"x": 1})
    assert (read.decided_by, read.version) == ("ann", 2)
    assert read.closed_at is not None
    assert [e.type for e in await list_task_events(session, "acme", task.id)] == ["created", "completed"]
    with psycopg.connect(holdfast_dsn) as db:
        assert db.execute("select count(*) from holdfast.task_roles").fetchone() == (0,)


async def test_a_task_may_open_and_end_in_one_commit(session: Session) -> None:
    one = instance()
    task = asked(one)
    await store_open(session, task, TaskClosed(task.id, task.step, "cancelled", reason="join_settled"), of=one)  # type: ignore[arg-type]
    read = await found(session, task.id)
    assert (read.status, read.reason, read.decided_by) == ("cancelled", "join_settled", None)


async def test_a_task_ends_once(session: Session) -> None:
    one = instance()
    task = asked(one)
    await store_open(session, task, of=one)
    closed = TaskClosed(task.id, task.step, "cancelled", reason="cancelled")
    await end(session, one, closed)
    again = Entry(later(one), [decision(later(later(one)), tasks=[closed])])
    await refused(session, batch(await read_now(session), again), "HF001", "close_tasks")


async def test_a_commit_gives_a_task_the_new_name_of_its_step(session: Session, holdfast_dsn: str) -> None:
    one = instance()
    task, other = asked(one), asked(one)
    await store_open(session, task, other, of=one)
    await change(session, one, TaskRenamed(task.id, "ask", "sign"))
    assert [(await found(session, id)).node for id in (task.id, other.id)] == ["sign", "ask"]
    *_, last = await list_task_events(session, "acme", task.id)
    assert (last.ordinal, last.type, last.actor, last.detail) == (2, "renamed", "ann", {"from": "ask", "to": "sign"})
    with psycopg.connect(holdfast_dsn) as db, pytest.raises(psycopg.Error, match="until its instance is migrated"):
        db.execute("update holdfast.tasks set node = 'other', version = version + 1")


async def test_a_task_that_is_over_keeps_its_name(session: Session) -> None:
    one = instance()
    task = asked(one)
    await store_open(session, task, of=one)
    await end(session, one, TaskClosed(task.id, task.step, "cancelled", reason="left"))
    renamed = Entry(later(one), [decision(later(later(one)), tasks=[TaskRenamed(task.id, "ask", "sign")])])
    await refused(session, batch(await read_now(session), renamed), "HF001", "rename_tasks")


async def test_a_role_named_twice_counts_once(session: Session) -> None:
    one = instance()
    task = asked(one, roles=("boss", "boss"))
    await store_open(session, task, of=one)
    assert (await found(session, task.id)).roles == ["boss"]


# --- inboxes ----------------------------------------------------------------------------------------------------------


async def test_an_inbox_is_ordered_by_priority_then_due_time_then_age(session: Session) -> None:
    one = instance()
    now = await read_now(session)
    wanted = [
        asked(one, node="a", priority=90),
        asked(one, node="b", priority=70, due=now + 5),
        asked(one, node="c", priority=70, due=now + 9),
        asked(one, node="d", priority=70),
        asked(one, node="e", priority=0),
    ]
    await store_open(session, *reversed(wanted), of=one)
    for inbox in ({"role": "boss"}, {"role": None}):
        names: list[str] = []
        after = MOST_URGENT
        while page := await list_inbox(session, "acme", assignee=None, status=None, after=after, limit=2, **inbox):
            names += [task.node for task in page]
            last = page[-1]
            at = next(t for t in wanted if t.node == last.node)
            after = 100 - at.priority, NEVER if at.due is None else at.due, at.id
        assert names == ["a", "b", "c", "d", "e"]


async def test_tasks_of_an_instance_are_listed_in_the_order_they_were_opened(session: Session) -> None:
    one = instance()
    tasks = sorted((asked(one, node=str(n)) for n in range(5)), key=lambda t: t.id)
    await store_open(session, *tasks, of=one)
    read = await list_tasks_of_instance(
        session, "acme", one.id, status=None, role="boss", assignee=None, after=tasks[1].id, limit=2
    )
    assert [t.id for t in read] == [str(UUID(bytes=t.id)) for t in tasks[2:4]]


async def test_another_organisation_sees_nothing(session: Session) -> None:
    one = instance()
    task = asked(one)
    await store_open(session, task, of=one)
    assert await read_task(session, "globex", task.id) is None
    assert await list_task_events(session, "globex", task.id) == []
    for role in (None, "boss"):
        assert not await list_inbox(
            session, "globex", role=role, assignee=None, status=None, after=MOST_URGENT, limit=5
        )


# --- people and commits on one row -----------------------------------------------------------------------------------


async def blocked(db: Db) -> None:
    """Until somebody waits for a lock in this database."""
    deadline = asyncio.get_running_loop().time() + 10
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    while db.execute(waiting).fetchone() == (0,):
        db.rollback()
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


def claiming(task: TaskOpened) -> Query:
    return SQL.change_task.one(task.id, task.id[15], "acme", 1, "claimed", "ben", "claimed", "ben", None)


async def test_a_decision_waits_for_a_claim_and_sees_it(session: Session, holdfast_dsn: str, db: Db) -> None:
    one = instance()
    task = asked(one)
    await store_open(session, task, of=one)
    async with opened(holdfast_dsn) as person:
        await person.run([BEGIN, SQL.use_worker.one(), claiming(task)])
        await session.run([BEGIN, PIN])
        looking = asyncio.create_task(lock_tasks(session, [task.id]))
        await blocked(db)
        await person.run([COMMIT])
        assert await looking == {task.id: TaskFacts("ben", ("editor", "boss"))}
        await session.run([ROLLBACK])


async def test_a_claim_waits_for_a_decision_and_comes_too_late(session: Session, holdfast_dsn: str, db: Db) -> None:
    one = instance()
    task = asked(one)
    await store_open(session, task, of=one)
    now = await read_now(session)
    async with opened(holdfast_dsn) as person:
        await session.run([BEGIN, PIN])
        assert await lock_tasks(session, [task.id]) == {task.id: TaskFacts(None, ("editor", "boss"))}
        change = Change(TaskStatus.CLAIMED, "ben", "claimed")
        claim = asyncio.create_task(change_task(person, "acme", task.id, 1, change, "ben"))
        await blocked(db)
        closed = TaskClosed(task.id, task.step, "completed", "approved")
        entry = Entry(one, [decision(later(one), tasks=[closed], events=[happened(2)])])
        await session.run([*writes(batch(now, entry)), COMMIT])
        assert await claim is False
    assert [e.type for e in await list_task_events(session, "acme", task.id)] == ["created", "completed"]


async def test_a_task_of_nobody_is_no_fact(session: Session) -> None:
    nobodys = new_id()
    assert await lock_tasks(session, [nobodys]) == {nobodys: None}


# --- what nobody may do -----------------------------------------------------------------------------------------------


@pytest.fixture
def db(holdfast_dsn: str) -> Iterator[Db]:
    connection = psycopg.connect(holdfast_dsn)
    try:
        yield connection
    finally:
        connection.rollback()
        connection.close()


def row(**changes: Any) -> Row:
    fields: Row = {
        "id": uuid4(), "bucket": 7, "org_id": "acme", "instance_id": uuid4(), "step_id": uuid4(),
        "step_created_at": NOW, "flow": "order", "node": "ask", "token": "0@1", "status": "open", "roles": "[]",
        "rank": 50, "due_at": "infinity", "version": 1, "created_at": NOW, "updated_at": NOW,
    }  # fmt: skip
    return fields | changes


def line(**changes: Any) -> Row:
    fields: Row = {
        "task_id": uuid4(), "ordinal": 1, "bucket": 7, "org_id": "acme", "instance_id": uuid4(), "type": "created",
        "created_at": NOW,
    }  # fmt: skip
    return fields | changes


def refuses(db: Db, statement: str, state: str) -> None:
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        db.execute(statement)
    assert caught.value.sqlstate == state, caught.value


@pytest.mark.parametrize(
    "change",
    [
        "node = 'other'", "roles = '[\"x\"]'", "payload = '{}'", "form = '{}'", "due_at = now()", "rank = 1",
        "instance_id = gen_random_uuid()", "org_id = 'globex'", "created_by = 'x'", "flow = 'x'",
    ],
)  # fmt: skip
def test_what_a_task_was_opened_with_never_changes(db: Db, change: str) -> None:
    insert(db, "tasks", row())
    refuses(db, f"update holdfast.tasks set {change}, version = version + 1", "HF002")


def test_the_version_rises_by_one(db: Db) -> None:
    insert(db, "tasks", row())
    for version in (0, 1, 3):
        refuses(db, f"update holdfast.tasks set version = {version}", "HF002")
    db.execute("update holdfast.tasks set version = 2, status = 'claimed', assignee = 'ann'")


def test_a_task_that_is_over_stays_as_it_is(db: Db) -> None:
    insert(db, "tasks", row(status="completed", decision="approved", closed_at=NOW))
    refuses(db, "update holdfast.tasks set comment = 'x', version = 2", "HF002")
    refuses(db, "update holdfast.tasks set status = 'open', closed_at = null, decision = null, version = 2", "HF002")


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "sleeping"}, {"status": "claimed"}, {"status": "assigned"}, {"assignee": "ann"},
        {"status": "completed"}, {"status": "completed", "closed_at": NOW}, {"closed_at": NOW},
        {"status": "cancelled", "closed_at": NOW, "decision": "x"}, {"rank": 101},
        {"assignee": "", "status": "claimed"},
    ],
)  # fmt: skip
def test_a_task_that_contradicts_itself_is_refused(db: Db, changes: Row) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        insert(db, "tasks", row(**changes))


def test_history_is_append_only_by_trigger(db: Db) -> None:
    insert(db, "tasks", row())
    insert(db, "task_events", line())
    for statement in (
        "update holdfast.task_events set actor = 'x'",
        "delete from holdfast.task_events",
        "delete from holdfast.tasks",
    ):
        refuses(db, statement, "HF002")
    db.execute("set local holdfast.maintenance = 'on'")
    db.execute("delete from holdfast.task_events")
    db.execute("delete from holdfast.tasks")


def test_history_is_append_only_by_privilege(db: Db) -> None:
    insert(db, "tasks", row())
    insert(db, "task_events", line())
    for role in ("holdfast_worker", "holdfast_tenant"):
        db.execute(f"set local role {role}")
        for statement in (
            "update holdfast.task_events set actor = 'x'",
            "delete from holdfast.task_events",
            "truncate holdfast.task_events",
            "delete from holdfast.tasks",
            "update holdfast.tasks set payload = null",
        ):
            refuses(db, statement, "42501")
        db.execute("reset role")


def test_a_tenant_only_reads_its_own(db: Db) -> None:
    for org in ("acme", "globex"):
        insert(db, "tasks", row(org_id=org))
        insert(db, "task_events", line(org_id=org))
    db.execute("set local role holdfast_tenant")
    db.execute("set local holdfast.org = 'acme'")
    for table in ("tasks", "task_events", "task_roles"):
        assert {r[0] for r in db.execute(f"select org_id from holdfast.{table}")} <= {"acme"}
        refuses(db, f"insert into holdfast.{table} default values", "42501")
    refuses(db, "update holdfast.tasks set version = 2", "42501")


def test_an_unknown_kind_of_history_is_refused(db: Db) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        insert(db, "task_events", line(type="forgotten"))


# --- what an inbox costs ----------------------------------------------------------------------------------------------

FILL = """
    with t as (
        insert into holdfast.tasks (id, bucket, org_id, instance_id, step_id, step_created_at, flow, node, token,
            status, roles, assignee, rank, due_at, decision, version, created_at, updated_at, closed_at)
        select (lpad(to_hex(1700000000000 + n), 12, '0') || '7abc8' || substr(md5(n::text), 1, 13) || '07')::uuid, 7,
            'huge',
            (lpad(to_hex(1700000000000 + n), 12, '0') || '7abc8' || substr(md5(n::text), 1, 13) || '07')::uuid,
            gen_random_uuid(), now(), 'order', 'ask', '0@1',
            case when n > %(last)s - %(open)s then case when mod(n, 2) = 0 then 'claimed' else 'open' end
                when mod(n, 50) = 0 then 'cancelled' else 'completed' end,
            '["boss"]', case when n <= %(last)s - %(open)s or mod(n, 2) = 0 then 'ann' end, mod(n, 100),
            case when mod(n, 3) = 0 then 'infinity' else now() + n * interval '1 second' end,
            case when n <= %(last)s - %(open)s and mod(n, 50) <> 0 then 'approved' end, 1, now(), now(),
            case when n <= %(last)s - %(open)s then now() end
        from generate_series(1, %(last)s) n
        returning id, bucket, org_id, rank, due_at, closed_at
    )
    insert into holdfast.task_roles (task_id, role, bucket, org_id, rank, due_at)
    select id, 'boss', bucket, org_id, rank, due_at from t where closed_at is null
"""

FIRST = [-1, "2000-01-01", UUID(int=0), 50]
INBOXES: dict[str, tuple[str, list[Any], set[str]]] = {
    "of everybody": ("list_open_tasks", ["huge", None, *FIRST], {"tasks_open"}),
    "what is free": ("list_open_tasks", ["huge", "open", *FIRST], {"tasks_open"}),
    "for everybody": ("list_free_tasks", ["huge", *FIRST], {"tasks_free", "instances_pkey"}),
    "of a person": ("list_tasks_of_assignee", ["huge", None, *FIRST, "ann"], {"tasks_assigned"}),
    "of nobody known": ("list_tasks_of_assignee", ["huge", None, *FIRST, "zoe"], {"tasks_assigned"}),
    "of a role": ("list_tasks_of_role", ["huge", None, *FIRST, "boss", None], {"task_roles_inbox", "tasks_pkey"}),
    "free of a role": (
        "list_tasks_of_role",
        ["huge", "open", *FIRST, "boss", None],
        {"task_roles_inbox", "tasks_pkey"},
    ),
    "of another role": ("list_tasks_of_role", ["huge", None, *FIRST, "clerk", None], {"task_roles_inbox"}),
    "what was cancelled": ("list_finished_tasks", ["huge", "cancelled", None, 50], {"tasks_over"}),
    "of another organisation": ("list_open_tasks", ["small", None, *FIRST], {"tasks_open"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def grown(holdfast_server: str) -> Iterator[tuple[Db, Db]]:
    """The same open tasks behind few and behind many that are over; never analysed."""
    with copied_database(holdfast_server) as small, copied_database(holdfast_server) as large:
        few = psycopg.connect(small.dsn, autocommit=True, prepare_threshold=None)
        many = psycopg.connect(large.dsn, autocommit=True, prepare_threshold=None)
        for db, last in ((few, OPEN + 1_000), (many, OPEN + FINISHED)):
            stop_autovacuum(db)
            db.execute(FILL, {"last": last, "open": OPEN})
        yield few, many
        few.close()
        many.close()


@pytest.mark.parametrize("statistics", ["none", "analysed"])
@pytest.mark.parametrize("inbox", INBOXES)
def test_tasks_that_are_over_cost_an_inbox_nothing(grown: tuple[Db, Db], inbox: str, statistics: str) -> None:
    name, values, indexes = INBOXES[inbox]
    touched: list[int] = []
    for db in grown:
        if statistics == "analysed":
            db.execute("analyze holdfast.tasks, holdfast.task_roles")
        with db.transaction(force_rollback=True):
            be_tenant(db, values[0])
            plan = measure(db, name, values)
        db.execute("deallocate all")
        used = accesses(plan)
        assert {a.index for a in used} <= indexes | {"tasks_pkey"}
        assert all(a.index is not None for a in used)
        assert not node_types(plan) & {"Sort", "Incremental Sort", "Hash Join", "Merge Join", "Bitmap Heap Scan"}
        assert plan["Actual Rows"] <= 50
        touched.append(buffers(plan))
    few, many = touched
    assert many <= few + 160, touched  # a level more of a B-tree for each of a hundred rows at most
    assert few <= 500, touched


@pytest.mark.parametrize("inbox", ["of a person", "of nobody known"])
def test_no_other_index_can_take_the_place_of_the_one_of_persons(grown: tuple[Db, Db], inbox: str) -> None:
    """Whatever the planner believes of how many people have tasks."""
    name, values, _ = INBOXES[inbox]
    for db in grown:
        with db.transaction(force_rollback=True):
            db.execute("drop index holdfast.tasks_assigned")
            be_tenant(db, values[0])
            plan = measure(db, name, values)
        db.execute("deallocate all")
        assert {a.index for a in accesses(plan)} <= {None, "tasks_pkey"}
