"""The end of a connection: noticed while nobody uses it, and forgotten before its socket is somebody else's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import psycopg
import pytest

from holdfast.store.session import Disconnected, Session
from holdfast.store.statements import SQL
from running import until

pytestmark = pytest.mark.anyio

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
