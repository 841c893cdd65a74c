"""Wiring of failpoints: methods of the engine, wrapped while at least one is set, and put back afterwards."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from functools import wraps
from typing import Any, Final, NoReturn

import psycopg

from holdfast.runtime.commit.committer import Committer
from holdfast.runtime.effects.worker import EffectsWorker
from holdfast.runtime.worker.calls import Calls
from holdfast.runtime.worker.executor import Executor
from holdfast.runtime.worker.worker import Worker
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, DatabaseError, Session
from holdfast.store.pg.statements import SQL, Query, base_name
from holdfast.store.queue.lease import Lease
from holdfast.testing.injection import STATEMENT_AFTER, STATEMENT_BEFORE, InjectedFault, meet, meet_blocking

_CONTROL: Final = (BEGIN, COMMIT, ROLLBACK)
_COMMIT_BEFORE: Final = "commit.before_commit"
_COMMIT_AFTER: Final = "commit.after_commit"

_originals: list[tuple[type, str, Any]] = []


def statements() -> set[str]:
    """Names of all statements that a failpoint can be set on."""
    return {*SQL.all, *(query.name.decode() for query in _CONTROL)}


def wire() -> None:
    if _originals:
        return
    _wrap(Session, "_exchange", _one_by_one)
    _wrap(Session, "_exchange_some", _the_first_only)
    _wrap(Committer, "committed", _blocking("commit.before_acting"))
    _wrap(Executor, "_call", _around("handler.before", "handler.after"))
    _wrap(Calls, "_run_function", _around("call.before", "call.after"))
    _wrap(EffectsWorker, "_call", _around("delivery.before", "delivery.after"))
    _wrap(Worker, "_round", _around("scan.before", "scan.after"))
    _wrap(Worker, "stop", _around("worker.before_stop"))
    _wrap(Lease, "_register", _in_thread("lease.before_register"))
    _wrap(Lease, "_renew", _in_thread("lease.before_renew", "lease.after_renew"))
    _wrap(Lease, "_run", _lease_statement)


def unwire() -> None:
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def _wrap(owner: type, name: str, wrapper: Callable[[Any], Any]) -> None:
    original = owner.__dict__[name]
    _originals.append((owner, name, original))
    setattr(owner, name, wraps(original)(wrapper(original)))


def _around(before: str, after: str | None = None) -> Callable[[Any], Any]:
    def wrapper(original: Any) -> Any:
        async def met(*args: Any, **options: Any) -> Any:
            await meet(before)
            answer = await original(*args, **options)
            if after is not None:
                await meet(after)
            return answer

        return met

    return wrapper


def _blocking(before: str) -> Callable[[Any], Any]:
    def wrapper(original: Any) -> Any:
        def met(*args: Any, **options: Any) -> Any:
            meet_blocking(before)
            return original(*args, **options)

        return met

    return wrapper


def _in_thread(before: str, after: str | None = None) -> Callable[[Any], Any]:
    """The thread of the lease knows errors of the driver only, as any of its kind does."""

    def wrapper(original: Any) -> Any:
        def met(*args: Any, **options: Any) -> Any:
            with _as_driver_error():
                meet_blocking(before)
            answer = original(*args, **options)
            with _as_driver_error():
                if after is not None:
                    meet_blocking(after)
            return answer

        return met

    return wrapper


@contextmanager
def _as_driver_error() -> Generator[None]:
    try:
        yield
    except (InjectedFault, DatabaseError) as fault:
        raise psycopg.OperationalError(str(fault)) from None


# --- statements ----------------------------------------------------------------------------------------------------


def _one_by_one(original: Any) -> Any:
    async def exchange(session: Any, queries: Sequence[Query]) -> list[Any]:
        """Run queries one by one. An error ends them, as it ends a flush: the rest is not sent, the transaction is the
        caller's.
        """

        def cut() -> NoReturn:
            _cut(session._pg)

        results: list[Any] = []
        for query in queries:
            before, after = _names(base_name(query.name.decode()))
            await meet(*before, cut=cut)
            results += await original(session, [query])
            await meet(*after, cut=cut)
        return results

    return exchange


def _the_first_only(original: Any) -> Any:
    """Several transactions of one flush are sent one after another: each of their statements is a place."""

    async def exchange(session: Any, flights: Sequence[Sequence[Query]]) -> list[Any]:
        return [await session._exchange_one(flights[0])]

    return exchange


def _lease_statement(original: Any) -> Any:
    """Wrap a statement of the lease, which has a connection of its own, in a thread, and a transaction per
    statement.
    """

    def run(lease: Any, connection: psycopg.Connection, statement: Any, parameters: Sequence[object]) -> Any:
        def cut() -> NoReturn:
            _cut(connection.pgconn)

        before, after = _names(statement.name.decode())
        with _as_driver_error():
            meet_blocking(*before, cut=cut)
        answer = original(lease, connection, statement, parameters)
        with _as_driver_error():
            meet_blocking(*after, cut=cut)
        return answer

    return run


def _names(statement: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the places before and after it, the most telling one last."""
    before = (STATEMENT_BEFORE, f"{STATEMENT_BEFORE}.{statement}")
    after = (STATEMENT_AFTER, f"{STATEMENT_AFTER}.{statement}")
    if statement == COMMIT.name.decode():
        return (*before, _COMMIT_BEFORE), (*after, _COMMIT_AFTER)
    return before, after


def _cut(pgconn: Any) -> NoReturn:
    """Shut the socket down in both directions, like a lost network; the client sees an ordinary error."""
    with closing(socket.socket(fileno=os.dup(pgconn.socket))) as wire_end:
        wire_end.shutdown(socket.SHUT_RDWR)
    raise psycopg.OperationalError("the connection was cut by a failpoint")
