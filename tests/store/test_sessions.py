"""The end of a connection: noticed while nobody uses it, and forgotten before its socket is somebody else's."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import psycopg
import pytest

from holdfast.errors import StoreError
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, DatabaseError, Disconnected, Session
from holdfast.store.pg.statements import SQL
from running import until

pytestmark = pytest.mark.anyio

REFUSED = SQL.list_workers.one(-1)
END = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> %s"


@pytest.fixture
async def session(holdfast_dsn: str) -> AsyncIterator[Session]:
    session = await Session.open(holdfast_dsn)
    yield session
    await session.close()


def end_others(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(END, (admin.info.backend_pid,))


async def test_an_idle_session_notices_that_its_connection_has_ended(session: Session, holdfast_dsn: str) -> None:
    end_others(holdfast_dsn)
    await until(lambda: session.broken)
    with pytest.raises(Disconnected):
        await session.once(SQL.read_clock.one())


@pytest.mark.parametrize("ending", ["lost", "cancelled"])
async def test_the_socket_of_a_broken_session_is_free_for_others(
    session: Session, holdfast_dsn: str, ending: str
) -> None:
    number = session._pg.socket  # pyright: ignore[reportPrivateUsage]
    asking = asyncio.ensure_future(session.once(SQL.read_clock.one()))
    if ending == "lost":
        end_others(holdfast_dsn)  # the loop stands still meanwhile
    else:
        await asyncio.sleep(0)  # it is sent
        asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: session.broken)
    heard, (near, far) = asyncio.Event(), socket.socketpair()
    with near, far:
        if ending == "lost":
            assert number in (near.fileno(), far.fileno())  # libpq has closed it, so the next one has its number
        mine = far if far.fileno() == number else near
        asyncio.get_running_loop().add_reader(mine, heard.set)
        await session.close()
        (near if mine is far else far).send(b"x")
        await asyncio.wait_for(heard.wait(), 10)
        asyncio.get_running_loop().remove_reader(mine)


async def test_a_session_that_was_given_up_answers_at_once(session: Session) -> None:
    asking = asyncio.ensure_future(session.once(SQL.read_clock.one()))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    with pytest.raises(Disconnected):
        await session.run([SQL.read_clock.one()])


def prepared(session: Session) -> set[bytes]:
    return session._known  # pyright: ignore[reportPrivateUsage]


async def test_a_statement_is_prepared_once_when_it_is_first_needed(session: Session) -> None:
    name = SQL.read_clock.name
    assert name not in prepared(session)
    first = await session.run([BEGIN, SQL.read_clock.one(), SQL.read_clock.one(), COMMIT])
    assert name in prepared(session)
    again = await session.run([BEGIN, SQL.read_clock.one(), SQL.read_clock.one(), COMMIT])
    assert [len(first), len(again)] == [4, 4]  # a result per query, none for what was prepared


async def test_what_stands_behind_an_error_is_prepared_the_next_time(session: Session) -> None:
    with pytest.raises(DatabaseError):
        await session.run([BEGIN, REFUSED, SQL.read_clock.one(), COMMIT])
    assert SQL.read_clock.name not in prepared(session)
    await session.run([ROLLBACK])
    [answer] = await session.once(SQL.read_clock.one())
    assert answer.ntuples == 1


async def test_a_statement_that_does_not_fit_the_schema_says_so(session: Session, holdfast_dsn: str) -> None:
    with psycopg.connect(holdfast_dsn, autocommit=True) as admin:
        admin.execute("alter table holdfast.workers rename column host to called")
    with pytest.raises(StoreError) as refusal:
        await session.once(SQL.list_workers.one(10))
    assert (refusal.value.code, "list_workers" in refusal.value.message) == ("SCHEMA_MISMATCH", True)
    await session.once(SQL.read_clock.one())  # the transaction was left in order


def room(session: Session) -> tuple[int, bool]:
    """What its socket takes at once, and whether that leads to this machine only."""
    with socket.socket(fileno=os.dup(session._pg.socket)) as twin:  # pyright: ignore[reportPrivateUsage]
        return twin.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), twin.family == socket.AF_UNIX


async def test_a_lane_has_room_for_a_batch(session: Session, holdfast_dsn: str) -> None:
    """A local socket takes less than a batch of rollbacks unless told to; one over the network grows by itself."""
    lane = await Session.open_settled(holdfast_dsn)
    (wide, is_local), (usual, _) = room(lane), room(session)
    await lane.close()
    assert wide > usual if is_local else wide == usual
